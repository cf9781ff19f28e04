//! Who waits for a name, in order. A ticket is a lease: whoever stops refreshing it is gone.

use crate::message::{Mode, Place, Wake};

use super::{Moment, Rules};

/// How long a ticket stands without being refreshed.
pub const TICKET_MS: u64 = 3_000;
/// How old a ticket may be when it is first shown: a round trip, not a wrong clock.
pub const FIRST_AGE_MAX_US: u64 = 1_000_000;

/// Who waits, earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Line {
    /// The tickets, sorted by time and id.
    pub tickets: Vec<Ticket>,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Since when, in microseconds of the nodes' clocks.
    pub since_us: u64,
    /// Whose it is.
    pub id: String,
    /// The last millisecond at which it still stands.
    pub until_ms: u64,
    /// When it was last refreshed.
    pub refreshed_ms: u64,
    /// It also waits for another name that is held: it cannot come, but it is not dead.
    pub elsewhere: bool,
    /// It waits to share the name: others who do are not in its way.
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

    /// Whether `place` must not be entered: it claims to be new, and yet to have waited for long.
    /// Who re-enters keeps its time at any age, or an old waiter could never come back to a node
    /// that was restarted.
    pub(super) fn is_too_old(&self, place: &Place, now: Moment) -> bool {
        place.first
            && place.since_us.saturating_add(FIRST_AGE_MAX_US) < now.clock_us
            && !self.tickets.iter().any(|ticket| ticket.is(place))
    }

    /// Enters or refreshes `place`.
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

    /// Takes `place` out of the line; whether others now come first: it was the first itself, or
    /// the first that was not to share.
    pub(super) fn leave(&mut self, place: &Place, mode: Mode) -> bool {
        let ahead = self.ahead_of(Some(place));
        let stood = self.tickets.get(ahead.len()).is_some_and(|t| t.is(place));
        let first = match mode {
            Mode::Exclusive => ahead.iter().all(|ticket| ticket.shared),
            Mode::Shared => ahead.is_empty(),
        };
        self.tickets.retain(|ticket| !ticket.is(place));
        stood && first
    }

    /// The tickets ahead of `place`; all of them for a caller without one.
    fn ahead_of(&self, place: Option<&Place>) -> &[Ticket] {
        let end = match place {
            None => self.tickets.len(),
            Some(place) => match self.tickets.binary_search_by(|other| other.cmp_to(place)) {
                Ok(at) | Err(at) => at,
            },
        };
        &self.tickets[..end]
    }

    /// How many of them are in the way of a claim in `mode`: those who share do not mind each other.
    pub(super) fn count_ahead(&self, place: Option<&Place>, mode: Mode) -> u64 {
        let ahead = self.ahead_of(place).iter();
        ahead.filter(|ticket| ticket.is_in_the_way_of(mode)).count() as u64
    }

    /// When, on the lease clock, `place` may pass those ahead of it; `None` if never while they
    /// stand. A dead head must not block a node for ever, but one that waits for another held name
    /// is not dead.
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
        let patience = rules.grace_ms.saturating_mul(ahead);
        Some(free_since_ms.saturating_add(patience))
    }

    /// Drops the tickets ahead of `place` and in its way that have not been refreshed since the name
    /// became free: they did not come. If they live, they enter again with the same ticket.
    pub(super) fn pass(&mut self, place: &Place, mode: Mode, free_since_ms: u64) {
        self.tickets.retain(|ticket| {
            ticket.cmp_to(place).is_ge()
                || !ticket.is_in_the_way_of(mode)
                || ticket.refreshed_ms >= free_since_ms
        });
    }

    /// Who is to be told that the name is free for claims in `mode`: the first, or all the first who
    /// share, and the next, to come if they do not. Never `sender` itself, who knows; and nobody if
    /// it is the first, and will be back.
    pub(super) fn wakes(&self, rules: &Rules, sender: Option<&Place>, mode: Mode) -> Vec<Wake> {
        let sends = |ticket: &Ticket| sender.is_some_and(|sender| ticket.is(sender));
        if self.tickets.first().is_some_and(sends) {
            return Vec::new();
        }
        let leading = self.tickets.iter().take_while(|t| t.shared).count();
        let count = match mode {
            Mode::Shared => leading,
            Mode::Exclusive => (leading + 1).max(2),
        };
        let first = self.tickets.iter().take(count).enumerate();
        let others = first.filter(|(_, ticket)| !sends(ticket));
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
    fn is_in_the_way_of(&self, mode: Mode) -> bool {
        mode == Mode::Exclusive || !self.shared
    }

    fn is(&self, place: &Place) -> bool {
        self.cmp_to(place).is_eq()
    }

    fn cmp_to(&self, place: &Place) -> std::cmp::Ordering {
        (self.since_us, self.id.as_str()).cmp(&(place.since_us, &place.id))
    }
}
