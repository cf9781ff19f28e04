//! Acquire: all claims, or none.

use crate::message::{Answer, Ballot, Holder};

use super::{Entry, Moment, Rules, Seat};

/// What one claim says to an acquire, in the order in which a refusal counts.
enum Ruling {
    /// The claim is, or may be, this token's.
    Free,
    Ahead,
    Stale,
    Held(Holder),
}

pub(super) fn acquire(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    token: &str,
    ballot: Ballot,
    ttl_ms: u64,
    label: &str,
) -> Answer {
    let mut refusal = None;
    for (claim, entry) in entries.iter().enumerate() {
        match (rule(rules, now, entry, claim, token, ballot), &refusal) {
            (Ruling::Held(holder), _) => return Answer::Held(holder),
            (Ruling::Stale, _) => refusal = Some(Answer::Stale),
            (Ruling::Ahead, None) => refusal = Some(Answer::Ahead),
            (Ruling::Ahead | Ruling::Free, _) => {}
        }
    }
    if let Some(refusal) = refusal {
        return refusal;
    }
    for entry in entries {
        let seat = Seat {
            token: token.to_owned(),
            ballot,
            label: label.to_owned(),
        };
        entry.seat_for(rules, now, seat, ttl_ms);
    }
    Answer::Granted
}

fn rule(
    rules: &Rules,
    now: Moment,
    entry: &Entry,
    claim: usize,
    token: &str,
    ballot: Ballot,
) -> Ruling {
    if entry.is_held_by(token) {
        let seated = entry.holder_ballot();
        if ballot == seated {
            return Ruling::Free;
        }
        if ballot < seated {
            return Ruling::Stale;
        }
    } else if let Some(holder) = entry.holder(claim, now) {
        return Ruling::Held(holder);
    }
    if ballot <= entry.effective_fence(rules, now) {
        Ruling::Stale
    } else if ballot > now.ceiling(rules) {
        Ruling::Ahead
    } else {
        Ruling::Free
    }
}
