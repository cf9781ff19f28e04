//! Everything that a node stores for one name: the plain key, which every Redlock client
//! understands, and beside it the record, which only this library reads.

use crate::message::{Ballot, Holder, Mode};
use crate::token::public_half;

use super::{Breaks, LatchRecord, Moment, Rules, WaitQueue};

/// Everything that a node stores for one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Entry {
    /// The lock itself. Only this key decides which token holds the name.
    pub key: Option<PlainKey>,
    /// The fences and the last holder of the name.
    pub record: Option<Record>,
    /// The shared holders, sorted by token. They count only while the key's value is [`SHARED`].
    pub readers: Vec<Seat>,
    /// The wait queue.
    pub queue: WaitQueue,
    /// The parties of a latch, if the name belongs to a latch.
    pub latch: Option<LatchRecord>,
    /// The holds that operators broke, as long as they are remembered.
    pub broken: Option<Breaks>,
}

/// The value of the key while readers share the name. No token equals it. If there are no readers,
/// another program has set it, and it is a foreign holder like any other.
pub const SHARED: &str = "ringfence-shared";

/// The string at the lock's own key, as any Redlock client would set it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainKey {
    /// The holder's token, or the value that another library wrote.
    pub value: String,
    /// The last millisecond in which the key exists; `None` if it has no expiry.
    pub until_ms: Option<u64>,
}

/// The side record of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The highest ballot accepted for an exclusive claim, or retired.
    pub fence: Ballot,
    /// The highest ballot accepted for a shared claim, if it is above `fence`; otherwise zero.
    pub read_fence: Ballot,
    /// The highest closed ballot: a granted holder released it, or `break` closed it. A restore
    /// needs a higher ballot.
    pub closed: Ballot,
    /// The last holder. It counts only while its token is the key's value.
    pub seat: Option<Seat>,
    /// Whether the last holder that was seen has no record: a client of another library.
    pub stranger: bool,
    /// When the name was last released or found free, on the lease clock.
    pub free_since_ms: u64,
    /// The last millisecond in which the record exists.
    pub until_ms: u64,
}

/// A holder in the record. While readers share the name, the record's seat has the token
/// [`SHARED`], the lease and label of the reader whose lease ends last, and the highest ballot of
/// the readers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seat {
    /// The holder's token.
    pub token: String,
    /// The ballot of the holder (`hb` in the protocol).
    pub ballot: Ballot,
    /// The holder's name, shown to people.
    pub label: String,
    /// The last millisecond of its lease, as of the last write.
    pub until_ms: u64,
}

impl Entry {
    /// Whether a node may delete this entry: everything in it has expired.
    pub fn is_lapsed(&self, rules: &Rules, now: Moment) -> bool {
        let stands = |key: &PlainKey| key.until_ms.is_none_or(|until| until >= now.lease_ms);
        let matters = |record: &Record| !record.is_lapsed(rules, now);
        !self.key.as_ref().is_some_and(stands)
            && !self.record.as_ref().is_some_and(matters)
            && self.queue.is_lapsed(now)
            && self.latch.as_ref().is_none_or(|l| l.is_over(now))
            && self
                .broken
                .as_ref()
                .is_none_or(|b| b.until_us < now.clock_us)
    }

    /// Drops everything that has expired. As in Redis, a key still exists in its last millisecond.
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
        // Without the marker the readers have lost the name. A marker without readers was set by
        // another program, because our own marker ends with the last reader: keep it as a foreign
        // holder.
        if !self.has_marker() {
            self.readers.clear();
        }
        self.queue.expire(now);
        self.latch.take_if(|latch| latch.is_over(now));
        self.broken.take_if(|breaks| breaks.until_us < now.clock_us);
    }

    /// The effective fence: a ballot for `mode` must be above it. It is never below clock − w, with
    /// or without a record. Otherwise a record that was written after the node lost its data would
    /// pin the floor too low, and a fence would be given twice. A shared claim is compared with the
    /// write fence only: strictly rising fences among readers would starve readers.
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

    /// Whether any reader shares the name.
    pub(super) fn is_shared(&self) -> bool {
        self.has_marker() && !self.readers.is_empty()
    }

    /// Whether the key has the value that marks a shared name. Only readers write it.
    pub fn has_marker(&self) -> bool {
        self.is_held_by(SHARED)
    }

    /// Whether the name has a holder that conflicts with `mode`.
    pub(super) fn conflicts_with(&self, mode: Mode) -> bool {
        self.key.is_some() && (mode == Mode::Exclusive || !self.is_shared())
    }

    /// The ballot of `token`, if it holds at least what `mode` asks for. An exclusive holder has
    /// the shared right, too.
    pub(super) fn ballot_of(&self, mode: Mode, token: &str) -> Option<Ballot> {
        if self.is_held_by(token) {
            return Some(self.holder_ballot());
        }
        let reader = self.reader(token).filter(|_| mode == Mode::Shared);
        reader.map(|reader| reader.ballot)
    }

    /// The reader with this `token`.
    pub(super) fn reader(&self, token: &str) -> Option<&Seat> {
        self.readers.iter().find(|reader| reader.token == token)
    }

    /// Whether `token` is the key's value, so that it holds the name exclusively.
    pub(super) fn is_held_by(&self, token: &str) -> bool {
        self.key.as_ref().is_some_and(|key| key.value == token)
    }

    /// Whether `token` holds the name only because of its lock delay: no more than `delay_ms` is
    /// left of its lease. The holder's own time is over then.
    pub(super) fn is_in_delay(&self, now: Moment, token: &str, delay_ms: u64) -> bool {
        let until_ms = match &self.key {
            Some(key) if key.value == token => key.until_ms,
            _ => self.reader(token).map(|reader| reader.until_ms),
        };
        let left_ms = until_ms.map(|until| until.saturating_sub(now.lease_ms));
        delay_ms > 0 && left_ms.is_some_and(|left| left <= delay_ms)
    }

    /// The record's seat, if the key shows that its owner still holds.
    pub(super) fn seat(&self) -> Option<&Seat> {
        let seat = self.record.as_ref()?.seat.as_ref()?;
        let holds = match seat.token == SHARED {
            true => self.is_shared(),
            false => self.is_held_by(&seat.token),
        };
        holds.then_some(seat)
    }

    /// The ballot of the current holder; the lowest ballot for a holder without a seat.
    pub(super) fn holder_ballot(&self) -> Ballot {
        self.seat().map(|seat| seat.ballot).unwrap_or_default()
    }

    /// The holder as other clients may see it; `None` if the name is free.
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

    /// Since when the name is free, on the lease clock. After an expired lease this is the end of
    /// the lease. If the key disappeared in another way (a foreign client removed it, an operator
    /// deleted it), the node only knows that it is free now.
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

    /// Records what a waiter found: a foreign holder, or a holder that is gone. The time after
    /// which waiters may pass a dead head of the queue starts only when this is written.
    pub(super) fn note_holder_change(&mut self, rules: &Rules, now: Moment) {
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

    /// Removes every holder of the name.
    pub(super) fn clear_holders(&mut self) {
        self.key = None;
        self.readers.clear();
    }

    /// Grants the name to `seat` in `mode`, for at least `ttl_ms`.
    pub(super) fn grant(
        &mut self,
        rules: &Rules,
        now: Moment,
        mode: Mode,
        seat: Seat,
        ttl_ms: u64,
    ) {
        match mode {
            Mode::Exclusive => self.grant_exclusive(rules, now, seat, ttl_ms),
            Mode::Shared => self.grant_shared(rules, now, seat, ttl_ms),
        }
    }

    /// Grants the name exclusively for at least `ttl_ms`, and never shortens the lease. A shorter
    /// lease would free the lock while a guard still relies on it.
    fn grant_exclusive(&mut self, rules: &Rules, now: Moment, mut seat: Seat, ttl_ms: u64) {
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

    /// Grants a share to `reader` for at least `ttl_ms`, and never shortens its lease.
    fn grant_shared(&mut self, rules: &Rules, now: Moment, mut reader: Seat, ttl_ms: u64) {
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

    /// Writes the shared marker with the latest expiry of the readers, and the seat for it.
    /// `ballot` belongs to the reader that was added or removed.
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

    /// Writes the record. Every write stores the higher of the effective fence and the ballot, in
    /// the fence of the ballot's mode. It extends the expiry of the record beyond that of the key.
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
            // A ballot above the write fence is above the read fence, too.
            read_fence = Ballot::default();
        }
        let kept = now.lease_ms.saturating_add(rules.retention_ms);
        let key_until = self.key.as_ref().and_then(|key| key.until_ms);
        // Compute this before the seat is overwritten: it depends on the old seat.
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
    /// Whether a node may delete this record: it has expired, and clock − w has reached its fences
    /// and its closed ballot. If both clocks of a node agree, the retention already guarantees the
    /// second part. It is checked all the same, because a fence that falls would go unnoticed.
    pub fn is_lapsed(&self, rules: &Rules, now: Moment) -> bool {
        let demanded = self.fence.max(self.read_fence).max(self.closed);
        self.until_ms < now.lease_ms && demanded <= now.ground(rules)
    }
}
