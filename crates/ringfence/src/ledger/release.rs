//! Release: a holder is done, or an attempt is withdrawn.

use crate::message::{Answer, Ballot, Place, ReleaseKind, Wake};
use crate::token::tombstone;

use super::extend::not_held;
use super::{Entry, Moment, PlainKey, Rules, Seat};

/// Who leaves, and how.
pub(super) struct Leaving<'a> {
    pub(super) token: &'a str,
    pub(super) ballot: Ballot,
    pub(super) kind: ReleaseKind,
    pub(super) fate_unknown: bool,
    pub(super) place: Option<&'a Place>,
    pub(super) stays: bool,
    pub(super) keep_ms: Option<u64>,
}

pub(super) fn release(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    leaving: &Leaving<'_>,
    wakes: &mut Vec<Wake>,
) -> Answer {
    // A late undo of an earlier attempt must not delete the key of a later one.
    if entries
        .iter()
        .any(|entry| entry.is_held_by(leaving.token) && entry.holder_ballot() > leaving.ballot)
    {
        return Answer::Newer;
    }
    let answer = not_held(now, entries, leaving.token).unwrap_or(Answer::Released);
    for entry in entries {
        release_one(rules, now, entry, leaving, wakes);
    }
    tidy(wakes);
    answer
}

pub(super) fn release_one(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    leaving: &Leaving<'_>,
    wakes: &mut Vec<Wake>,
) {
    let held = entry.is_held_by(leaving.token);
    let was_first = match leaving.place {
        Some(place) if !leaving.stays => entry.line.leave(place),
        _ => false,
    };
    let closes = leaving.kind == ReleaseKind::Final;
    // Retiring always would let pollers starve everyone else, so an absent key alone changes
    // nothing: the fence rises only against an acquire that may still be on its way.
    if held || closes || leaving.fate_unknown {
        let seat = if held {
            bury(now, entry, leaving)
        } else {
            entry.seat().cloned()
        };
        let mut closed = entry.closed();
        if closes && leaving.ballot <= now.ceiling(rules) {
            closed = closed.max(leaving.ballot);
        }
        let raise = if held || leaving.fate_unknown {
            leaving.ballot
        } else {
            Ballot::default()
        };
        let free_since_ms = match (held, closes) {
            // The holder is done: from now on those in line have their time to come.
            (true, true) => now.lease_ms,
            // Nobody held anything: an attempt that comes and goes must not restart that time.
            (true, false) => entry
                .record
                .as_ref()
                .map_or(0, |record| record.free_since_ms),
            (false, _) => entry.free_since_ms(now),
        };
        entry.write(rules, now, raise, closed, seat);
        if let Some(record) = &mut entry.record {
            record.free_since_ms = free_since_ms;
        }
    }
    if entry.key.is_none() && (held || was_first) {
        let sender = leaving.place.filter(|_| leaving.stays);
        wakes.extend(entry.line.wakes(rules, sender));
    }
}

/// Frees what the caller holds; or, if it is to be kept from others, puts a tombstone in its place,
/// which no token matches. The tombstone is a holder like any other: it has a seat, and its end is
/// when the name becomes free.
fn bury(now: Moment, entry: &mut Entry, leaving: &Leaving<'_>) -> Option<Seat> {
    let (ballot, label) = match entry.seat() {
        Some(seat) => (seat.ballot, seat.label.clone()),
        None => (Ballot::default(), String::new()),
    };
    entry.key = None;
    let until_ms = now.lease_ms.saturating_add(leaving.keep_ms?);
    let value = tombstone(leaving.token);
    entry.key = Some(PlainKey {
        value: value.clone(),
        until_ms: Some(until_ms),
    });
    Some(Seat {
        token: value,
        ballot,
        label,
        until_ms,
    })
}

/// One wake for each ticket, the earliest: a ticket may stand in several lines.
fn tidy(wakes: &mut Vec<Wake>) {
    wakes.sort();
    wakes.dedup_by(|later, earlier| later.ticket == earlier.ticket);
}
