//! Whoever watches an election is told of leaders only, and in the order of their terms: nobody who was
//! not granted the lead by a majority under that very ballot, and no term twice or after a higher one.

use std::collections::{HashMap, HashSet};

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If somebody was told of one who never led, or of a term that is not higher than the one before.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut seated: HashSet<(u64, u64)> = HashSet::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Seated { op, ballot } => {
                seated.insert((*op, *ballot));
            }
            What::Told {
                op,
                name,
                leader,
                term,
            } => {
                let before = last.insert(*op, *term);
                let how = if !seated.contains(&(*leader, *term)) {
                    format!(
                        "op {op} was told that op {leader} leads {name} in term {term}, which no majority gave it"
                    )
                } else if before.is_some_and(|before| before >= *term) {
                    let before = before.unwrap_or_default();
                    format!("op {op} was told of term {term} of {name} after {before}")
                } else {
                    continue;
                };
                return Err(Violation {
                    invariant: "terms",
                    at_us: *at_us,
                    how,
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

    /// Ops 1 and 2 lead in terms 10 and 20; who watches is told of `told`.
    fn told(told: &[(u64, u64, u64)]) -> Result<(), Violation> {
        let mut history = History::default();
        for (op, ballot) in [(1, 10), (2, 20)] {
            history.push(ballot, What::Seated { op, ballot });
        }
        for (at_us, &(op, leader, term)) in (30..).zip(told) {
            let name = "x".to_owned();
            history.push(
                at_us,
                What::Told {
                    op,
                    name,
                    leader,
                    term,
                },
            );
        }
        check(&history)
    }

    #[test]
    fn a_candidate_that_failed_is_found() {
        assert!(told(&[(9, 3, 15)]).is_err());
        assert!(told(&[(9, 1, 20)]).is_err(), "another's term");
    }

    #[test]
    fn a_term_that_falls_or_comes_twice_is_found() {
        assert_eq!(told(&[(9, 2, 20), (9, 1, 10)]).unwrap_err().at_us, 31);
        assert!(told(&[(9, 1, 10), (9, 1, 10)]).is_err());
    }

    #[test]
    fn each_who_watches_has_an_order_of_its_own() {
        let both = [(8, 1, 10), (9, 2, 20), (8, 2, 20)];
        assert_eq!(told(&both), Ok(()));
        assert_eq!(told(&[(9, 2, 20)]), Ok(()), "one may be missed");
    }
}
