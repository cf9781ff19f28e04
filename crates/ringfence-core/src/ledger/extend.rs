//! Extend and downgrade: only for a token that still holds, and never to a shorter lease. And
//! restore, for a token that held.

use crate::message::{Answer, Ballot, Claim, Downgrade, Extend, Mode, Request, Restore, Wake};

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

/// Restore: writes a granted holder back to a node that lost it. There is no floor check: the
/// ballot was granted before.
///
/// A promoted replica may have an older holder of the name, because it lacks that holder's release.
/// While the only node of a group is in quarantine, a restore replaces such a holder: its ballot is
/// lower. A value without a ballot, of another library, is never replaced.
pub(super) fn restore(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    op: &Restore,
) -> Answer {
    let &Restore { ballot, ttl_ms, .. } = op;
    let (claims, token) = (&request.claims[..], request.token.expose());
    let quarantined = rules.quarantine_left_ms(now).is_some();
    let outdated = |entry: &Entry, mode: Mode| {
        let seat = entry.seat().filter(|_| entry.conflicts_with(mode));
        quarantined && !entry.is_held_by(token) && seat.is_some_and(|seat| seat.ballot < ballot)
    };
    // The answer as if the outdated holders were gone. Nothing is changed yet.
    let mut checked: Vec<Entry> = entries.to_vec();
    for (entry, claim) in checked.iter_mut().zip(claims) {
        if outdated(entry, claim.mode) {
            entry.clear_holders();
        }
    }
    if let Some(held @ Answer::Held(_)) = not_held(now, &checked, claims, token) {
        return or_broken(entries, token, held);
    }
    // A late restore must not bring back a lock that its holder released or that `break` closed.
    let closed = |entry: &Entry| ballot <= entry.closed();
    if entries.iter().any(closed) {
        return or_broken(entries, token, Answer::Gone);
    }
    if ballot > now.ceiling(rules) {
        return Answer::Ahead;
    }
    for (entry, claim) in entries.iter_mut().zip(claims) {
        if outdated(entry, claim.mode) {
            entry.clear_holders();
        }
        if entry.ballot_of(claim.mode, token).is_some() {
            prolong(rules, now, entry, claim.mode, token, ballot, ttl_ms);
        } else {
            let seat = Seat {
                token: token.to_owned(),
                ballot,
                label: (*op.label).to_owned(),
                until_ms: 0,
            };
            entry.grant(rules, now, claim.mode, seat, ttl_ms);
        }
    }
    Answer::Restored
}
