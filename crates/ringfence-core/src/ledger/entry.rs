//! All that a node keeps under one name: the plain key that every Redlock client understands, and
//! beside it the record that only we know.

use crate::message::{Ballot, Holder, Mode};
use crate::token::public_half;

use super::{Latch, Line, Moment, Rules};

/// All that a node keeps under one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Entry {
    /// The lock itself. It alone decides who holds.
    pub key: Option<PlainKey>,
    /// What the name's history demands of the next ballot.
    pub record: Option<Record>,
    /// Who shares the name, by token. They count only while [`SHARED`] is the key's value.
    pub readers: Vec<Seat>,
    /// Who waits.
    pub line: Line,
    /// Who has arrived, where the name is that of a latch.
    pub latch: Option<Latch>,
}

/// What stands in the key while the name is shared: no token matches it. Without a reader it is
/// another program's value like any other.
pub const SHARED: &str = "ringfence-shared";

/// The string at the lock's own key, as any Redlock client would set it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainKey {
    /// The holder's token, or whatever another library put there.
    pub value: String,
    /// The last millisecond at which it still stands; `None` if it has no expiry.
    pub until_ms: Option<u64>,
}

/// The side record of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The highest ballot accepted for an exclusive claim, or retired.
    pub fence: Ballot,
    /// The highest ballot accepted for a shared claim, if it is above `fence`; else zero.
    pub read_fence: Ballot,
    /// The highest ballot that a granted holder gave back: no restore brings it back.
    pub closed: Ballot,
    /// Who was seated last. It counts only while its token is the key's value.
    pub seat: Option<Seat>,
    /// Whether somebody without a record was last seen holding: another library's client.
    pub stranger: bool,
    /// When, on the lease clock, the name was last given back or found to be free.
    pub free_since_ms: u64,
    /// The last millisecond at which the record still stands.
    pub until_ms: u64,
}

/// A holder as the record knows it. While the name is shared, the record's seat is [`SHARED`]'s: as long
/// and under the label as the last of the readers, under the highest of their ballots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The holder's token.
    pub token: String,
    /// The ballot under which it sits.
    pub ballot: Ballot,
    /// Who it is, for people.
    pub label: String,
    /// The last millisecond of its lease, as of the last write.
    pub until_ms: u64,
}

impl Entry {
    /// Whether a node may forget this entry: nothing in it stands or matters any more.
    pub fn is_lapsed(&self, rules: &Rules, now: Moment) -> bool {
        let stands = |key: &PlainKey| key.until_ms.is_none_or(|until| until >= now.lease_ms);
        let matters = |record: &Record| !record.is_lapsed(rules, now);
        !self.key.as_ref().is_some_and(stands)
            && !self.record.as_ref().is_some_and(matters)
            && self.line.is_lapsed(now)
            && self.latch.as_ref().is_none_or(|l| l.is_over(now))
    }

    /// Drops what has expired. Like Redis, a key still stands in its last millisecond.
    pub fn expire(&mut self, now: Moment) {
        let over = |until_ms: u64| now.lease_ms > until_ms;
        if self
            .key
            .as_ref()
            .is_some_and(|k| k.until_ms.is_some_and(over))
        {
            self.key = None;
        }
        if self.record.as_ref().is_some_and(|r| over(r.until_ms)) {
            self.record = None;
        }
        self.readers.retain(|reader| !over(reader.until_ms));
        // Readers without the marker have lost the name. The marker without a reader is a value that
        // another program has set: ours ends with the last reader.
        if !self.has_marker() {
            self.readers.clear();
        }
        self.line.expire(now);
        self.latch.take_if(|latch| latch.is_over(now));
    }

    /// The fence that a ballot for `mode` must exceed: never below the ground, record or not. A record
    /// written while the node had forgotten would otherwise pin the floor too low. Readers need not be
    /// in order among themselves, or they would starve each other.
    pub(super) fn effective_fence(&self, rules: &Rules, now: Moment, mode: Mode) -> Ballot {
        let recorded = self
            .record
            .as_ref()
            .map_or(Ballot::default(), |r| match mode {
                Mode::Exclusive => r.fence.max(r.read_fence),
                Mode::Shared => r.fence,
            });
        recorded.max(now.ground(rules))
    }

    pub(super) fn closed(&self) -> Ballot {
        self.record.as_ref().map(|r| r.closed).unwrap_or_default()
    }

    /// Whether the name is shared, by whomever.
    pub(super) fn is_shared(&self) -> bool {
        self.has_marker() && !self.readers.is_empty()
    }

    /// Whether the key has the value that marks a shared name. Only readers make it so.
    pub fn has_marker(&self) -> bool {
        self.is_held_by(SHARED)
    }

    /// Whether somebody holds the name in a way that `mode` does not go with.
    pub(super) fn is_closed_to(&self, mode: Mode) -> bool {
        self.key.is_some() && (mode == Mode::Exclusive || !self.is_shared())
    }

    /// The ballot under which `token` has what `mode` asks for, if it does. Whoever holds the name
    /// alone has its share too.
    pub(super) fn held_as(&self, mode: Mode, token: &str) -> Option<Ballot> {
        if self.is_held_by(token) {
            return Some(self.holder_ballot());
        }
        let reader = self.reader(token).filter(|_| mode == Mode::Shared);
        reader.map(|reader| reader.ballot)
    }

    /// `token` among those who share the name.
    pub(super) fn reader(&self, token: &str) -> Option<&Seat> {
        self.readers.iter().find(|reader| reader.token == token)
    }

    /// Whether `token` is the key's value: it holds this name alone.
    pub(super) fn is_held_by(&self, token: &str) -> bool {
        self.key.as_ref().is_some_and(|key| key.value == token)
    }

    /// The seat, if the key still says that its owner holds.
    pub(super) fn seat(&self) -> Option<&Seat> {
        let seat = self.record.as_ref()?.seat.as_ref()?;
        let holds = match seat.token == SHARED {
            true => self.is_shared(),
            false => self.is_held_by(&seat.token),
        };
        holds.then_some(seat)
    }

    /// The ballot under which the present holder sits; lowest for one without a seat.
    pub(super) fn holder_ballot(&self) -> Ballot {
        self.seat().map(|seat| seat.ballot).unwrap_or_default()
    }

    /// The holder as others may see it, or `None` if the name is free.
    pub(super) fn holder(&self, claim: usize, now: Moment) -> Option<Holder> {
        let key = self.key.as_ref()?;
        Some(Holder {
            claim,
            label: self.seat().map(|seat| seat.label.clone()),
            id: public_half(&key.value).map(str::to_owned),
            for_ms: key.until_ms.map(|until| until.saturating_sub(now.lease_ms)),
            ahead: 0,
        })
    }

    /// Since when, on the lease clock, nobody holds this name. A lease that ran out freed it then;
    /// what vanished in another way, a stranger's key or one deleted by hand, is missed only now.
    pub(super) fn free_since_ms(&self, now: Moment) -> u64 {
        let Some(record) = &self.record else {
            return 0;
        };
        match &record.seat {
            Some(seat) if self.seat().is_none() => {
                let ended_ms = now.lease_ms.min(seat.until_ms.saturating_add(1));
                record.free_since_ms.max(ended_ms)
            }
            None if record.stranger => now.lease_ms,
            _ => record.free_since_ms,
        }
    }

    /// Writes down what a caller in line found: that a stranger holds, or that a holder is gone.
    /// Only then does the time that lets others pass a dead head begin to run.
    pub(super) fn take_notice(&mut self, rules: &Rules, now: Moment) {
        let known = self.record.as_ref();
        let stranger = self.key.is_some() && self.seat().is_none();
        let vacated = self.key.is_none()
            && known.is_some_and(|record| record.seat.is_some() || record.stranger);
        let news = stranger && !known.is_some_and(|record| record.stranger);
        if news || vacated {
            let seat = self.seat().cloned();
            let nothing = (Mode::Exclusive, Ballot::default());
            self.write(rules, now, nothing, self.closed(), seat);
        }
    }

    /// Gives the name to `seat` in `mode`, for at least `ttl_ms`.
    pub(super) fn take_for(
        &mut self,
        rules: &Rules,
        now: Moment,
        mode: Mode,
        seat: Seat,
        ttl_ms: u64,
    ) {
        match mode {
            Mode::Exclusive => self.seat_for(rules, now, seat, ttl_ms),
            Mode::Shared => self.share_for(rules, now, seat, ttl_ms),
        }
    }

    /// Seats `seat` for at least `ttl_ms`, never for less than it already has: shortening would
    /// free the lock under a guard that still counts on it.
    fn seat_for(&mut self, rules: &Rules, now: Moment, mut seat: Seat, ttl_ms: u64) {
        let asked = now.lease_ms.saturating_add(ttl_ms);
        let until_ms = match &self.key {
            Some(key) if key.value == seat.token => key.until_ms.map(|until| until.max(asked)),
            _ => Some(asked),
        };
        self.key = Some(PlainKey {
            value: seat.token.clone(),
            until_ms,
        });
        seat.until_ms = until_ms.unwrap_or(asked);
        let ballot = seat.ballot;
        let closed = self.closed();
        self.write(rules, now, (Mode::Exclusive, ballot), closed, Some(seat));
    }

    /// Has `reader` share the name for at least `ttl_ms`, never for less than it already has.
    fn share_for(&mut self, rules: &Rules, now: Moment, mut reader: Seat, ttl_ms: u64) {
        let alone = self.key.as_ref().filter(|key| key.value == reader.token);
        let left = match self.reader(&reader.token) {
            Some(known) => known.until_ms,
            None => alone.and_then(|key| key.until_ms).unwrap_or_default(),
        };
        reader.until_ms = now.lease_ms.saturating_add(ttl_ms).max(left);
        let ballot = reader.ballot;
        let by_token = |other: &Seat| other.token.cmp(&reader.token);
        match self.readers.binary_search_by(by_token) {
            Ok(at) => self.readers[at] = reader,
            Err(at) => self.readers.insert(at, reader),
        }
        self.mark_shared(rules, now, (Mode::Shared, ballot), self.closed(), ballot);
    }

    /// Writes the marker for as long as the last of the readers, and the seat behind it. `ballot` is
    /// that of whoever comes or goes.
    pub(super) fn mark_shared(
        &mut self,
        rules: &Rules,
        now: Moment,
        raise: (Mode, Ballot),
        closed: Ballot,
        ballot: Ballot,
    ) {
        let seat = self.seat().filter(|seat| seat.token == SHARED);
        let ballot = seat.map_or(ballot, |seat| seat.ballot.max(ballot));
        let by_lease = |reader: &&Seat| (reader.until_ms, reader.token.clone());
        let Some(last) = self.readers.iter().max_by_key(by_lease).cloned() else {
            return;
        };
        self.key = Some(PlainKey {
            value: SHARED.to_owned(),
            until_ms: Some(last.until_ms),
        });
        let seat = Seat {
            token: SHARED.to_owned(),
            ballot,
            ..last
        };
        self.write(rules, now, raise, closed, Some(seat));
    }

    /// Writes the record. Every write stores the effective fence or the ballot, whichever is
    /// higher, in the fence of the ballot's mode, and re-arms the record's expiry beyond that of the key it vouches for.
    pub(super) fn write(
        &mut self,
        rules: &Rules,
        now: Moment,
        (mode, ballot): (Mode, Ballot),
        closed: Ballot,
        seat: Option<Seat>,
    ) {
        let mut fence = self.effective_fence(rules, now, Mode::Shared);
        let mut read_fence = self.effective_fence(rules, now, Mode::Exclusive);
        if ballot <= now.ceiling(rules) {
            match mode {
                Mode::Exclusive => fence = fence.max(ballot),
                Mode::Shared => read_fence = read_fence.max(ballot),
            }
        }
        if read_fence <= fence {
            // Whoever is above the one is above the other.
            read_fence = Ballot::default();
        }
        let kept = now.lease_ms.saturating_add(rules.retention_ms);
        let key_until = self.key.as_ref().and_then(|key| key.until_ms);
        // Before the seat is overwritten: it may tell since when the name has been free.
        let free_since_ms = self.free_since_ms(now);
        self.record = Some(Record {
            fence,
            read_fence,
            closed,
            stranger: self.key.is_some() && seat.is_none(),
            free_since_ms,
            seat,
            until_ms: kept.max(key_until.unwrap_or_default()),
        });
    }
}

impl Record {
    /// Whether a node may forget this record: its time is over, and what it demanded of the next
    /// ballot, the ground demands by now. Retention alone makes that so while the two clocks of a
    /// node agree; it is checked because nobody would notice a fence that fell.
    pub fn is_lapsed(&self, rules: &Rules, now: Moment) -> bool {
        let demanded = self.fence.max(self.read_fence).max(self.closed);
        self.until_ms < now.lease_ms && demanded <= now.ground(rules)
    }
}
