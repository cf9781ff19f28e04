//! While nothing goes wrong, those who wait are served in order: nobody who asks after another stood in
//! line already is granted a name before it, unless both share it.
//!
//! Whoever waits for several names may be passed where it could come and waits behind another
//! elsewhere: to the line it looks like one that does not come. Semaphores are left out: with several
//! slots free at once, those whose turn it is spread over them, and a round more or less decides who is
//! told first. So are those who come for an owner: it may hold the name already.

use std::collections::{HashMap, HashSet};

use crate::history::{Event, History, Mode, What};

use super::Violation;

/// Places in line are by the nodes' time, which a client knows only to within a round trip, and as that
/// of those nodes that it has heard: their clocks must be closer than this.
const MARGIN_US: u64 = 100_000;

struct Call<'a> {
    op: u64,
    mode: Mode,
    names: &'a [String],
    owned: bool,
    invoked_us: u64,
    /// Since when a majority knows that it waits.
    queued_us: Option<u64>,
    granted_us: Option<u64>,
    /// When it was granted or gave up.
    done_us: u64,
}

/// See the module.
///
/// # Errors
/// If somebody was passed.
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
                    "op {} was granted before op {}, which stood in line when it came",
                    late.op, early.op
                ),
            });
        }
    }
    Ok(())
}

/// Whether somebody held on beyond its deadline. Its place stays in line until it lets go, and to the
/// others it is as good as dead.
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

fn clash(one: &Call<'_>, other: &Call<'_>) -> bool {
    let sharing = one.mode == Mode::Shared && other.mode == Mode::Shared;
    !sharing && one.names.iter().any(|name| other.names.contains(name))
}

fn calls(history: &History) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Invoked {
                op,
                mode,
                names,
                owner,
                ..
            } if !matches!(mode, Mode::Permit { .. }) => {
                places.insert(*op, calls.len());
                calls.push(Call {
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
                if let Some(&at) = places.get(op) {
                    calls[at].queued_us = Some(*at_us);
                }
            }
            What::Granted { op, .. } => {
                if let Some(&at) = places.get(op) {
                    calls[at].granted_us = Some(*at_us);
                    calls[at].done_us = *at_us;
                }
            }
            What::Refused { op, .. } | What::Unknown { op } => {
                if let Some(&at) = places.get(op) {
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

    type Wanted = fn(&str) -> (Vec<String>, Mode);

    /// Op 1 stands in line; op 2 comes long after it and is granted at `second_us`, op 1 at 400 ms.
    fn two(modes: [Wanted; 2], second_us: u64) -> History {
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
    fn somebody_who_is_passed_is_found() {
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
    fn an_owner_that_comes_again_passes_nobody() {
        let mut history = two([exclusive, exclusive], 200_000);
        history.of_one_owner();
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn whoever_gave_up_was_not_passed() {
        let mut history = two([exclusive, exclusive], 200_000);
        history
            .events
            .retain(|e| !matches!(e.what, What::Granted { op: 1, .. }));
        assert!(check(&history).is_err(), "it waits still");
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
