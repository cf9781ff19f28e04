//! Linearizability: checks whether the grants of one name are possible for one lock. There must be
//! an order of all grants and ends of holds that agrees with real time, in which fences strictly
//! rise and no client is granted the lock while another has it.
//!
//! A hold ends at some time after its holder stopped relying on it. A call with an unknown result
//! may have happened or not. Each name is checked separately, in groups of grants by fence that are
//! small enough for the search; the invariants check whole histories.

use std::collections::BTreeMap;
use std::rc::Rc;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use crate::history::{Event, History, Hold, Mode, What};
use crate::invariants::Violation;

/// How many grants are checked together.
const GROUP: usize = 24;
/// How many calls with an unknown result are added to each group.
const UNKNOWN_MAX: usize = 3;

/// The number of groups that were checked, and the violations.
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
        // Calls after the clocks broke get higher fences than all grants before.
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

/// Groups that are small enough for the search. Each begins with the last grant of the group
/// before.
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
            "no order of ops {} on {name} is possible for one lock",
            ops.join(", ")
        ),
    }
}

/// The calls for `name` with an unknown result: `(invoked, op)`.
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

/// One event of the lock. At equal times, beginnings sort before ends: both orders are possible
/// then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LockEvent {
    Ask(u64),
    /// The holder stops relying on the lock. From here on it may be free.
    Leave(u64),
    Have(u64, u64),
}

fn is_one_lock(group: &[Hold<'_>], unknown: &[(u64, u64)], exclusive: bool) -> bool {
    let last_us = group.iter().map(|g| g.granted_us).max().unwrap_or(0);
    let first_us = group.iter().map(|g| g.invoked_us).min().unwrap_or(0);
    let mut steps = Vec::new();
    for grant in group {
        let fence = grant.fence.unwrap_or_default();
        steps.push((grant.invoked_us, LockEvent::Ask(grant.op)));
        steps.push((grant.granted_us, LockEvent::Have(grant.op, fence)));
        if exclusive {
            // A hold that was broken may have ended before its holder learned of the grant.
            let left_us = grant.to_us.max(grant.invoked_us);
            steps.push((left_us, LockEvent::Leave(grant.op)));
        }
    }
    let around = unknown
        .iter()
        .filter(|(at, _)| (first_us..last_us).contains(at));
    steps.extend(
        around
            .take(UNKNOWN_MAX)
            .map(|(at, op)| (*at, LockEvent::Ask(*op))),
    );
    steps.sort();

    let fences = group.iter().filter_map(|grant| grant.fence).collect();
    let mut tester = LinearizabilityTester::new(LockSpec {
        fences,
        granted: 0,
        holder: None,
        exclusive,
    });
    let mut left = Vec::new();
    for (_, step) in steps {
        let result = match step {
            LockEvent::Ask(op) => tester.on_invoke((op, false), LockCall::Acquire(op)),
            LockEvent::Have(op, fence) => tester.on_return((op, false), LockReturn::Granted(fence)),
            LockEvent::Leave(op) => {
                left.push(op);
                tester.on_invoke((op, true), LockCall::End(op))
            }
        };
        if result.is_err() {
            return false;
        }
    }
    for op in left {
        if tester.on_return((op, true), LockReturn::Ended).is_err() {
            return false;
        }
    }
    tester.is_consistent()
}

/// The specification of one lock.
#[derive(Debug, Clone)]
struct LockSpec {
    /// The fences of the group, in order. Fences must rise, so the next grant can only have the
    /// next fence. This removes all other branches from the search.
    fences: Rc<[u64]>,
    granted: usize,
    holder: Option<u64>,
    /// Whether clocks keep what exclusion needs. If not, only the fences are checked.
    exclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockCall {
    Acquire(u64),
    End(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockReturn {
    Granted(u64),
    Ended,
    Nothing,
}

impl SequentialSpec for LockSpec {
    type Op = LockCall;
    type Ret = LockReturn;

    /// Called only for calls with an unknown result. If such a call was granted, no client knows
    /// its fence.
    fn invoke(&mut self, _: &LockCall) -> LockReturn {
        LockReturn::Nothing
    }

    fn is_valid_step(&mut self, act: &LockCall, returned: &LockReturn) -> bool {
        match (*act, *returned) {
            (LockCall::Acquire(op), LockReturn::Granted(fence)) => {
                let before = self.granted.checked_sub(1).map(|at| self.fences[at]);
                let rises = before.is_none_or(|before| before < fence);
                let is_next = self.fences.get(self.granted) == Some(&fence);
                let is_free = !self.exclusive || self.holder.is_none();
                self.granted += 1;
                self.holder = Some(op);
                rises && is_next && is_free
            }
            (LockCall::End(op), LockReturn::Ended) => self.holder.take() == Some(op),
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
    fn consecutive_holds_are_one_lock() {
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
        assert!(is_good(&excused), "then only the fences count");
        history.break_timing(100);
        history.held(3, exclusive("x"), 12, (110, 140));
        assert!(!is_good(&history), "a later fault excuses nothing");
    }

    #[test]
    fn a_fence_from_before_the_clocks_broke_is_not_repeated() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.held(2, exclusive("x"), 10, (90, 95));
        history.break_timing(60);
        assert!(!is_good(&history));
    }

    #[test]
    fn a_repeated_fence_is_found_with_broken_clocks_too() {
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
        // Op 2 called before op 1 was granted, and its grant was over when its client learned of
        // it.
        let mut overlapping = History::default();
        overlapping.invoke(0, 2, exclusive("x"));
        overlapping.held(1, exclusive("x"), 10, (20, 50));
        overlapping.push(60, grant(2, 9, 60));
        overlapping.break_timing(0);
        assert!(is_good(&overlapping));
    }

    #[test]
    fn a_late_reply_to_an_early_grant_is_excused_by_broken_clocks() {
        let mut history = History::default();
        history.invoke(0, 2, exclusive("x"));
        history.held(1, exclusive("x"), 10, (20, 50));
        history.push(60, grant(2, 9, 60));
        history.break_timing(55);
        assert!(is_good(&history));
    }

    #[test]
    fn a_call_with_an_unknown_result_may_have_happened_or_not() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 50));
        history.invoke(10, 3, exclusive("x"));
        history.push(40, What::Unknown { op: 3 });
        history.held(2, exclusive("x"), 12, (60, 90));
        assert!(is_good(&history));
        // An unknown call does not excuse a repeated fence.
        history.held(4, exclusive("x"), 12, (95, 99));
        assert!(!is_good(&history));
    }

    #[test]
    fn each_slot_is_a_lock() {
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
