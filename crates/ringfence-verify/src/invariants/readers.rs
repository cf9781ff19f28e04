//! While clocks keep what exclusion needs, no client shares a name that another holds exclusively.

use std::collections::HashMap;

use crate::history::{History, Hold, Mode};

use super::Violation;

/// See the module.
///
/// # Errors
/// If a reader and a writer of one name were inside their validity at once.
pub fn check(history: &History) -> Result<(), Violation> {
    let timing_until_us = history.timing_until_us();
    let mut holds = history.holds();
    let of_locks = |hold: &Hold<'_>| !matches!(hold.mode, Mode::Permit { .. });
    holds.retain(|hold| of_locks(hold) && hold.from_us < hold.to_us);
    holds.sort_by_key(|hold| hold.from_us);
    // The hold that ends last: of all readers so far, and of all writers.
    let mut longest: HashMap<(&str, bool), &Hold<'_>> = HashMap::new();
    for hold in &holds {
        let shares = hold.mode == Mode::Shared;
        for name in hold.names {
            if let Some(other) = longest.get(&(name.as_str(), !shares))
                && other.op != hold.op
                && hold.from_us < other.to_us
                && hold.from_us < timing_until_us
            {
                let (granted, holding) = match shares {
                    true => ("reader", "writer"),
                    false => ("writer", "reader"),
                };
                return Err(Violation {
                    invariant: "readers",
                    at_us: hold.from_us,
                    how: format!(
                        "{granted} op {} got {name} while {holding} op {} relies on it until {} µs",
                        hold.op, other.op, other.to_us
                    ),
                });
            }
            let last = longest.entry((name.as_str(), shares)).or_insert(hold);
            if hold.to_us > last.to_us {
                *last = hold;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::What;
    use crate::history::made::{exclusive, grant, shared};

    #[test]
    fn a_reader_beside_a_writer_is_found() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, shared("x"), 11, (50, 60));
        assert!(check(&history).is_err());
    }

    #[test]
    fn a_writer_beside_the_longest_of_many_readers_is_found() {
        let mut history = History::default();
        history.held(1, shared("x"), 10, (0, 100));
        history.held(2, shared("x"), 11, (10, 20));
        history.held(3, exclusive("x"), 12, (90, 95));
        assert_eq!(check(&history).unwrap_err().at_us, 90);
    }

    #[test]
    fn overlapping_readers_and_then_a_writer_are_fine() {
        let mut history = History::default();
        history.held(1, shared("x"), 10, (0, 100));
        history.held(2, shared("x"), 9, (50, 120));
        history.held(3, exclusive("x"), 12, (120, 130));
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_downgrade_admits_readers_from_then_on() {
        let downgraded_at = |at_us: u64| {
            let mut history = History::default();
            history.invoke(0, 1, exclusive("x"));
            history.push(0, grant(1, 10, 100));
            history.push(at_us, What::Downgraded { op: 1 });
            history.held(2, shared("x"), 11, (50, 60));
            check(&history)
        };
        assert_eq!(downgraded_at(50), Ok(()));
        assert!(downgraded_at(51).is_err());
    }

    #[test]
    fn a_frozen_clock_excuses_it() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, shared("x"), 11, (50, 60));
        history.break_timing(40);
        assert_eq!(check(&history), Ok(()));
    }
}
