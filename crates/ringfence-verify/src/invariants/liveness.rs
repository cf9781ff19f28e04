//! Every wait ends: once faults have stopped and all had the time they can ask for, no call is still
//! under way.

use std::collections::BTreeMap;

use crate::history::{Event, History, What};

use super::Violation;

/// See the module. Waits of a history that was cut short are not judged here: see [`not_judged`].
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

/// If `history` was cut short, without [`What::Over`]: how many calls were still open. Nobody can tell
/// whether these would have ended, so [`check`] says nothing about them. Whatever reports runs must
/// count and print the runs for which this is not `None`.
pub fn not_judged(history: &History) -> Option<usize> {
    let (open, over_us) = open_calls(history);
    over_us.is_none().then_some(open.len())
}

/// The calls that are open when the run is over, or where the history was cut short, with the time at
/// which each began; and when the run was over.
fn open_calls(history: &History) -> (BTreeMap<u64, u64>, Option<u64>) {
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Invoked { op, .. } | What::Turned { op, .. } => {
                open.insert(*op, *at_us);
            }
            What::Granted { op, .. }
            | What::Found { op, .. }
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
        assert_eq!(check(&history), Ok(()), "it may end yet");
        history.push(9, What::Over);
        assert!(check(&history).is_err());
    }

    #[test]
    fn a_run_that_was_cut_short_is_not_judged_and_says_so() {
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
