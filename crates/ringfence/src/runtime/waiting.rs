//! The waiting callers of one client: passes wakes on to them, and refreshes their tickets on the
//! nodes so that the tickets do not expire.
//!
//! A wake may be lost; the refresh polls the nodes at a fixed interval and finds the same. All
//! waiters of a client are refreshed together, with one request per set of names and node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::message::{Answer, Claim, Reply, Ticket, Wake};
use crate::node::{CallError, Deliver, Hear};
use crate::protocol::{Queue, TicketFate, refresh};
use crate::time::Timestamp;

use super::schedule::Due;
use super::waiter::Waiter;
use super::{ClientRuntime, lock};

/// The most tickets in one request, so that one request does not occupy a node for long.
const TICKETS_MAX: usize = 512;

/// The interval between refreshes. A ticket lives for more than three of them.
const REFRESH: Duration = Duration::from_millis(900);

/// See the module.
pub(crate) struct WaitingRoom {
    /// The client's id: the first half of its ticket ids, and the address of its wakes.
    client: String,
    clock: Clock,
    tickets: AtomicU64,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    /// Sorted, so that the same run sends its requests in the same order.
    by_ticket: BTreeMap<Arc<str>, Arc<Waiter>>,
    /// The next waiter of a lock, if a node has named it: the second in the queue at the last
    /// release.
    next: BTreeMap<Arc<[Claim]>, Arc<str>>,
    /// Whether this client listens for wakes on the nodes.
    listening: bool,
    /// Whether the next refresh is scheduled.
    scheduled: bool,
}

impl WaitingRoom {
    /// Whether the ticket with this id belongs to a caller of this client.
    pub(crate) fn owns(&self, ticket: &str) -> bool {
        let of_client = ticket.rsplit_once('.').map(|(client, _)| client);
        of_client == Some(&self.client)
    }

    pub(crate) fn new(client: String, clock: Clock) -> Self {
        Self {
            client,
            clock,
            tickets: AtomicU64::new(0),
            waiters: Mutex::default(),
        }
    }

    /// A new ticket id, different from every other.
    pub(crate) fn new_ticket_id(&self) -> Arc<str> {
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        format!("{}.{number}", self.client).into()
    }

    /// Adds a waiter for `claims` with `ticket`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        runtime: &ClientRuntime,
        claims: &Arc<[Claim]>,
        ticket: Ticket,
        queue: Queue,
    ) -> Arc<Waiter> {
        let nodes = runtime.sender.nodes.len();
        let waiter = Arc::new(Waiter::new(claims, ticket, queue, nodes));
        let mut waiters = lock(&self.waiters);
        let id = Arc::clone(&waiter.ticket.id);
        waiters.by_ticket.insert(id, Arc::clone(&waiter));
        let listen = !std::mem::replace(&mut waiters.listening, true);
        let schedule = !std::mem::replace(&mut waiters.scheduled, true);
        drop(waiters);
        if listen {
            for node in &runtime.sender.nodes {
                node.listen(&self.client, Arc::clone(self) as Arc<dyn Hear>);
            }
        }
        if schedule {
            runtime
                .schedule
                .insert(self.clock.now() + REFRESH, Due::Refresh);
        }
        waiter
    }

    /// Removes `waiter`.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        let mut waiters = lock(&self.waiters);
        waiters.by_ticket.remove(&waiter.ticket.id);
        if waiters.next.get(&waiter.claims) == Some(&waiter.ticket.id) {
            waiters.next.remove(&waiter.claims);
        }
    }

    /// The next waiter for `claims`, if a node has named one of this client. A holder of this
    /// client reads it before it sends its release: the next waiter need not wait for a wake,
    /// because its acquire arrives after that release.
    pub(crate) fn next(&self, claims: &Arc<[Claim]>) -> Option<Arc<Waiter>> {
        let mut waiters = lock(&self.waiters);
        let id = waiters.next.remove(claims)?;
        waiters.by_ticket.get(&id).cloned()
    }

    /// Refreshes the tickets of all waiters on the nodes.
    pub(crate) fn refresh(&self, runtime: &Arc<ClientRuntime>) {
        let mut groups: BTreeMap<_, Vec<Arc<Waiter>>> = BTreeMap::new();
        {
            let mut waiters = lock(&self.waiters);
            waiters.scheduled = !waiters.by_ticket.is_empty();
            for waiter in waiters.by_ticket.values() {
                if !waiter.needs_refresh() {
                    continue;
                }
                let group = (Arc::clone(&waiter.claims), waiter.queue);
                groups.entry(group).or_default().push(Arc::clone(waiter));
            }
            if waiters.scheduled {
                runtime
                    .schedule
                    .insert(self.clock.now() + REFRESH, Due::Refresh);
            }
        }
        for ((claims, queue), waiters) in groups {
            for waiters in waiters.chunks(TICKETS_MAX) {
                Refreshing::begin(runtime, &claims, queue, waiters.to_vec());
            }
        }
    }
}

impl Hear for WaitingRoom {
    fn hear(&self, wake: Wake) {
        let mut waiters = lock(&self.waiters);
        let waiter = waiters.by_ticket.get(wake.ticket.as_str()).cloned();
        if let Some(waiter) = &waiter
            && waiter.queue == Queue::Lock
            && wake.after_ms > 0
        {
            let id = Arc::clone(&waiter.ticket.id);
            waiters.next.insert(Arc::clone(&waiter.claims), id);
        }
        drop(waiters);
        if let Some(waiter) = waiter {
            // A hostile node may send any number. The next refresh wakes the waiter anyway.
            let after = Duration::from_millis(wake.after_ms).min(Duration::from_secs(3600));
            waiter.wake(self.clock.now() + after, wake.slot);
        }
    }
}

impl fmt::Debug for WaitingRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitingRoom({})", self.client)
    }
}

/// One refresh of waiting tickets on all nodes: keeps the tickets alive, and wakes the waiters that
/// the replies entitle to try.
pub(super) struct Refreshing {
    runtime: Arc<ClientRuntime>,
    waiters: Vec<Arc<Waiter>>,
    sent: Timestamp,
}

impl Refreshing {
    pub(super) fn begin(
        runtime: &Arc<ClientRuntime>,
        claims: &Arc<[Claim]>,
        queue: Queue,
        waiters: Vec<Arc<Waiter>>,
    ) {
        let tickets = waiters.iter().map(|waiter| &waiter.ticket);
        let request = refresh(claims, queue, tickets);
        let sent = runtime.sender.clock.now();
        let this: Arc<dyn Deliver<Reply>> = Arc::new(Self {
            runtime: Arc::clone(runtime),
            waiters,
            sent,
        });
        runtime.sender.send_all(request, sent + REFRESH, &this);
    }
}

impl Deliver<Reply> for Refreshing {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, now) = (tag as usize, self.runtime.sender.clock.now());
        // A caller on another thread may have got its grant since the refresh was sent.
        let fate = TicketFate::after_refresh(&outcome);
        for waiter in &self.waiters {
            waiter.note(&self.runtime, node, fate);
        }
        if self
            .runtime
            .sender
            .observe_reply(node, &outcome, self.sent, now)
            .is_some()
        {
            return;
        }
        match outcome.map(|reply| reply.answer) {
            Ok(Answer::Turns(turns)) => {
                for (waiter, turn) in self.waiters.iter().zip(turns) {
                    if waiter.observe_turn(node, turn) {
                        waiter.wake(now, None);
                    }
                }
            }
            Ok(Answer::Arrivals(arrivals)) => {
                for waiter in &self.waiters {
                    if waiter.observe_arrivals(node, arrivals.arrived) {
                        waiter.wake(now, None);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SteppedClock;
    use crate::runtime::waiter::tests::waiter;

    /// A room in which `waiter` waits.
    fn room(waiter: &Arc<Waiter>) -> WaitingRoom {
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let room = WaitingRoom::new("c".to_owned(), clock);
        let id = Arc::clone(&waiter.ticket.id);
        let mut waiters = lock(&room.waiters);
        waiters.by_ticket.insert(id, Arc::clone(waiter));
        drop(waiters);
        room
    }

    #[test]
    fn the_second_in_the_queue_is_the_next_once() {
        let waiter = Arc::new(waiter(Queue::Lock));
        let room = room(&waiter);
        let wake = |after_ms| Wake {
            ticket: "c.1".to_owned(),
            after_ms,
            slot: None,
        };
        let is_next = |claims| {
            room.next(claims)
                .is_some_and(|next| Arc::ptr_eq(&next, &waiter))
        };
        let others: Arc<[Claim]> = waiter.claims[..1].into();
        room.hear(wake(0));
        assert!(!is_next(&waiter.claims), "it is its turn now");
        room.hear(wake(1500));
        assert!(!is_next(&others));
        assert!(is_next(&waiter.claims));
        assert!(!is_next(&waiter.claims));
        room.hear(wake(1500));
        room.leave(&waiter);
        assert!(lock(&room.waiters).next.is_empty());
    }

    #[test]
    fn a_waiter_for_a_slot_is_woken_only_by_nodes() {
        let waiter = Arc::new(waiter(Queue::Slot));
        let room = room(&waiter);
        room.hear(Wake {
            ticket: "c.1".to_owned(),
            after_ms: 1500,
            slot: None,
        });
        assert!(lock(&room.waiters).next.is_empty());
    }
}
