//! While clocks keep what exclusion needs, at most one exclusive holder of a name is inside its
//! validity at any time.

use std::collections::HashMap;

use crate::history::{History, Hold, Mode};

use super::Violation;

/// See the module.
///
/// # Errors
/// If two exclusive holders of one name were inside their validity at once.
pub fn check(history: &History) -> Result<(), Violation> {
    let timing_until_us = history.timing_until_us();
    let mut holds = history.holds();
    holds.retain(|hold| hold.mode == Mode::Exclusive && hold.from_us < hold.to_us);
    holds.sort_by_key(|hold| hold.from_us);
    // Of all holds so far, the one that ends last: if the next does not overlap with it, it
    // overlaps with no other.
    let mut longest: HashMap<&str, &Hold<'_>> = HashMap::new();
    for hold in &holds {
        for name in hold.names {
            let last = longest.entry(name.as_str()).or_insert(hold);
            let others = last.op != hold.op && !last.is_owned_with(hold);
            if others && hold.from_us < last.to_us && hold.from_us < timing_until_us {
                return Err(Violation {
                    invariant: "exclusion",
                    at_us: hold.from_us,
                    how: format!(
                        "op {} was granted {name} while op {} relies on it until {} µs",
                        hold.op, last.op, last.to_us
                    ),
                });
            }
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
    use crate::history::made::{exclusive, permit, shared};

    #[test]
    fn two_holders_at_once_are_found() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, exclusive("x"), 11, (99, 150));
        assert_eq!(check(&history).unwrap_err().at_us, 99);
    }

    #[test]
    fn a_long_hold_is_not_forgotten_behind_a_short_one() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, exclusive("y"), 11, (10, 20));
        history.held(3, exclusive("x"), 12, (50, 60));
        assert_eq!(check(&history).unwrap_err().at_us, 50);
    }

    #[test]
    fn one_name_in_common_is_enough() {
        let mut history = History::default();
        let both = (vec!["a".to_owned(), "b".to_owned()], Mode::Exclusive);
        history.held(1, both, 10, (0, 100));
        history.held(2, exclusive("b"), 11, (50, 60));
        assert!(check(&history).is_err());
    }

    #[test]
    fn holds_of_one_owner_may_overlap_and_exclude_all_others_until_the_last_ends() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, exclusive("x"), 10, (50, 150));
        history.of_one_owner();
        assert_eq!(check(&history), Ok(()));
        history.held(3, exclusive("x"), 11, (120, 160));
        assert_eq!(check(&history).unwrap_err().at_us, 120);
    }

    #[test]
    fn consecutive_holds_other_names_and_other_kinds_are_fine() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, exclusive("x"), 11, (100, 150));
        history.held(3, exclusive("y"), 11, (50, 150));
        history.held(4, shared("z"), 11, (50, 150));
        history.held(5, shared("z"), 12, (50, 150));
        history.held(6, permit("x", 1), 12, (50, 150));
        assert_eq!(check(&history), Ok(()));
    }

    #[test]
    fn a_frozen_clock_excuses_only_what_happens_after_it() {
        let mut history = History::default();
        history.held(1, exclusive("x"), 10, (0, 100));
        history.held(2, exclusive("x"), 11, (50, 150));
        let mut excused = history.clone();
        excused.break_timing(50);
        assert_eq!(check(&excused), Ok(()));
        history.break_timing(51);
        assert!(check(&history).is_err());
    }
}
