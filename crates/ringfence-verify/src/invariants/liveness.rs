//! Every wait ends: once faults have stopped and all had the time they can ask for, no call is still
//! under way.

use std::collections::BTreeMap;

use crate::history::{Event, History, What};

use super::Violation;

/// See the module. A history that was cut short, without [`What::Over`], says nothing.
///
/// # Errors
/// If a call never ended.
pub fn check(history: &History) -> Result<(), Violation> {
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
            What::Over => {
                let Some((op, since_us)) = open.first_key_value() else {
                    continue;
                };
                return Err(Violation {
                    invariant: "liveness",
                    at_us: *at_us,
                    how: format!("op {op} has been waiting since {since_us} µs"),
                });
            }
            _ => {}
        }
    }
    Ok(())
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
