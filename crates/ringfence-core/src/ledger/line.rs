//! The wait queue of a name. A ticket is a lease: a waiter that stops refreshing it leaves the
//! queue.

use crate::message::{Mode, Place, Wake};

use super::{Moment, Rules};

/// How long a ticket is kept without a refresh.
pub const TICKET_MS: u64 = 3_000;
/// The largest age of a new ticket: enough for a round trip. An older one comes from a wrong clock.
pub const FIRST_AGE_MAX_US: u64 = 1_000_000;

/// The waiters, earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// The tickets, sorted by time and id.
    pub tickets: Vec<Ticket>,
}

/// A ticket in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Since when the caller waits, in microseconds of the nodes' clocks.
    pub since_us: u64,
    /// The ticket id.
    pub id: String,
    /// The last millisecond in which the ticket is valid.
    pub until_ms: u64,
    /// When it was last refreshed.
    pub refreshed_ms: u64,
    /// The caller also waits for another name that is held. It cannot acquire now, but it is not
    /// dead.
    pub elsewhere: bool,
    /// The caller waits to share the name. Other shared waiters do not block it.
    pub shared: bool,
}

impl Line {
    pub(super) fn expire(&mut self, now: Moment) {
        self.tickets
            .retain(|ticket| ticket.until_ms >= now.lease_ms);
    }

    pub(super) fn is_lapsed(&self, now: Moment) -> bool {
        self.tickets
            .iter()
            .all(|ticket| ticket.until_ms < now.lease_ms)
    }

    /// Whether the node must refuse the ticket: it claims to be new but is old, so the clock behind
    /// it is wrong. A ticket that re-enters is accepted at any age. Otherwise an old waiter could
    /// never return to a restarted node (48 grants instead of 1,201 in the simulation).
    pub(super) fn is_too_old(&self, place: &Place, now: Moment) -> bool {
        place.first
            && place.since_us.saturating_add(FIRST_AGE_MAX_US) < now.clock_us
            && !self.tickets.iter().any(|ticket| ticket.is(place))
    }

    /// Enters or refreshes the ticket.
    pub(super) fn enter(&mut self, place: &Place, mode: Mode, elsewhere: bool, now: Moment) {
        let ticket = Ticket {
            since_us: place.since_us,
            id: place.id.to_string(),
            until_ms: now.lease_ms.saturating_add(TICKET_MS),
            refreshed_ms: now.lease_ms,
            elsewhere,
            shared: mode == Mode::Shared,
        };
        match self.tickets.binary_search_by(|other| other.cmp_to(place)) {
            Ok(at) => self.tickets[at] = ticket,
            Err(at) => self.tickets.insert(at, ticket),
        }
    }

    /// Removes the ticket. Returns whether that can let other waiters acquire: it was the first
    /// ticket, or the first exclusive one.
    pub(super) fn leave(&mut self, place: &Place, mode: Mode) -> bool {
        let ahead = self.ahead_of(Some(place));
        let was_queued = self.tickets.get(ahead.len()).is_some_and(|t| t.is(place));
        let first = match mode {
            Mode::Exclusive => ahead.iter().all(|ticket| ticket.shared),
            Mode::Shared => ahead.is_empty(),
        };
        self.tickets.retain(|ticket| !ticket.is(place));
        was_queued && first
    }

    /// The tickets ahead of `place`; all tickets for a caller without one.
    fn ahead_of(&self, place: Option<&Place>) -> &[Ticket] {
        let end = match place {
            None => self.tickets.len(),
            Some(place) => match self.tickets.binary_search_by(|other| other.cmp_to(place)) {
                Ok(at) | Err(at) => at,
            },
        };
        &self.tickets[..end]
    }

    /// How many of the tickets ahead conflict with a claim in `mode`. Shared tickets do not
    /// conflict with each other.
    pub(super) fn count_ahead(&self, place: Option<&Place>, mode: Mode) -> u64 {
        let ahead = self.ahead_of(place).iter();
        ahead.filter(|ticket| ticket.conflicts_with(mode)).count() as u64
    }

    /// When `place` may pass the tickets ahead of it, on the lease clock; `None`: not while they
    /// wait. A dead head must not block a node for ever. A head that waits for another held name is
    /// not dead and must not be passed.
    pub(super) fn may_pass_at(
        &self,
        rules: &Rules,
        place: Option<&Place>,
        mode: Mode,
        free_since_ms: u64,
    ) -> Option<u64> {
        let ahead = self.count_ahead(place, mode);
        if ahead == 0 {
            return Some(0);
        }
        let elsewhere = |ticket: &Ticket| ticket.elsewhere;
        if place.is_none() || self.ahead_of(place).iter().any(elsewhere) {
            return None;
        }
        let wait_ms = rules.grace_ms.saturating_mul(ahead);
        Some(free_since_ms.saturating_add(wait_ms))
    }

    /// Drops the conflicting tickets ahead of `place` that were not refreshed since the name became
    /// free: their owners did not acquire. A live owner re-enters with the same ticket.
    pub(super) fn pass(&mut self, place: &Place, mode: Mode, free_since_ms: u64) {
        self.tickets.retain(|ticket| {
            ticket.cmp_to(place).is_ge()
                || !ticket.conflicts_with(mode)
                || ticket.refreshed_ms >= free_since_ms
        });
    }

    /// The waiters to wake when the name becomes free for claims in `mode`: the head, or all
    /// leading readers, and the runner-up, which has to try after the grace. Never wakes `sender`,
    /// which knows it already. If `sender` is the head, wakes none: it will try again itself.
    pub(super) fn wakes(&self, rules: &Rules, sender: Option<&Place>, mode: Mode) -> Vec<Wake> {
        let is_sender = |ticket: &Ticket| sender.is_some_and(|sender| ticket.is(sender));
        if self.tickets.first().is_some_and(is_sender) {
            return Vec::new();
        }
        let leading = self.tickets.iter().take_while(|t| t.shared).count();
        let count = match mode {
            Mode::Shared => leading,
            Mode::Exclusive => (leading + 1).max(2),
        };
        let first = self.tickets.iter().take(count).enumerate();
        let others = first.filter(|(_, ticket)| !is_sender(ticket));
        let wakes = others.map(|(ahead, ticket)| Wake {
            ticket: ticket.id.clone(),
            after_ms: match ahead < leading {
                true => 0,
                false => rules.grace_ms.saturating_mul(ahead as u64),
            },
            slot: None,
        });
        wakes.collect()
    }
}

impl Ticket {
    fn conflicts_with(&self, mode: Mode) -> bool {
        mode == Mode::Exclusive || !self.shared
    }

    fn is(&self, place: &Place) -> bool {
        self.cmp_to(place).is_eq()
    }

    fn cmp_to(&self, place: &Place) -> std::cmp::Ordering {
        (self.since_us, self.id.as_str()).cmp(&(place.since_us, &place.id))
    }
}
