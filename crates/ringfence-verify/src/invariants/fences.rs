//! Fences are unique and only rise. Under every fault: a client that calls after another was
//! granted gets the higher fence. While clocks keep what exclusion needs: fences rise in the order
//! of the grants. Two holders that share a name need no order between them. Each slot of a
//! semaphore has its own fences. Overlapping holds of one owner are one hold with one fence.

use std::collections::HashMap;

use crate::history::{History, Hold, Mode};

use super::Violation;

/// The scope within which fences are compared: a name, or one slot of a semaphore.
type FenceScope<'a> = (&'a str, Option<u32>);

/// See the module.
///
/// # Errors
/// If two grants have the same fence, or a later grant has the lower one.
pub fn check(history: &History) -> Result<(), Violation> {
    let timing_until_us = history.timing_until_us();
    let mut by_scope: HashMap<FenceScope<'_>, Vec<Hold<'_>>> = HashMap::new();
    let mut seen = HashMap::new();
    let mut owners = Owners::default();
    for hold in history.holds() {
        // A downgrade has no new fence, and neither has an owner's second hold.
        if hold.fence.is_none() || seen.insert(hold.op, ()).is_some() || !owners.is_new(&hold)? {
            continue;
        }
        for name in hold.names {
            let scope = (name.as_str(), hold.slot);
            by_scope.entry(scope).or_default().push(hold.clone());
        }
    }
    let mut scopes: Vec<_> = by_scope.into_iter().collect();
    scopes.sort_by_key(|(scope, _)| *scope);
    for ((name, _), grants) in &scopes {
        unique(name, grants)?;
        rising(name, grants, |grant| grant.invoked_us)?;
        // A grant that its client learns of after the deadline has no order with the others.
        let counts = |g: &&Hold<'_>| g.granted_us < timing_until_us && g.from_us < g.to_us;
        let in_time = grants.iter().filter(counts);
        let in_time: Vec<Hold<'_>> = in_time.cloned().collect();
        rising(name, &in_time, |grant| grant.granted_us)?;
    }
    Ok(())
}

/// The latest hold of each owner and its names.
#[derive(Default)]
struct Owners<'a>(HashMap<(u64, &'a [String]), Hold<'a>>);

impl<'a> Owners<'a> {
    /// Whether `hold` is a new hold of its owner. If the owner has it already, the fence must be
    /// the same.
    fn is_new(&mut self, hold: &Hold<'a>) -> Result<bool, Violation> {
        let Some(owner) = hold.owner else {
            return Ok(true);
        };
        let before = self.0.insert((owner, hold.names), hold.clone());
        let Some(before) = before else {
            return Ok(true);
        };
        if before.fence == hold.fence {
            return Ok(false);
        }
        if hold.from_us < before.to_us {
            let what = "another fence of the same owner";
            return Err(violation(hold, &before, &hold.names[0], what));
        }
        Ok(true)
    }
}

fn unique(name: &str, grants: &[Hold<'_>]) -> Result<(), Violation> {
    let mut seen: HashMap<Option<u64>, &Hold<'_>> = HashMap::new();
    for grant in grants.iter().filter(|grant| grant.mode != Mode::Shared) {
        if let Some(other) = seen.insert(grant.fence, grant) {
            return Err(violation(grant, other, name, "the same fence"));
        }
    }
    Ok(())
}

/// A call that `began` after another was granted has the higher fence, unless both share the name.
fn rising(
    name: &str,
    grants: &[Hold<'_>],
    began: impl Fn(&Hold<'_>) -> u64,
) -> Result<(), Violation> {
    let mut by_beginning: Vec<&Hold<'_>> = grants.iter().collect();
    by_beginning.sort_by_key(|grant| (began(grant), grant.granted_us));
    let mut by_grant: Vec<&Hold<'_>> = grants.iter().collect();
    by_grant.sort_by_key(|grant| grant.granted_us);
    let mut granted = by_grant.into_iter().peekable();
    // The highest fence so far: of exclusive holds, and of shared holds.
    let mut highest: [Option<&Hold<'_>>; 2] = [None, None];
    for grant in by_beginning {
        while let Some(earlier) = granted.next_if(|earlier| earlier.granted_us < began(grant)) {
            let slot = &mut highest[usize::from(earlier.mode == Mode::Shared)];
            if slot.is_none_or(|other| other.fence < earlier.fence) {
                *slot = Some(earlier);
            }
        }
        let [alone, sharing] = highest;
        let in_order_with = match grant.mode {
            Mode::Shared => [alone, None],
            _ => [alone, sharing],
        };
        for earlier in in_order_with.into_iter().flatten() {
            if earlier.op != grant.op && grant.fence <= earlier.fence {
                return Err(violation(grant, earlier, name, "no higher fence"));
            }
        }
    }
    Ok(())
}

fn violation(grant: &Hold<'_>, earlier: &Hold<'_>, name: &str, what: &str) -> Violation {
    let fence = |hold: &Hold<'_>| hold.fence.unwrap_or_default();
    Violation {
        invariant: "fences",
        at_us: grant.granted_us,
        how: format!(
            "op {} was granted {name} with {what} after op {}: {} and {}",
            grant.op,
            earlier.op,
            fence(grant),
            fence(earlier)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::history::made::{exclusive, grant, grant_slot, permit, shared};

    #[test]
    fn one_fence_given_twice_is_found() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("x"), 10, (50, 60));
        assert!(check(&history).is_err());
    }

    #[test]
    fn a_later_call_with_a_lower_fence_is_found_under_every_fault() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("x"), 9, (51, 60));
        history.break_timing(0);
        assert!(check(&history).is_err());
    }

    #[test]
    fn grants_out_of_order_are_excused_by_clocks_alone() {
        // Op 2 calls first, and learns of its grant last.
        let mut history = History::default();
        history.invoke(0, 2, exclusive("x"));
        history.invoke(0, 1, exclusive("x"));
        history.push(50, grant(1, 10, 60));
        history.push(70, grant(2, 9, 100));
        assert!(check(&history).is_err());
        history.break_timing(40);
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn readers_are_ordered_with_writers_and_not_with_each_other() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, shared("x"), 12, (51, 60));
        history.held(3, shared("x"), 11, (61, 70));
        assert_eq!(check(&history), Ok(()));
        let mut low_writer = history.clone();
        low_writer.held(4, exclusive("x"), 12, (71, 80));
        assert!(check(&low_writer).is_err());
        history.held(4, shared("x"), 10, (71, 80));
        assert!(check(&history).is_err());
    }

    #[test]
    fn names_and_slots_have_fences_of_their_own() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("y"), 9, (51, 60));
        for (op, fence, slot) in [(3, 8, 0), (4, 7, 1)] {
            history.invoke(70 + op, op, permit("x", 2));
            history.push(70 + op, grant_slot(op, fence, slot, 100));
        }
        assert_eq!(check(&history), Ok(()));
        history.invoke(90, 5, permit("x", 2));
        history.push(90, grant_slot(5, 7, 0, 100));
        assert!(check(&history).is_err());
    }

    #[test]
    fn holds_of_one_owner_share_a_fence_while_they_last() {
        let two = |fences: [u64; 2], second_us| {
            let mut history = History::default();
            history.held(1, exclusive("x"), fences[0], (0, 50));
            history.held(2, exclusive("x"), fences[1], (second_us, 100));
            assert!(fences[0] < fences[1] || check(&history).is_err());
            history.of_one_owner();
            check(&history)
        };
        assert_eq!(two([10, 10], 30), Ok(()));
        assert_eq!(two([10, 11], 51), Ok(()), "another hold");
        assert!(two([10, 11], 30).is_err());
        assert!(two([10, 9], 51).is_err(), "owned or not, fences rise");
    }

    #[test]
    fn a_downgrade_keeps_its_fence() {
        let mut history = History::default();
        history.invoke(0, 1, exclusive("x"));
        history.push(1, grant(1, 10, 100));
        history.push(20, What::Downgraded { op: 1 });
        history.held(2, exclusive("x"), 11, (101, 110));
        assert_eq!(check(&history), Ok(()));
    }
}
