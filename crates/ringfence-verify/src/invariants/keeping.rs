//! While clocks keep what exclusion needs, a name that is to be kept from other clients after a
//! hold is kept: for the lock delay after the holder was lost, and for the rest of `hold_at_least`
//! after the holder released early.

use crate::history::{Event, History, Hold, Mode, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If another client was granted a name during that time.
pub fn check(history: &History) -> Result<(), Violation> {
    let timing_until_us = history.timing_until_us();
    let holds = history.holds();
    for Event { what, .. } in &history.events {
        let What::Kept {
            op,
            from_us,
            until_us,
        } = what
        else {
            continue;
        };
        let Some(kept) = holds.iter().find(|hold| hold.op == *op) else {
            continue;
        };
        let kept_span = *from_us..(*until_us).min(timing_until_us);
        let too_early = |hold: &&Hold<'_>| {
            let of_lock = !matches!(hold.mode, Mode::Permit { .. });
            let same_name = hold.names.iter().any(|name| kept.names.contains(name));
            let counts = hold.from_us < hold.to_us && kept_span.contains(&hold.from_us);
            hold.op != *op && of_lock && same_name && counts
        };
        if let Some(other) = holds.iter().find(too_early) {
            return Err(Violation {
                invariant: "keeping",
                at_us: other.from_us,
                how: format!(
                    "op {} was granted a name that is kept after op {op} until {until_us} µs",
                    other.op
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, permit, shared};

    /// Op 1 holds until 100, and the name is kept until 200. Op 2 is granted at `at_us`.
    fn then(wanted: (Vec<String>, Mode), at_us: u64) -> History {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        let what = What::Kept {
            op: 1,
            from_us: 100,
            until_us: 200,
        };
        history.push(100, what);
        history.held(2, wanted, 11, (at_us, 300));
        history
    }

    #[test]
    fn a_grant_within_the_kept_time_is_found() {
        assert_eq!(check(&then(exclusive("x"), 199)).unwrap_err().at_us, 199);
        assert!(check(&then(shared("x"), 100)).is_err());
    }

    #[test]
    fn a_later_grant_or_another_name_is_fine() {
        assert_eq!(check(&then(exclusive("x"), 200)), Ok(()));
        assert_eq!(check(&then(exclusive("y"), 150)), Ok(()));
        assert_eq!(check(&then(permit("x", 1), 150)), Ok(()));
    }

    #[test]
    fn a_frozen_clock_excuses_it() {
        let mut history = then(exclusive("x"), 150);
        history.break_timing(150);
        assert_eq!(check(&history), Ok(()));
    }
}
