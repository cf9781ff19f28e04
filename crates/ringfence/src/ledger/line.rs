//! Who waits for a name, in order. A ticket is a lease: whoever stops refreshing it is gone.

use crate::message::{Place, Wake};

use super::{Moment, Rules};

/// How long a ticket stands without being refreshed.
pub const TICKET_MS: u64 = 3_000;
/// How old a ticket may be when it is first shown: a round trip, not a wrong clock.
const FIRST_AGE_MAX_US: u64 = 1_000_000;

/// Who waits, earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// The tickets, sorted by time and id.
    pub tickets: Vec<Ticket>,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub(super) fn enter(&mut self, place: &Place, elsewhere: bool, now: Moment) {
        let ticket = Ticket {
            since_us: place.since_us,
            id: place.id.to_string(),
            until_ms: now.lease_ms.saturating_add(TICKET_MS),
            refreshed_ms: now.lease_ms,
            elsewhere,
        };
        match self.tickets.binary_search_by(|other| other.cmp_to(place)) {
            Ok(at) => self.tickets[at] = ticket,
            Err(at) => self.tickets.insert(at, ticket),
        }
    }

    /// Takes `place` out of the line; whether it was the first.
    pub(super) fn leave(&mut self, place: &Place) -> bool {
        let first = self.tickets.first().is_some_and(|ticket| ticket.is(place));
        self.tickets.retain(|ticket| !ticket.is(place));
        first
    }

    /// The tickets ahead of `place`; all of them for a caller without one.
    pub(super) fn ahead_of(&self, place: Option<&Place>) -> &[Ticket] {
        let end = match place {
            None => self.tickets.len(),
            Some(place) => match self.tickets.binary_search_by(|other| other.cmp_to(place)) {
                Ok(at) | Err(at) => at,
            },
        };
        &self.tickets[..end]
    }

    /// When, on the lease clock, `place` may pass those ahead of it; `None` if never while they
    /// stand. A dead head must not block a node for ever, but one that waits for another held name
    /// is not dead.
    pub(super) fn may_pass_at(
        &self,
        rules: &Rules,
        place: Option<&Place>,
        free_since_ms: u64,
    ) -> Option<u64> {
        let ahead = self.ahead_of(place);
        if ahead.is_empty() {
            return Some(0);
        }
        if place.is_none() || ahead.iter().any(|ticket| ticket.elsewhere) {
            return None;
        }
        let patience = rules.grace_ms.saturating_mul(ahead.len() as u64);
        Some(free_since_ms.saturating_add(patience))
    }

    /// Drops the tickets ahead of `place` that have not been refreshed since the name became free:
    /// they did not come. If they live, they enter again with the same ticket.
    pub(super) fn pass(&mut self, place: &Place, free_since_ms: u64) {
        self.tickets
            .retain(|ticket| ticket.cmp_to(place).is_ge() || ticket.refreshed_ms >= free_since_ms);
    }

    /// Who is to be told that the name is free: the first, and the next, to come if the first does
    /// not. Never `sender` itself, who knows; and nobody if it is the first, and will be back.
    pub(super) fn wakes(&self, rules: &Rules, sender: Option<&Place>) -> Vec<Wake> {
        let sends = |ticket: &Ticket| sender.is_some_and(|sender| ticket.is(sender));
        if self.tickets.first().is_some_and(sends) {
            return Vec::new();
        }
        let first_two = self.tickets.iter().take(2).enumerate();
        let others = first_two.filter(|(_, ticket)| !sends(ticket));
        let wakes = others.map(|(ahead, ticket)| Wake {
            ticket: ticket.id.clone(),
            after_ms: rules.grace_ms.saturating_mul(ahead as u64),
        });
        wakes.collect()
    }
}

impl Ticket {
    fn is(&self, place: &Place) -> bool {
        self.cmp_to(place).is_eq()
    }

    fn cmp_to(&self, place: &Place) -> std::cmp::Ordering {
        (self.since_us, self.id.as_str()).cmp(&(place.since_us, &place.id))
    }
}
