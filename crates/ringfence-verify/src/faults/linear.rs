//! Whether the grants of one name are those of one lock that is passed from hand to hand: there is an
//! order of all grants and ends of holds that agrees with real time, in which fences strictly rise and
//! nobody is granted what another has.
//!
//! A hold ends some time after its holder ceased to count on it. A call of which nobody knows the
//! outcome may have happened or not. Names are judged apart, and so many grants at a time, in the order
//! of their fences, as the search can bear; the invariants look at whole histories.

use std::collections::BTreeMap;
use std::rc::Rc;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use crate::history::{Event, History, Hold, Mode, What};
use crate::invariants::Violation;

/// How many grants are looked at together.
const GROUP: usize = 24;
/// How many calls without a known outcome are looked at with them.
const UNKNOWN_MAX: usize = 3;

/// What was found, and how many groups were looked at.
pub(super) fn check(history: &History) -> (usize, Vec<Violation>) {
    let mut scopes: BTreeMap<(&str, Option<u32>), Vec<Hold<'_>>> = BTreeMap::new();
    for hold in history.holds() {
        if hold.mode == Mode::Shared || hold.fence.is_none() {
            continue;
        }
        for name in hold.names {
            let scope = (name.as_str(), hold.slot);
            scopes.entry(scope).or_default().push(hold.clone());
        }
    }
    let timing_until_us = history.timing_until_us();
    let (mut groups, mut violations) = (0, Vec::new());
    for ((name, _), mut grants) in scopes {
        grants.sort_by_key(by_fence);
        let unknown = unknown(history, name);
        let (in_time, mut later): (Vec<_>, Vec<_>) = grants
            .into_iter()
            .partition(|grant| grant.granted_us < timing_until_us);
        // What is asked for after clocks went wrong has higher fences than what was granted before.
        if !later.is_empty() {
            later.extend(in_time.last().cloned());
            later.sort_by_key(by_fence);
        }
        for (grants, exclusive) in [(in_time, true), (later, false)] {
            for group in grouped(&grants) {
                groups += 1;
                if !is_one_lock(group, &unknown, exclusive) {
                    violations.push(violation(name, group));
                }
            }
        }
    }
    (groups, violations)
}

fn by_fence(grant: &Hold<'_>) -> (Option<u64>, u64) {
    (grant.fence, grant.granted_us)
}

/// As many at a time as the search can bear, each group beginning with the last of the one before.
fn grouped<'a, 'h>(mut grants: &'a [Hold<'h>]) -> Vec<&'a [Hold<'h>]> {
    let mut groups = Vec::new();
    while grants.len() > GROUP {
        groups.push(&grants[..GROUP]);
        grants = &grants[GROUP - 1..];
    }
    if !grants.is_empty() {
        groups.push(grants);
    }
    groups
}

fn violation(name: &str, group: &[Hold<'_>]) -> Violation {
    let ops: Vec<String> = group.iter().map(|grant| grant.op.to_string()).collect();
    Violation {
        invariant: "linearizability",
        at_us: group.iter().map(|g| g.granted_us).min().unwrap_or(0),
        how: format!(
            "no order of ops {} on {name} is that of one lock",
            ops.join(", ")
        ),
    }
}

/// The calls for `name` of which nobody knows the outcome: `(invoked, op)`.
fn unknown(history: &History, name: &str) -> Vec<(u64, u64)> {
    let mut asked = BTreeMap::new();
    let mut unknown = Vec::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Invoked { op, names, .. } if names.iter().any(|other| other == name) => {
                asked.insert(*op, *at_us);
            }
            What::Unknown { op } => unknown.extend(asked.get(op).map(|at| (*at, *op))),
            _ => {}
        }
    }
    unknown
}

/// What happens to the lock. At one moment, what begins comes before what is done: the two may have
/// been in either order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Ask(u64),
    /// The holder ceases to count on it. From here on it may be free.
    Leave(u64),
    Have(u64, u64),
}

fn is_one_lock(group: &[Hold<'_>], unknown: &[(u64, u64)], exclusive: bool) -> bool {
    let last_us = group.iter().map(|g| g.granted_us).max().unwrap_or(0);
    let first_us = group.iter().map(|g| g.invoked_us).min().unwrap_or(0);
    let mut steps = Vec::new();
    for grant in group {
        let fence = grant.fence.unwrap_or_default();
        steps.push((grant.invoked_us, Step::Ask(grant.op)));
        steps.push((grant.granted_us, Step::Have(grant.op, fence)));
        if exclusive {
            steps.push((grant.to_us.max(grant.from_us), Step::Leave(grant.op)));
        }
    }
    let around = unknown
        .iter()
        .filter(|(at, _)| (first_us..last_us).contains(at));
    steps.extend(
        around
            .take(UNKNOWN_MAX)
            .map(|(at, op)| (*at, Step::Ask(*op))),
    );
    steps.sort();

    let fences = group.iter().filter_map(|grant| grant.fence).collect();
    let mut tester = LinearizabilityTester::new(Lock {
        fences,
        granted: 0,
        holder: None,
        exclusive,
    });
    let mut left = Vec::new();
    for (_, step) in steps {
        let told = match step {
            Step::Ask(op) => tester.on_invoke((op, false), Act::Acquire(op)),
            Step::Have(op, fence) => tester.on_return((op, false), Told::Granted(fence)),
            Step::Leave(op) => {
                left.push(op);
                tester.on_invoke((op, true), Act::End(op))
            }
        };
        if told.is_err() {
            return false;
        }
    }
    for op in left {
        if tester.on_return((op, true), Told::Ended).is_err() {
            return false;
        }
    }
    tester.is_consistent()
}

/// One lock, as it should be.
#[derive(Debug, Clone)]
struct Lock {
    /// The fences of all grants that are looked at, in order: since they must rise, the next grant
    /// can only be that of the next fence. It saves the search every other way.
    fences: Rc<[u64]>,
    granted: usize,
    holder: Option<u64>,
    /// Whether clocks are what they should be: if not, only the fences count.
    exclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Acquire(u64),
    End(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Granted(u64),
    Ended,
    Nothing,
}

impl SequentialSpec for Lock {
    type Op = Act;
    type Ret = Told;

    /// Only for calls of which nobody knows the outcome: if they were granted anything, nobody
    /// learnt the fence, and it is gone.
    fn invoke(&mut self, _: &Act) -> Told {
        Told::Nothing
    }

    fn is_valid_step(&mut self, act: &Act, told: &Told) -> bool {
        match (*act, *told) {
            (Act::Acquire(op), Told::Granted(fence)) => {
                let before = self.granted.checked_sub(1).map(|at| self.fences[at]);
                let rises = before.is_none_or(|before| before < fence);
                let is_next = self.fences.get(self.granted) == Some(&fence);
                let is_free = !self.exclusive || self.holder.is_none();
                self.granted += 1;
                self.holder = Some(op);
                rises && is_next && is_free
            }
            (Act::End(op), Told::Ended) => self.holder.take() == Some(op),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, grant, grant_slot, permit};

    fn is_good(history: &History) -> bool {
        check(history).1.is_empty()
    }

    #[test]
    fn one_after_the_other_is_one_lock() {
        let mut history = History::default();
        for op in 1..100 {
            history.held(op, exclusive("x"), 10 + op, (op * 100, op * 100 + 100));
        }
        let (groups, violations) = check(&history);
        assert_eq!((groups, violations), (5, Vec::new()));
    }

    #[test]
    fn two_overlapping_holders_are_found() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, exclusive("x"), 11, (99, 150));
        assert!(!is_good(&history));
        let mut excused = history.clone();
        excused.break_timing(50);
        assert!(is_good(&excused), "then fences alone count");
        history.break_timing(100);
        history.held(3, exclusive("x"), 12, (110, 140));
        assert!(!is_good(&history), "later ones excuse nothing");
    }

    #[test]
    fn a_fence_from_before_clocks_went_wrong_is_not_given_again() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("x"), 10, (90, 95));
        history.break_timing(60);
        assert!(!is_good(&history));
    }

    #[test]
    fn a_repeated_fence_is_found_whatever_clocks_do() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("x"), 10, (60, 90));
        history.break_timing(0);
        assert!(!is_good(&history));
    }

    #[test]
    fn a_fence_that_falls_is_found_where_the_calls_do_not_overlap() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("x"), 9, (60, 90));
        assert!(!is_good(&history));
        // Asked before the other was granted, and long over when its client learnt of it.
        let mut overlapping = History::default();
        overlapping.invoke(0, 2, exclusive("x"));
        overlapping.held(1, exclusive("x"), 10, (20, 50));
        overlapping.push(60, grant(2, 9, 60));
        overlapping.break_timing(0);
        assert!(is_good(&overlapping));
    }

    #[test]
    fn who_learns_late_of_an_early_grant_is_excused_by_clocks() {
        let mut history = History::default();
        history.invoke(0, 2, exclusive("x"));
        history.held(1, exclusive("x"), 10, (20, 50));
        history.push(60, grant(2, 9, 60));
        history.break_timing(55);
        assert!(is_good(&history));
    }

    #[test]
    fn a_call_of_unknown_outcome_may_have_happened_or_not() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.invoke(10, 3, exclusive("x"));
        history.push(40, What::Unknown { op: 3 });
        history.held(2, exclusive("x"), 12, (60, 90));
        assert!(is_good(&history));
        // It excuses nothing.
        history.held(4, exclusive("x"), 12, (95, 99));
        assert!(!is_good(&history));
    }

    #[test]
    fn slots_are_locks_of_their_own() {
        let mut history = History::default();
        for (op, slot) in [(1, 0), (2, 1)] {
            history.invoke(0, op, permit("s", 2));
            history.push(op, grant_slot(op, 10, slot, 100));
        }
        assert!(is_good(&history));
        history.invoke(5, 3, permit("s", 2));
        history.push(50, grant_slot(3, 11, 1, 120));
        assert!(!is_good(&history));
    }
}
