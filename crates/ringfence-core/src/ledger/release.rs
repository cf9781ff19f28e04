//! Release: a holder is done (final), or an attempt is undone.

use crate::message::{Answer, Ballot, Claim, Mode, Release, ReleaseKind, Request, Ticket, Wake};
use crate::token::tombstone;

use super::acquire::enter;
use super::extend::not_held;
use super::{Entry, Moment, PlainKey, Rules, Seat};

/// The parameters of a release.
pub(super) struct ReleaseParams<'a> {
    pub(super) claims: &'a [Claim],
    pub(super) token: &'a str,
    pub(super) ballot: Ballot,
    pub(super) kind: ReleaseKind,
    pub(super) fate_unknown: bool,
    pub(super) ticket: Option<&'a Ticket>,
    pub(super) stays: bool,
    pub(super) keep_ms: Option<u64>,
    pub(super) delay_ms: u64,
}

impl<'a> ReleaseParams<'a> {
    pub(super) fn new(request: &'a Request, op: &'a Release) -> Self {
        let keep_ms = op.keep_ms.filter(|&ms| ms > 0);
        Self {
            keep_ms: keep_ms.filter(|_| op.kind == ReleaseKind::Final),
            ..Self::of_slots(request, op)
        }
    }

    /// For slots of a semaphore, which are never kept from others.
    pub(super) fn of_slots(request: &'a Request, op: &'a Release) -> Self {
        Self {
            claims: &request.claims,
            token: request.token.expose(),
            ballot: op.ballot,
            kind: op.kind,
            fate_unknown: op.fate_unknown,
            ticket: op.ticket.as_ref(),
            stays: op.stays,
            keep_ms: None,
            delay_ms: op.delay_ms,
        }
    }
}

pub(super) fn release(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    params: &ReleaseParams<'_>,
    wakes: &mut Vec<Wake>,
) -> Answer {
    let ended = |entry: &Entry| entry.is_in_delay(now, params.token, params.delay_ms);
    if entries.iter().any(ended) {
        return Answer::Gone;
    }
    // A late undo of attempt 1 must not delete the key of attempt 2. Otherwise there are two
    // holders although no lease has expired.
    if entries
        .iter()
        .filter_map(|entry| entry.ballot_of(Mode::Shared, params.token))
        .any(|seated| seated > params.ballot)
    {
        return Answer::Newer;
    }
    // Releases everything that this token has: also its share, if the request names an exclusive
    // claim.
    let claims = params.claims.iter().zip(&*entries).map(|(claim, entry)| {
        match entry.reader(params.token) {
            Some(_) => claim.shared(),
            None => claim.clone(),
        }
    });
    let claims: Vec<Claim> = claims.collect();
    let answer = not_held(now, entries, &claims, params.token);
    if let Some(ticket) = params.ticket.filter(|_| params.stays) {
        let held = |entry: &Entry| entry.ballot_of(Mode::Shared, params.token).is_some();
        // The grant removed the ticket from the queue. The undo of the grant enters it again.
        if entries.iter().any(held) {
            enter(rules, now, entries, params.claims, params.token, ticket);
        }
    }
    for (entry, claim) in entries.iter_mut().zip(params.claims) {
        let was_first = match params.ticket {
            Some(ticket) if !params.stays => entry.queue.leave(ticket, claim.mode),
            _ => false,
        };
        let held = entry.ballot_of(Mode::Shared, params.token).is_some();
        let awaited = !entry.queue.entries.is_empty();
        release_one(rules, now, entry, claim.mode, params, awaited);
        wake_next(rules, entry, params, held, was_first, wakes);
    }
    dedup_wakes(wakes);
    answer.unwrap_or(Answer::Released)
}

/// Releases what this token has of one name. `awaited`: tickets are in the queue for it.
pub(super) fn release_one(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    mode: Mode,
    params: &ReleaseParams<'_>,
    awaited: bool,
) {
    if let Some(reader) = entry.reader(params.token).cloned() {
        return stop_sharing(rules, now, entry, params, reader);
    }
    let held = entry.is_held_by(params.token);
    let is_final = params.kind == ReleaseKind::Final;
    // Only a restore compares its ballot with the closed one. If every request of this hold was
    // answered, no restore can arrive late, and the usual release writes no record.
    let may_arrive = params.fate_unknown || params.keep_ms.is_some() || mode == Mode::Shared;
    let closes = is_final && may_arrive;
    if held && is_final && !closes && !awaited {
        // The seat stays in the record, but it counts only while the key has its token. The next
        // waiter notes since when the name is free.
        entry.key = None;
        return;
    }
    // Retire: raise the fence only against an acquire that may still arrive. If every release of an
    // absent key raised it, polling clients would starve the waiters (57 grants against 17,461).
    if held || closes || params.fate_unknown {
        let clears = held || keeps_free_name(rules, now, entry, params);
        let seat = if clears {
            clear_key(now, entry, params)
        } else {
            entry.seat().cloned()
        };
        let mut closed = entry.closed();
        if closes && params.ballot <= now.ceiling(rules) {
            closed = closed.max(params.ballot);
        }
        let raise = if held || params.fate_unknown {
            params.ballot
        } else {
            Ballot::default()
        };
        let free_since_ms = match (held, is_final) {
            // The holder is done: the grace of the waiters starts now.
            (true, true) => now.lease_ms,
            // An attempt never held the lock, so its undo must not restart the grace.
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
}

/// Wakes the waiters that the release lets in. `held`: this token held the name. `was_first`: its
/// ticket, which left the queue, was the first.
fn wake_next(
    rules: &Rules,
    entry: &Entry,
    params: &ReleaseParams<'_>,
    held: bool,
    was_first: bool,
    wakes: &mut Vec<Wake>,
) {
    let sender = params.ticket.filter(|_| params.stays);
    if entry.key.is_none() && (held || was_first) {
        wakes.extend(entry.queue.wakes(rules, sender, Mode::Exclusive));
    } else if entry.is_shared() && was_first {
        wakes.extend(entry.queue.wakes(rules, sender, Mode::Shared));
    }
}

/// Whether a free name must be kept from others. The lease may have ended before the release
/// reached this node, although the holder released in time. If the ballot is closed, an earlier
/// copy of the release was executed here already; what happened since does not belong to this
/// holder.
fn keeps_free_name(rules: &Rules, now: Moment, entry: &Entry, params: &ReleaseParams<'_>) -> bool {
    let already_closed = params.ballot <= entry.closed();
    if already_closed || params.ballot > now.ceiling(rules) {
        return false;
    }
    params.keep_ms.is_some() && params.fate_unknown && entry.key.is_none()
}

/// Removes `reader` from the shared holders. Its ballot is closed only if a restore of it may still
/// arrive: the remaining readers may have lower ballots, and they must stay restorable.
fn stop_sharing(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    params: &ReleaseParams<'_>,
    reader: Seat,
) {
    // If an acquire with a higher ballot may still arrive, only the write fence can refuse it.
    // Otherwise do not raise the write fence: every leaving reader would delay the next readers.
    let raise = match params.fate_unknown && reader.ballot < params.ballot {
        true => (Mode::Exclusive, params.ballot),
        false => (Mode::Shared, params.ballot),
    };
    let mut closed = entry.closed();
    let closes = params.kind == ReleaseKind::Final
        && params.fate_unknown
        && params.ballot <= now.ceiling(rules);
    if closes {
        closed = closed.max(params.ballot);
    }
    entry.readers.retain(|other| other.token != reader.token);
    if !entry.readers.is_empty() {
        return entry.mark_shared(rules, now, raise, closed, reader.ballot);
    }
    entry.key = None;
    let free_since_ms = match params.kind {
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

/// Frees the key. If the name is to be kept from others, replaces the key by a tombstone, which no
/// token equals. The tombstone is a holder like any other: it has a seat, and the name becomes free
/// when it expires.
fn clear_key(now: Moment, entry: &mut Entry, params: &ReleaseParams<'_>) -> Option<Seat> {
    // The caller's own seat, even if its lease has ended.
    let record = entry.record.as_ref();
    let seat = record.and_then(|record| record.seat.as_ref());
    let (ballot, label) = match seat.filter(|seat| seat.token == params.token) {
        Some(seat) => (seat.ballot, seat.label.clone()),
        None => (Ballot::default(), String::new()),
    };
    entry.key = None;
    let until_ms = now.lease_ms.saturating_add(params.keep_ms?);
    let value = tombstone(params.token);
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

/// Keeps one wake for each ticket, the earliest. A ticket may be in the queues of several names.
pub(super) fn dedup_wakes(wakes: &mut Vec<Wake>) {
    wakes.sort();
    wakes.dedup_by(|later, earlier| later.ticket == earlier.ticket);
}
