//! Extend: only what this token still holds, and never for a shorter time.

use crate::message::{Answer, Ballot};

use super::{Entry, Moment, Rules, Seat};

pub(super) fn extend(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    token: &str,
    ballot: Ballot,
    ttl_ms: u64,
) -> Answer {
    if let Some(refusal) = not_held(now, entries, token) {
        return refusal;
    }
    for entry in entries {
        prolong(rules, now, entry, token, ballot, ttl_ms);
    }
    Answer::Extended
}

/// The answer for a token that does not hold every claim: a holder in the way, or nobody.
pub(super) fn not_held(now: Moment, entries: &[Entry], token: &str) -> Option<Answer> {
    let mut gone = None;
    for (claim, entry) in entries.iter().enumerate() {
        if entry.is_held_by(token) {
            continue;
        }
        match entry.holder(claim, now) {
            Some(holder) => return Some(Answer::Held(holder)),
            None => gone = Some(Answer::Gone),
        }
    }
    gone
}

/// Keeps `token` in its seat, under the higher of the two ballots.
pub(super) fn prolong(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    token: &str,
    ballot: Ballot,
    ttl_ms: u64,
) {
    let seated = entry.holder_ballot();
    let ballot = if ballot <= now.ceiling(rules) {
        ballot.max(seated)
    } else {
        seated
    };
    let label = entry.seat().map(|seat| seat.label.clone());
    let seat = Seat {
        token: token.to_owned(),
        ballot,
        label: label.unwrap_or_default(),
        until_ms: 0,
    };
    entry.seat_for(rules, now, seat, ttl_ms);
}
