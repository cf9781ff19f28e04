//! An observer of an election learns only of leaders, in the order of their terms: a reported
//! leader was granted the lead by a majority under that ballot, and no term is reported after a
//! higher one. A term is reported again only after a vacancy: the leader lost its majority of the
//! nodes for a while, or the observer did not see it.

use std::collections::{HashMap, HashSet};

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If an observer learned of a candidate that never led, or of a term not higher than the last.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut seated: HashSet<(u64, u64)> = HashSet::new();
    // The last term that each observer was told of, and whether there was a vacancy since.
    let mut last: HashMap<u64, (u64, bool)> = HashMap::new();
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
                let before = last.insert(*op, (*term, false));
                let is_news = before
                    .is_none_or(|(before, vacant)| before < *term || before == *term && vacant);
                let how = if !seated.contains(&(*leader, *term)) {
                    format!(
                        "op {op} learned that op {leader} leads {name} in term {term}, \
                         which no majority granted"
                    )
                } else if !is_news {
                    let (before, _) = before.unwrap_or_default();
                    format!("op {op} learned of term {term} of {name} after {before}")
                } else {
                    continue;
                };
                return Err(Violation {
                    invariant: "terms",
                    at_us: *at_us,
                    how,
                });
            }
            What::Vacant { op, .. } => {
                if let Some((_, vacant)) = last.get_mut(op) {
                    *vacant = true;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ops 1 and 2 lead in terms 10 and 20; observers learn of `reports` (observer, leader, term).
    fn reported(reports: &[(u64, u64, u64)]) -> Result<(), Violation> {
        let mut history = History::default();
        for (op, ballot) in [(1, 10), (2, 20)] {
            history.push(ballot, What::Seated { op, ballot });
        }
        for (at_us, &(op, leader, term)) in (30..).zip(reports) {
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
    fn a_candidate_that_was_not_elected_is_found() {
        assert!(reported(&[(9, 3, 15)]).is_err());
        assert!(reported(&[(9, 1, 20)]).is_err(), "the term of another");
    }

    #[test]
    fn a_term_that_falls_or_repeats_is_found() {
        assert_eq!(reported(&[(9, 2, 20), (9, 1, 10)]).unwrap_err().at_us, 31);
        assert!(reported(&[(9, 1, 10), (9, 1, 10)]).is_err());
    }

    #[test]
    fn a_term_is_reported_again_only_after_a_vacancy() {
        let told = |term| What::Told {
            op: 9,
            name: "x".to_owned(),
            leader: 1,
            term,
        };
        let vacant = || What::Vacant {
            op: 9,
            name: "x".to_owned(),
        };
        for (events, is_right) in [
            (vec![told(10), vacant(), told(10)], true),
            (vec![vacant(), told(10), told(10)], false),
            (vec![told(10), vacant(), told(10), told(10)], false),
            (vec![told(20), vacant(), told(10)], false),
        ] {
            let mut history = History::default();
            for ballot in [10, 20] {
                history.push(ballot, What::Seated { op: 1, ballot });
            }
            for (at_us, event) in (30..).zip(events) {
                history.push(at_us, event);
            }
            assert_eq!(check(&history).is_ok(), is_right, "{history:?}");
        }
    }

    #[test]
    fn each_observer_has_its_own_order() {
        let both = [(8, 1, 10), (9, 2, 20), (8, 2, 20)];
        assert_eq!(reported(&both), Ok(()));
        assert_eq!(reported(&[(9, 2, 20)]), Ok(()), "one may be missed");
    }
}
