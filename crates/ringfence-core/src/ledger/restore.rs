//! Restore: writes a granted holder back to a node that lost it. There is no floor check: the
//! ballot was granted before.
//!
//! A promoted replica may have an older holder of the name, because it lacks that holder's release.
//! While the only node of a group is in quarantine, a restore replaces such a holder: its ballot is
//! lower. A value without a ballot, of another library, is never replaced.

use crate::message::{Answer, Mode, Request, Restore};

use super::breaking::or_broken;
use super::extend::{not_held, prolong};
use super::{Entry, Moment, Rules, Seat};

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
