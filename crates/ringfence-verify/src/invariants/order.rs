//! Without faults, waiters are served in order: a client that calls after another is in the wait
//! queue is not granted the name before it, unless both share it.
//!
//! Three cases are left out. A waiter for several names may be passed: it may have its turn for one
//! name while it waits for another, and then the queue of the first sees it as a waiter that does
//! not respond. Semaphores: with several free slots, the waiters whose turn it is spread over them,
//! and one round more or less decides which one is granted first. Calls of an owner, which may hold
//! the name already.

use std::collections::{HashMap, HashSet};

use crate::history::{Event, History, Mode, What};

use super::Violation;

/// Tickets are ordered by the nodes' time. A client knows that time only to within a round trip,
/// and only from the nodes that have answered it: the clocks must differ by less than this.
const MARGIN_US: u64 = 100_000;

struct QueuedCall<'a> {
    op: u64,
    mode: Mode,
    names: &'a [String],
    owned: bool,
    invoked_us: u64,
    /// When a majority had its ticket.
    queued_us: Option<u64>,
    granted_us: Option<u64>,
    /// When it was granted or ended without a grant.
    done_us: u64,
}

/// See the module.
///
/// # Errors
/// If a waiter was passed.
pub fn check(history: &History) -> Result<(), Violation> {
    if !history.is_calm() || ran_out(history) {
        return Ok(());
    }
    let calls = calls(history);
    for late in &calls {
        let Some(granted_us) = late.granted_us.filter(|_| !late.owned) else {
            continue;
        };
        let passed = calls.iter().find(|early| {
            let queued = early
                .queued_us
                .is_some_and(|at| at + MARGIN_US < late.invoked_us);
            queued && early.done_us > granted_us && early.names.len() == 1 && clash(early, late)
        });
        if let Some(early) = passed {
            return Err(Violation {
                invariant: "order",
                at_us: granted_us,
                how: format!(
                    "op {} was granted before op {}, which was in the queue when the other called",
                    late.op, early.op
                ),
            });
        }
    }
    Ok(())
}

/// Whether a holder held beyond its deadline. Its ticket stays in the queue until it releases, and
/// the other clients must treat it as dead.
fn ran_out(history: &History) -> bool {
    let mut ends = HashSet::new();
    for Event { at_us, what } in &history.events {
        if let What::Ended { op } | What::Downgraded { op } = what {
            ends.insert((*op, *at_us));
        }
    }
    let holds = history.holds();
    holds
        .iter()
        .any(|hold| !ends.contains(&(hold.op, hold.to_us)))
}

fn clash(one: &QueuedCall<'_>, other: &QueuedCall<'_>) -> bool {
    let sharing = one.mode == Mode::Shared && other.mode == Mode::Shared;
    !sharing && one.names.iter().any(|name| other.names.contains(name))
}

fn calls(history: &History) -> Vec<QueuedCall<'_>> {
    let mut calls = Vec::new();
    let mut indices: HashMap<u64, usize> = HashMap::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Invoked {
                op,
                mode,
                names,
                owner,
                ..
            } if !matches!(mode, Mode::Permit { .. }) => {
                indices.insert(*op, calls.len());
                calls.push(QueuedCall {
                    op: *op,
                    mode: *mode,
                    names,
                    owned: owner.is_some(),
                    invoked_us: *at_us,
                    queued_us: None,
                    granted_us: None,
                    done_us: u64::MAX,
                });
            }
            What::Queued { op } => {
                if let Some(&at) = indices.get(op) {
                    calls[at].queued_us = Some(*at_us);
                }
            }
            What::Granted { op, .. } => {
                if let Some(&at) = indices.get(op) {
                    calls[at].granted_us = Some(*at_us);
                    calls[at].done_us = *at_us;
                }
            }
            What::Refused { op, .. } | What::Unknown { op } => {
                if let Some(&at) = indices.get(op) {
                    calls[at].done_us = *at_us;
                }
            }
            _ => {}
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, grant, shared};

    type WantedName = fn(&str) -> (Vec<String>, Mode);

    /// Op 1 is in the queue. Op 2 calls long after it and is granted at `second_us`, op 1 at 400
    /// ms.
    fn two(modes: [WantedName; 2], second_us: u64) -> History {
        let mut history = History::default();
        history.invoke(0, 1, modes[0]("x"));
        history.push(5_000, What::Queued { op: 1 });
        history.invoke(150_000, 2, modes[1]("x"));
        history.push(400_000, grant(1, 10, 500_000));
        history.push(450_000, What::Ended { op: 1 });
        history.push(second_us, grant(2, 11, 800_000));
        history.push(second_us + 10_000, What::Ended { op: 2 });
        history.events.sort_by_key(|event| event.at_us);
        history
    }

    #[test]
    fn a_passed_waiter_is_found() {
        assert!(check(&two([exclusive, exclusive], 200_000)).is_err());
        assert!(check(&two([exclusive, shared], 200_000)).is_err());
        assert!(check(&two([shared, exclusive], 200_000)).is_err());
    }

    #[test]
    fn served_in_order_or_sharing_is_fine() {
        assert_eq!(check(&two([exclusive, exclusive], 600_000)), Ok(()));
        assert_eq!(check(&two([shared, shared], 200_000)), Ok(()));
    }

    #[test]
    fn a_second_call_of_an_owner_passes_no_waiter() {
        let mut history = two([exclusive, exclusive], 200_000);
        history.of_one_owner();
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_waiter_that_left_was_not_passed() {
        let mut history = two([exclusive, exclusive], 200_000);
        history
            .events
            .retain(|e| !matches!(e.what, What::Granted { op: 1, .. }));
        assert!(check(&history).is_err(), "it still waits");
        let why = "cancelled".to_owned();
        history.push(180_000, What::Refused { op: 1, why });
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_holder_that_outlived_its_lease_excuses_it() {
        let mut history = two([exclusive, exclusive], 200_000);
        history.events.retain(|e| e.what != What::Ended { op: 2 });
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_fault_excuses_it() {
        let mut history = two([exclusive, exclusive], 200_000);
        let what = "a node is down".to_owned();
        history.push(
            0,
            What::Fault {
                what,
                timing: false,
            },
        );
        assert_eq!(check(&history), Ok(()));
    }
}
