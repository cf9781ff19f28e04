//! Extend and downgrade: only for a token that still holds, and never to a shorter lease.

use crate::message::{Answer, Ballot, Claim, Downgrade, Extend, Mode, Request, Wake};

use super::breaking::or_broken;
use super::{Entry, Moment, Rules, Seat};

/// Extends the lease of all claims or of none. If the downgrade of a lock was lost, this also makes
/// up for it: an exclusive holder that extends a shared claim becomes a shared holder.
pub(super) fn extend(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    op: &Extend,
) -> Answer {
    let (claims, token) = (&request.claims[..], request.token.expose());
    let ended = |entry: &Entry| entry.is_in_delay(now, token, op.delay_ms);
    if entries.iter().any(ended) {
        return or_broken(entries, token, Answer::Gone);
    }
    match not_held(now, entries, claims, token) {
        // A reader that finds another holder has lost its share.
        Some(Answer::Held(holder)) if claims[holder.claim].mode == Mode::Shared => {
            return or_broken(entries, token, Answer::Gone);
        }
        Some(refusal) => return or_broken(entries, token, refusal),
        None => {}
    }
    for (entry, claim) in entries.iter_mut().zip(claims) {
        prolong(rules, now, entry, claim.mode, token, op.ballot, op.ttl_ms);
    }
    Answer::Extended
}

/// Changes exclusive claims to shared ones, whatever mode the request names.
pub(super) fn downgrade(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    op: &Downgrade,
    wakes: &mut Vec<Wake>,
) -> Answer {
    let token = request.token.expose();
    let claims: Vec<Claim> = request.claims.iter().map(Claim::shared).collect();
    if let Some(refusal) = not_held(now, entries, &claims, token) {
        return or_broken(entries, token, refusal);
    }
    for entry in entries {
        let was_alone = entry.is_held_by(token);
        prolong(rules, now, entry, Mode::Shared, token, op.ballot, op.ttl_ms);
        if was_alone {
            wakes.extend(entry.queue.wakes(rules, None, Mode::Shared));
        }
    }
    super::release::dedup_wakes(wakes);
    Answer::Downgraded
}

/// The answer for a token that does not hold every claim: `Held` or `Gone`. `None` if it does.
pub(super) fn not_held(
    now: Moment,
    entries: &[Entry],
    claims: &[Claim],
    token: &str,
) -> Option<Answer> {
    let mut gone = None;
    for (at, (entry, claim)) in entries.iter().zip(claims).enumerate() {
        if entry.ballot_of(claim.mode, token).is_some() {
            continue;
        }
        match entry.holder(at, now) {
            Some(holder) if entry.conflicts_with(claim.mode) => return Some(Answer::Held(holder)),
            _ => gone = Some(Answer::Gone),
        }
    }
    gone
}

/// Extends the lease of `token`, under the higher of the two ballots.
pub(super) fn prolong(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    mode: Mode,
    token: &str,
    ballot: Ballot,
    ttl_ms: u64,
) {
    let seated = entry.ballot_of(mode, token).unwrap_or_default();
    let ballot = if ballot <= now.ceiling(rules) {
        ballot.max(seated)
    } else {
        seated
    };
    let seat = match entry.reader(token) {
        Some(reader) if mode == Mode::Shared => Some(reader),
        _ => entry.seat(),
    };
    let seat = Seat {
        token: token.to_owned(),
        ballot,
        label: seat.map(|seat| seat.label.clone()).unwrap_or_default(),
        until_ms: 0,
    };
    entry.grant(rules, now, mode, seat, ttl_ms);
}
