//! Every call ends: after the faults have stopped and every call had enough time, no call is still
//! under way.

use std::collections::BTreeMap;

use crate::history::{Event, History, What};

use super::Violation;

/// See the module. Does not judge open calls of an incomplete history: see [`not_judged`].
///
/// # Errors
/// If a call never ended.
pub fn check(history: &History) -> Result<(), Violation> {
    let (open, over_us) = open_calls(history);
    let (Some((op, since_us)), Some(at_us)) = (open.first_key_value(), over_us) else {
        return Ok(());
    };
    Err(Violation {
        invariant: "liveness",
        at_us,
        how: format!("op {op} has been waiting since {since_us} µs"),
    })
}

/// The number of open calls, if `history` is incomplete (without [`What::Over`]). These calls might
/// have ended, so [`check`] does not judge them. A report must count and print the runs for which
/// this is not `None`.
pub fn not_judged(history: &History) -> Option<usize> {
    let (open, over_us) = open_calls(history);
    over_us.is_none().then_some(open.len())
}

/// The calls that are open at the end of the run, or at the end of an incomplete history, each with
/// the time at which it began; and when the run ended.
fn open_calls(history: &History) -> (BTreeMap<u64, u64>, Option<u64>) {
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Invoked { op, .. } | What::Turned { op, .. } | What::Breaks { op, .. } => {
                open.insert(*op, *at_us);
            }
            What::Granted { op, .. }
            | What::Found { op, .. }
            | What::Broken { op, .. }
            | What::Refused { op, .. }
            | What::Unknown { op } => {
                open.remove(op);
            }
            What::Over => return (open, Some(*at_us)),
            _ => {}
        }
    }
    (open, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, grant};

    #[test]
    fn a_call_that_never_ends_is_found() {
        let mut history = History::default();
        history.invoke(3, 1, exclusive("x"));
        assert_eq!(check(&history), Ok(()), "it may still end");
        history.push(9, What::Over);
        assert!(check(&history).is_err());
    }

    #[test]
    fn open_calls_of_an_incomplete_run_are_counted_and_not_judged() {
        let mut history = History::default();
        history.invoke(3, 1, exclusive("x"));
        history.invoke(4, 2, exclusive("x"));
        history.push(5, grant(1, 1, 9));
        assert_eq!(not_judged(&history), Some(1), "op 2 is still open");
        assert_eq!(check(&history), Ok(()));
        history.push(9, What::Over);
        assert_eq!(not_judged(&history), None);
        assert!(check(&history).is_err());
    }

    #[test]
    fn a_latch_that_never_answers_is_found() {
        let mut history = History::default();
        let (op, client, latch) = (1, 1, "l".to_owned());
        let (count, party) = (2, None);
        history.push(
            3,
            What::Turned {
                op,
                client,
                latch,
                count,
                party,
            },
        );
        let mut answered = history.clone();
        let (arrived, open) = (Some(1), false);
        answered.push(5, What::Found { op, arrived, open });
        for (mut history, good) in [(history, false), (answered, true)] {
            history.push(9, What::Over);
            assert_eq!(check(&history).is_ok(), good);
        }
    }

    #[test]
    fn granted_refused_and_unknown_are_ends() {
        let ends = [
            grant(1, 1, 9),
            What::Refused {
                op: 1,
                why: "held".to_owned(),
            },
            What::Unknown { op: 1 },
        ];
        for end in ends {
            let mut history = History::default();
            history.invoke(3, 1, exclusive("x"));
            history.push(5, end);
            history.push(9, What::Over);
            assert_eq!(check(&history), Ok(()));
        }
    }
}
