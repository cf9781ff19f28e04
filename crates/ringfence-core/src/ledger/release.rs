//! Release: a holder is done, or an attempt is withdrawn.

use crate::message::{Answer, Ballot, Claim, Mode, Place, Release, ReleaseKind, Request, Wake};
use crate::token::tombstone;

use super::acquire::enter;
use super::extend::not_held;
use super::{Entry, Moment, PlainKey, Rules, Seat};

/// Who leaves, and how.
pub(super) struct Leaving<'a> {
    pub(super) claims: &'a [Claim],
    pub(super) token: &'a str,
    pub(super) ballot: Ballot,
    pub(super) kind: ReleaseKind,
    pub(super) fate_unknown: bool,
    pub(super) place: Option<&'a Place>,
    pub(super) stays: bool,
    pub(super) keep_ms: Option<u64>,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(request: &'a Request, op: &'a Release) -> Self {
        let keep_ms = op.keep_ms.filter(|&ms| ms > 0);
        Self {
            keep_ms: keep_ms.filter(|_| op.kind == ReleaseKind::Final),
            ..Self::of_slots(request, op)
        }
    }

    /// From slots of a semaphore, which are never kept from others.
    pub(super) fn of_slots(request: &'a Request, op: &'a Release) -> Self {
        Self {
            claims: &request.claims,
            token: request.token.expose(),
            ballot: op.ballot,
            kind: op.kind,
            fate_unknown: op.fate_unknown,
            place: op.place.as_ref(),
            stays: op.stays,
            keep_ms: None,
        }
    }
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
        .filter_map(|entry| entry.held_as(Mode::Shared, leaving.token))
        .any(|seated| seated > leaving.ballot)
    {
        return Answer::Newer;
    }
    // Whatever this token has is given back, its share too if it claimed more.
    let claims = leaving.claims.iter().zip(&*entries).map(|(claim, entry)| {
        match entry.reader(leaving.token) {
            Some(_) => claim.shared(),
            None => claim.clone(),
        }
    });
    let claims: Vec<Claim> = claims.collect();
    let answer = not_held(now, entries, &claims, leaving.token);
    if let Some(place) = leaving.place.filter(|_| leaving.stays) {
        let held = |entry: &Entry| entry.held_as(Mode::Shared, leaving.token).is_some();
        // Its ticket left the line with the grant that is now taken back.
        if entries.iter().any(held) {
            enter(rules, now, entries, leaving.claims, leaving.token, place);
        }
    }
    for (entry, claim) in entries.iter_mut().zip(leaving.claims) {
        release_one(rules, now, entry, claim.mode, leaving, wakes);
    }
    tidy(wakes);
    answer.unwrap_or(Answer::Released)
}

pub(super) fn release_one(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    mode: Mode,
    leaving: &Leaving<'_>,
    wakes: &mut Vec<Wake>,
) {
    let reader = entry.reader(leaving.token).cloned();
    let held = entry.is_held_by(leaving.token) || reader.is_some();
    let was_first = match leaving.place {
        Some(place) if !leaving.stays => entry.line.leave(place, mode),
        _ => false,
    };
    let closes = leaving.kind == ReleaseKind::Final;
    // Retiring always would let pollers starve everyone else, so an absent key alone changes
    // nothing: the fence rises only against an acquire that may still be on its way.
    if let Some(reader) = reader {
        stop_sharing(rules, now, entry, leaving, reader);
    } else if held || closes || leaving.fate_unknown {
        let buries = held || keeps_anew(rules, now, entry, leaving);
        let seat = if buries {
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
        entry.write(rules, now, (Mode::Exclusive, raise), closed, seat);
        if let Some(record) = &mut entry.record {
            record.free_since_ms = free_since_ms;
        }
    }
    let sender = leaving.place.filter(|_| leaving.stays);
    if entry.key.is_none() && (held || was_first) {
        wakes.extend(entry.line.wakes(rules, sender, Mode::Exclusive));
    } else if entry.is_shared() && was_first {
        wakes.extend(entry.line.wakes(rules, sender, Mode::Shared));
    }
}

/// Whether a name that nobody holds is to be kept from others. The lease may have ended before its holder,
/// who released it in time, could tell the node; if the ballot is closed the node was told before, and
/// what became of that is not ours any more.
fn keeps_anew(rules: &Rules, now: Moment, entry: &Entry, leaving: &Leaving<'_>) -> bool {
    let told = leaving.ballot <= entry.closed();
    if told || leaving.ballot > now.ceiling(rules) {
        return false;
    }
    leaving.keep_ms.is_some() && leaving.fate_unknown && entry.key.is_none()
}

/// Takes `reader` from those who share the name. Its ballot is closed only if a restore of it may be under
/// way: those of others who still share the name may be lower, and must be able to come back.
fn stop_sharing(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    leaving: &Leaving<'_>,
    reader: Seat,
) {
    // An acquire of a higher ballot may be on its way still, and only the write fence stops it. The
    // one that came is no reason to raise it: every reader that leaves would hold up those who come.
    let raise = match leaving.fate_unknown && reader.ballot < leaving.ballot {
        true => (Mode::Exclusive, leaving.ballot),
        false => (Mode::Shared, leaving.ballot),
    };
    let mut closed = entry.closed();
    let closes = leaving.kind == ReleaseKind::Final
        && leaving.fate_unknown
        && leaving.ballot <= now.ceiling(rules);
    if closes {
        closed = closed.max(leaving.ballot);
    }
    entry.readers.retain(|other| other.token != reader.token);
    if !entry.readers.is_empty() {
        return entry.mark_shared(rules, now, raise, closed, reader.ballot);
    }
    entry.key = None;
    let free_since_ms = match leaving.kind {
        ReleaseKind::Final => now.lease_ms,
        ReleaseKind::Undo => entry
            .record
            .as_ref()
            .map_or(0, |record| record.free_since_ms),
    };
    entry.write(rules, now, raise, closed, None);
    if let Some(record) = &mut entry.record {
        record.free_since_ms = free_since_ms;
    }
}

/// Frees what the caller holds; or, if it is to be kept from others, puts a tombstone in its place,
/// which no token matches. The tombstone is a holder like any other: it has a seat, and its end is
/// when the name becomes free.
fn bury(now: Moment, entry: &mut Entry, leaving: &Leaving<'_>) -> Option<Seat> {
    // Its own seat, also if its lease has ended.
    let record = entry.record.as_ref();
    let seat = record.and_then(|record| record.seat.as_ref());
    let (ballot, label) = match seat.filter(|seat| seat.token == leaving.token) {
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
pub(super) fn tidy(wakes: &mut Vec<Wake>) {
    wakes.sort();
    wakes.dedup_by(|later, earlier| later.ticket == earlier.ticket);
}
