//! While clocks keep what exclusion needs, at most as many permits of a semaphore are held as it
//! has, and no slot has two holders. Where clients disagree about the number, the largest counts for
//! all of them together, and each has a slot below its own number.

use std::collections::BTreeMap;

use crate::history::{History, Hold, Mode};

use super::Violation;

/// See the module.
///
/// # Errors
/// If more permits were held than the semaphore has, or one slot by two clients.
pub fn check(history: &History) -> Result<(), Violation> {
    let timing_until_us = history.timing_until_us();
    let mut inside: BTreeMap<&str, Vec<Hold<'_>>> = BTreeMap::new();
    let mut holds = history.holds();
    holds.sort_by_key(|hold| hold.from_us);
    for hold in holds {
        let Mode::Permit { of } = hold.mode else {
            continue;
        };
        let (at_us, name) = (hold.from_us, hold.names[0].as_str());
        if hold.from_us >= hold.to_us || at_us >= timing_until_us {
            continue;
        }
        let others = inside.entry(name).or_default();
        others.retain(|other| other.to_us > at_us);
        let violation = |how| Violation {
            invariant: "permits",
            at_us,
            how,
        };
        let in_slot = |other: &&Hold<'_>| hold.slot.is_some() && other.slot == hold.slot;
        if let Some(other) = others.iter().find(in_slot) {
            let how = format!("ops {} and {} hold one slot of {name}", other.op, hold.op);
            return Err(violation(how));
        }
        if hold.slot.is_some_and(|slot| slot >= of) {
            let how = format!(
                "op {} holds a slot of {name} beyond its {of} permits",
                hold.op
            );
            return Err(violation(how));
        }
        others.push(hold);
        let known = others.iter().map(|other| match other.mode {
            Mode::Permit { of } => of,
            _ => 0,
        });
        let of = known.max().unwrap_or(of);
        if others.len() > of as usize {
            let ops: Vec<String> = others.iter().map(|other| other.op.to_string()).collect();
            let how = format!("ops {} hold {name}, which has {of} permits", ops.join(", "));
            return Err(violation(how));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::history::made::{grant_slot, permit};

    fn inside(ops: &[(u64, u32, u64, u64)]) -> History {
        let mut history = History::default();
        for &(op, slot, from_us, to_us) in ops {
            history.invoke(from_us, op, permit("s", 2));
            history.push(from_us, grant_slot(op, op, slot, to_us + 1_000));
            history.push(to_us, What::Ended { op });
        }
        history.events.sort_by_key(|event| event.at_us);
        history
    }

    #[test]
    fn three_holders_of_two_permits_are_found() {
        let history = inside(&[(1, 0, 0, 100), (2, 1, 10, 100), (3, 2, 50, 60)]);
        assert_eq!(check(&history).unwrap_err().at_us, 50);
    }

    #[test]
    fn two_holders_of_one_slot_are_found() {
        let history = inside(&[(1, 0, 0, 100), (2, 0, 10, 100)]);
        assert!(check(&history).unwrap_err().how.contains("one slot"));
    }

    #[test]
    fn as_many_holders_as_permits_are_fine() {
        let history = inside(&[(1, 0, 0, 50), (2, 1, 10, 100), (3, 0, 50, 60)]);
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn where_clients_disagree_the_largest_number_counts_and_nobody_has_a_slot_beyond_its_own() {
        let holders = |few_has: u32| {
            let mut history = History::default();
            for (op, of, slot) in [(1, 4, 1), (2, 4, 2), (3, 4, 3), (4, 2, few_has)] {
                history.invoke(op, op, permit("s", of));
                history.push(op, grant_slot(op, op, slot, 100));
            }
            check(&history)
        };
        assert_eq!(holders(0), Ok(()));
        assert!(holders(2).is_err());
        let mut history = History::default();
        history.invoke(1, 1, permit("s", 2));
        history.push(1, grant_slot(1, 1, 2, 100));
        assert!(check(&history).unwrap_err().how.contains("beyond"));
    }

    #[test]
    fn a_frozen_clock_excuses_it() {
        let mut history = inside(&[(1, 0, 0, 100), (2, 0, 10, 100)]);
        history.break_timing(5);
        assert_eq!(check(&history), Ok(()));
    }
}
