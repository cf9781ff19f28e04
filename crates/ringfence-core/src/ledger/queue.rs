//! The wait queue of a name. A ticket is a lease: a waiter that stops refreshing it leaves the
//! queue.

use std::collections::VecDeque;
use std::collections::vec_deque::Iter;
use std::hash::{Hash, Hasher};

use crate::message::{Mode, Ticket, Wake};

use super::{Moment, Rules};

/// How long a ticket is kept without a refresh.
pub const TICKET_MS: u64 = 3_000;
/// The largest age of a new ticket: enough for a round trip. An older one comes from a wrong clock.
pub const FIRST_AGE_MAX_US: u64 = 1_000_000;

/// The waiters, earliest first. A request costs the same however many wait: it finds its ticket by
/// bisection, and goes through all tickets only if one of them may have ended.
#[derive(Debug, Clone, Default)]
pub struct WaitQueue {
    /// The tickets, sorted by time and id. Only this module adds tickets.
    pub entries: VecDeque<QueueEntry>,
    /// No ticket ends before this millisecond.
    none_ends_before_ms: u64,
    /// A ticket may wait for another name, too.
    may_wait_elsewhere: bool,
}

/// A ticket in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueEntry {
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
    /// For a slot of a semaphore: how many permits the caller gives the semaphore. The caller can
    /// use only slots below this number. Zero in other queues.
    pub permits: u32,
    /// The caller's label.
    pub label: String,
}

/// Queues with the same tickets are equal.
impl PartialEq for WaitQueue {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for WaitQueue {}

impl Hash for WaitQueue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entries.hash(state);
    }
}

/// A queue of tickets that are in order.
impl FromIterator<QueueEntry> for WaitQueue {
    fn from_iter<I: IntoIterator<Item = QueueEntry>>(entries: I) -> Self {
        let mut queue = Self {
            entries: entries.into_iter().collect(),
            ..Self::default()
        };
        queue.look_through(0);
        queue
    }
}

impl WaitQueue {
    pub(super) fn expire(&mut self, now: Moment) {
        if self.none_ends_before_ms < now.lease_ms {
            self.entries.retain(|entry| entry.until_ms >= now.lease_ms);
            self.look_through(now.lease_ms);
        }
    }

    /// Notes what holds for all tickets, of which none has ended at `now_ms`.
    fn look_through(&mut self, now_ms: u64) {
        let ends = self.entries.iter().map(|entry| entry.until_ms);
        self.none_ends_before_ms = ends.min().unwrap_or(now_ms);
        self.may_wait_elsewhere = self.entries.iter().any(|entry| entry.elsewhere);
    }

    pub(super) fn is_lapsed(&self, now: Moment) -> bool {
        self.entries
            .iter()
            .all(|entry| entry.until_ms < now.lease_ms)
    }

    /// Whether the node must refuse the ticket: it claims to be new but is old, so the clock behind
    /// it is wrong. A ticket that re-enters is accepted at any age. Otherwise an old waiter could
    /// never return to a restarted node (48 grants instead of 1,201 in the simulation).
    pub(super) fn is_too_old(&self, ticket: &Ticket, now: Moment) -> bool {
        ticket.first
            && ticket.since_us.saturating_add(FIRST_AGE_MAX_US) < now.clock_us
            && self.find(ticket).is_err()
    }

    /// Enters or refreshes the ticket of a caller that waits for a lock or at a latch.
    pub(super) fn enter(&mut self, ticket: &Ticket, mode: Mode, elsewhere: bool, now: Moment) {
        let entry = QueueEntry {
            elsewhere,
            shared: mode == Mode::Shared,
            ..QueueEntry::new(ticket, now)
        };
        self.write(ticket, entry);
    }

    /// Enters or refreshes the ticket of a caller that waits for a slot of `permits`.
    pub(super) fn enter_for_slot(&mut self, ticket: &Ticket, permits: u32, now: Moment) {
        let entry = QueueEntry {
            permits,
            ..QueueEntry::new(ticket, now)
        };
        self.write(ticket, entry);
    }

    fn write(&mut self, ticket: &Ticket, entry: QueueEntry) {
        self.none_ends_before_ms = self.none_ends_before_ms.min(entry.until_ms);
        self.may_wait_elsewhere |= entry.elsewhere;
        match self.find(ticket) {
            Ok(at) => self.entries[at] = entry,
            Err(at) => self.entries.insert(at, entry),
        }
    }

    /// Removes the ticket. Returns whether that can let other waiters acquire: it was the first
    /// ticket, or the first exclusive one.
    pub(super) fn leave(&mut self, ticket: &Ticket, mode: Mode) -> bool {
        let Ok(at) = self.find(ticket) else {
            return false;
        };
        let mut ahead = self.entries.range(..at);
        let first = match mode {
            Mode::Exclusive => ahead.all(|entry| entry.shared),
            Mode::Shared => at == 0,
        };
        self.entries.remove(at);
        first
    }

    /// Where the ticket is, or would be.
    fn find(&self, ticket: &Ticket) -> Result<usize, usize> {
        self.entries.binary_search_by(|other| other.cmp_to(ticket))
    }

    /// The tickets ahead of `ticket`; all tickets for a caller without one.
    pub(super) fn ahead_of(&self, ticket: Option<&Ticket>) -> Iter<'_, QueueEntry> {
        let end = match ticket {
            None => self.entries.len(),
            Some(ticket) => match self.find(ticket) {
                Ok(at) | Err(at) => at,
            },
        };
        self.entries.range(..end)
    }

    /// How many of the tickets ahead conflict with a claim in `mode`. Shared tickets do not
    /// conflict with each other.
    pub(super) fn count_ahead(&self, ticket: Option<&Ticket>, mode: Mode) -> u64 {
        let ahead = self.ahead_of(ticket);
        match mode {
            Mode::Exclusive => ahead.len() as u64,
            Mode::Shared => {
                let conflicts = |entry: &&QueueEntry| entry.conflicts_with(mode);
                ahead.filter(conflicts).count() as u64
            }
        }
    }

    /// When `ticket` may pass the tickets ahead of it, on the lease clock; `None`: not while they
    /// wait. A dead head must not block a node for ever. A head that waits for another held name is
    /// not dead and must not be passed.
    pub(super) fn may_pass_at(
        &self,
        rules: &Rules,
        ticket: Option<&Ticket>,
        mode: Mode,
        free_since_ms: u64,
    ) -> Option<u64> {
        let ahead = self.count_ahead(ticket, mode);
        if ahead == 0 {
            return Some(0);
        }
        let elsewhere = |entry: &QueueEntry| entry.elsewhere;
        let waits_elsewhere = || self.may_wait_elsewhere && self.ahead_of(ticket).any(elsewhere);
        if ticket.is_none() || waits_elsewhere() {
            return None;
        }
        let wait_ms = rules.grace_ms.saturating_mul(ahead);
        Some(free_since_ms.saturating_add(wait_ms))
    }

    /// Drops the conflicting tickets ahead of `ticket` that were not refreshed since the name became
    /// free: their owners did not acquire. A live owner re-enters with the same ticket.
    pub(super) fn pass(&mut self, ticket: &Ticket, mode: Mode, free_since_ms: u64) {
        if self.ahead_of(Some(ticket)).len() == 0 {
            return;
        }
        self.entries.retain(|entry| {
            entry.cmp_to(ticket).is_ge()
                || !entry.conflicts_with(mode)
                || entry.refreshed_ms >= free_since_ms
        });
    }

    /// The waiters to wake when the name becomes free for claims in `mode`: the head, or all
    /// leading readers, and the runner-up, which has to try after the grace. Never wakes `sender`,
    /// which knows it already. If `sender` is the head, wakes none: it will try again itself.
    pub(super) fn wakes(&self, rules: &Rules, sender: Option<&Ticket>, mode: Mode) -> Vec<Wake> {
        let is_sender = |entry: &QueueEntry| sender.is_some_and(|sender| entry.is(sender));
        if self.entries.front().is_some_and(is_sender) {
            return Vec::new();
        }
        let leading = self.entries.iter().take_while(|t| t.shared).count();
        let count = match mode {
            Mode::Shared => leading,
            Mode::Exclusive => (leading + 1).max(2),
        };
        let first = self.entries.iter().take(count).enumerate();
        let others = first.filter(|(_, entry)| !is_sender(entry));
        let wakes = others.map(|(ahead, entry)| Wake {
            ticket: entry.id.clone(),
            after_ms: match ahead < leading {
                true => 0,
                false => rules.grace_ms.saturating_mul(ahead as u64),
            },
            slot: None,
        });
        wakes.collect()
    }
}

impl QueueEntry {
    /// The ticket of an exclusive caller, refreshed now.
    fn new(ticket: &Ticket, now: Moment) -> Self {
        Self {
            since_us: ticket.since_us,
            id: ticket.id.to_string(),
            until_ms: now.lease_ms.saturating_add(TICKET_MS),
            refreshed_ms: now.lease_ms,
            elsewhere: false,
            shared: false,
            permits: 0,
            label: ticket.label.to_string(),
        }
    }

    fn conflicts_with(&self, mode: Mode) -> bool {
        mode == Mode::Exclusive || !self.shared
    }

    fn is(&self, ticket: &Ticket) -> bool {
        self.cmp_to(ticket).is_eq()
    }

    fn cmp_to(&self, ticket: &Ticket) -> std::cmp::Ordering {
        (self.since_us, self.id.as_str()).cmp(&(ticket.since_us, &ticket.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::of_clock(ms * 1000)
    }

    fn ticket(number: u64) -> Ticket {
        Ticket {
            since_us: number,
            id: format!("c.{number}").into(),
            first: true,
            label: "waiter".into(),
        }
    }

    /// A queue whose tickets were entered one millisecond after another.
    fn queue(tickets: u64) -> WaitQueue {
        let mut queue = WaitQueue::default();
        for number in 0..tickets {
            queue.enter(&ticket(number), Mode::Exclusive, false, at(number));
        }
        queue
    }

    #[test]
    fn tickets_are_gone_through_only_if_one_may_have_ended() {
        let mut queue = queue(100);
        queue.expire(at(100));
        // Nobody but a test changes a ticket like this. It stays, since nobody looks at it.
        queue.entries[50].until_ms = 0;
        queue.expire(at(TICKET_MS));
        assert_eq!(queue.entries.len(), 100, "the first ends after this time");
        queue.expire(at(TICKET_MS + 1));
        assert_eq!(
            queue.entries.len(),
            98,
            "the first, and the one in the middle"
        );
        queue.expire(at(TICKET_MS + 11));
        assert_eq!(queue.entries.len(), 88);
    }

    #[test]
    fn a_ticket_that_enters_late_ends_in_its_time() {
        let mut queue = queue(2);
        queue.enter(&ticket(0), Mode::Exclusive, false, at(900));
        queue.enter(&ticket(1), Mode::Exclusive, false, at(900));
        queue.expire(at(TICKET_MS + 10));
        assert_eq!(queue.entries.len(), 2, "both were refreshed");
        // The clock of the leases went back: this one ends before the others.
        queue.enter(&ticket(7), Mode::Exclusive, false, at(500));
        queue.expire(at(500 + TICKET_MS + 1));
        assert_eq!(queue.entries.len(), 2);
        queue.expire(at(900 + TICKET_MS + 1));
        assert!(queue.entries.is_empty());
        queue.enter(&ticket(8), Mode::Exclusive, false, at(1));
        queue.expire(at(TICKET_MS + 2));
        assert!(queue.entries.is_empty());
    }

    #[test]
    fn a_waiter_elsewhere_is_noticed_however_it_came() {
        let rules = Rules {
            window_us: 1,
            retention_ms: 1,
            grace_ms: 10,
            grants_from_us: 0,
        };
        let may_pass =
            |queue: &WaitQueue| queue.may_pass_at(&rules, Some(&ticket(9)), Mode::Exclusive, 5);
        let mut queue = queue(3);
        assert_eq!(may_pass(&queue), Some(35));
        queue.enter(&ticket(1), Mode::Exclusive, true, at(3));
        assert_eq!(may_pass(&queue), None);
        let stored: WaitQueue = queue.entries.iter().cloned().collect();
        assert_eq!(may_pass(&stored), None);
        queue.enter(&ticket(1), Mode::Exclusive, false, at(4));
        assert_eq!(may_pass(&queue), Some(35));
    }
}
