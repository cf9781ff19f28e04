//! Restore: a granted holder comes back to a node that lost it.

use crate::message::{Answer, Ballot};

use super::extend::{not_held, prolong};
use super::{Entry, Moment, Rules, Seat};

pub(super) fn restore(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    token: &str,
    ballot: Ballot,
    ttl_ms: u64,
    label: &str,
) -> Answer {
    if let Some(held @ Answer::Held(_)) = not_held(now, entries, token) {
        return held;
    }
    // A late restore must not bring back what its holder released, or `break` closed.
    if entries.iter().any(|entry| ballot <= entry.closed()) {
        return Answer::Gone;
    }
    if ballot > now.ceiling(rules) {
        return Answer::Ahead;
    }
    for entry in entries {
        if entry.is_held_by(token) {
            prolong(rules, now, entry, token, ballot, ttl_ms);
        } else {
            let seat = Seat {
                token: token.to_owned(),
                ballot,
                label: label.to_owned(),
                until_ms: 0,
            };
            entry.seat_for(rules, now, seat, ttl_ms);
        }
    }
    Answer::Restored
}
