//! A latch opens once: no call finds it open before enough parties have arrived, and after one call
//! found it open, every later call does. A party whose arrival was confirmed is counted from then
//! on.

use std::collections::{BTreeSet, HashMap};

use crate::history::{Event, History, What};

use super::Violation;

/// What is known of one latch.
#[derive(Default)]
struct Known<'a> {
    /// The parties that have begun to arrive.
    came: BTreeSet<&'a str>,
    /// The parties whose arrival was confirmed.
    arrived: BTreeSet<&'a str>,
    /// The highest count for which a call found it open.
    open_for: u64,
}

/// A call that is under way, and what was known when it began.
struct Call<'a> {
    latch: &'a str,
    count: u64,
    party: Option<&'a str>,
    /// How many must be counted at least: the parties confirmed by then, and the party of this
    /// call.
    arrived_least: u64,
    open_before: bool,
}

/// See the module.
///
/// # Errors
/// If a latch was found open too early, shut after it was open, or without a party that had
/// arrived.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut latches: HashMap<&str, Known<'_>> = HashMap::new();
    let mut calls: HashMap<u64, Call<'_>> = HashMap::new();
    for Event { at_us, what } in &history.events {
        match what {
            What::Turned {
                op,
                latch,
                count,
                party,
                ..
            } => {
                let known = latches.entry(latch).or_default();
                known.came.extend(party.as_deref());
                let mut least = known.arrived.clone();
                least.extend(party.as_deref());
                let call = Call {
                    latch,
                    count: *count,
                    party: party.as_deref(),
                    arrived_least: least.len() as u64,
                    open_before: known.open_for >= *count,
                };
                calls.insert(*op, call);
            }
            What::Found { op, arrived, open } => {
                let Some(call) = calls.remove(op) else {
                    continue;
                };
                let known = latches.entry(call.latch).or_default();
                if let Some(how) = known.denies(&call, *arrived, *open) {
                    return Err(Violation {
                        invariant: "latches",
                        at_us: *at_us,
                        how: format!("op {op} found {} {how}", call.latch),
                    });
                }
                known.arrived.extend(call.party);
                if *open {
                    known.open_for = known.open_for.max(call.count);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl Known<'_> {
    /// What is wrong with the result of `call`, if anything is.
    fn denies(&self, call: &Call<'_>, arrived: Option<u64>, open: bool) -> Option<String> {
        let (came, count) = (self.came.len() as u64, call.count);
        if open && came < count {
            return Some(format!("open for {count} when {came} had begun to arrive"));
        }
        if !open && call.open_before {
            return Some(format!("shut for {count} after it was open"));
        }
        let arrived = arrived?;
        if arrived > came {
            return Some(format!("with {arrived} when {came} had begun to arrive"));
        }
        if arrived < call.arrived_least {
            let least = call.arrived_least;
            return Some(format!("with {arrived} where {least} have arrived"));
        }
        (open != (arrived >= count)).then(|| format!("with {arrived} of {count}, and open: {open}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One call for a latch of two: from, to, the party, and what it found.
    type FoundCall<'a> = (u64, u64, Option<&'a str>, Option<u64>, bool);

    fn found(calls: &[FoundCall<'_>]) -> Result<(), Violation> {
        let mut history = History::default();
        for (op, &(from_us, to_us, party, arrived, open)) in (1..).zip(calls) {
            let what = What::Turned {
                op,
                client: op,
                latch: "l".to_owned(),
                count: 2,
                party: party.map(str::to_owned),
            };
            history.push(from_us, what);
            history.push(to_us, What::Found { op, arrived, open });
        }
        history.events.sort_by_key(|event| event.at_us);
        check(&history)
    }

    const A: FoundCall<'static> = (0, 10, Some("a"), Some(1), false);
    const B: FoundCall<'static> = (20, 30, Some("b"), Some(2), true);

    #[test]
    fn a_latch_that_opens_too_early_is_found() {
        assert!(found(&[A, (20, 30, None, None, true)]).is_err());
        let again = (20, 30, Some("a"), Some(2), true);
        assert!(found(&[A, again]).is_err(), "the same party counts once");
    }

    #[test]
    fn a_latch_that_shuts_again_is_found() {
        assert!(found(&[A, B, (31, 40, None, Some(1), false)]).is_err());
        let meanwhile = (25, 40, None, Some(1), false);
        assert_eq!(found(&[A, B, meanwhile]), Ok(()), "it began before");
    }

    #[test]
    fn an_arrived_party_that_is_not_counted_is_found() {
        assert!(found(&[A, (20, 30, Some("b"), Some(1), false)]).is_err());
        assert!(found(&[A, (20, 30, None, Some(0), false)]).is_err());
        let meanwhile = (5, 30, Some("b"), Some(1), false);
        assert_eq!(found(&[A, meanwhile]), Ok(()), "it began before");
    }

    #[test]
    fn a_wrong_count_is_found() {
        assert!(found(&[A, (20, 30, None, Some(3), true)]).is_err());
        assert!(found(&[A, (20, 30, Some("b"), Some(2), false)]).is_err());
    }

    #[test]
    fn a_latch_that_opens_with_the_second_party_is_fine() {
        let waits = (5, 35, None, None, true);
        let late = (40, 50, Some("c"), Some(3), true);
        assert_eq!(found(&[A, waits, B, late]), Ok(()));
    }
}
