//! Those of this client who wait in line: woken when it is their turn, and shown to the nodes now
//! and then so that they keep their places.
//!
//! A wake is a hint that may be lost; the refresh behind it is the bounded poll. All of a client's
//! waiters are refreshed together, one request for each set of names and node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::message::{Claim, Place, Wake};
use crate::node::Hear;
use crate::protocol::Queue;

use super::refreshing::{REFRESH, Refreshing};
use super::schedule::Due;
use super::waiter::Waiter;
use super::{Driver, lock};

/// The most places in one request, so that one request does not occupy a node for long.
const PLACES_MAX: usize = 512;

/// Where this client's callers wait.
pub(crate) struct WaitingRoom {
    /// Whose tickets these are: the first half of their ids, and where wakes go.
    client: String,
    clock: Clock,
    tickets: AtomicU64,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    /// In an order, so that the same run asks the nodes in the same order.
    by_ticket: BTreeMap<Arc<str>, Arc<Waiter>>,
    /// Who comes next at a lock, as far as the nodes have told: the runner-up when it was last freed.
    next: BTreeMap<Arc<[Claim]>, Arc<str>>,
    /// Whether the nodes have been asked to tell us of wakes.
    listening: bool,
    /// Whether the next refresh stands on the schedule.
    scheduled: bool,
}

impl WaitingRoom {
    pub(crate) fn new(client: String, clock: Clock) -> Self {
        Self {
            client,
            clock,
            tickets: AtomicU64::new(0),
            waiters: Mutex::default(),
        }
    }

    /// A ticket that nobody else has.
    pub(crate) fn ticket(&self) -> Arc<str> {
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        format!("{}.{number}", self.client).into()
    }

    /// Lets somebody wait at `place` for `claims`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        driver: &Driver,
        claims: &Arc<[Claim]>,
        place: Place,
        queue: Queue,
    ) -> Arc<Waiter> {
        let nodes = driver.sender.nodes.len();
        let waiter = Arc::new(Waiter::new(claims, place, queue, nodes));
        let mut waiters = lock(&self.waiters);
        let ticket = Arc::clone(&waiter.place.id);
        waiters.by_ticket.insert(ticket, Arc::clone(&waiter));
        let listen = !std::mem::replace(&mut waiters.listening, true);
        let schedule = !std::mem::replace(&mut waiters.scheduled, true);
        drop(waiters);
        if listen {
            for node in &driver.sender.nodes {
                node.listen(&self.client, Arc::clone(self) as Arc<dyn Hear>);
            }
        }
        if schedule {
            driver
                .schedule
                .insert(self.clock.now() + REFRESH, Due::Line);
        }
        waiter
    }

    /// Whoever waited with `waiter` waits no longer.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        let mut waiters = lock(&self.waiters);
        waiters.by_ticket.remove(&waiter.place.id);
        if waiters.next.get(&waiter.claims) == Some(&waiter.place.id) {
            waiters.next.remove(&waiter.claims);
        }
    }

    /// Who comes next at `claims`, if the nodes have told that it is one of ours. Asked by a holder
    /// of this client before it sends its release: the next need not wait to be woken then, since
    /// what it sends arrives behind that.
    pub(crate) fn next(&self, claims: &Arc<[Claim]>) -> Option<Arc<Waiter>> {
        let mut waiters = lock(&self.waiters);
        let ticket = waiters.next.remove(claims)?;
        waiters.by_ticket.get(&ticket).cloned()
    }

    /// Shows all who wait to the nodes.
    pub(crate) fn refresh(&self, driver: &Arc<Driver>) {
        let mut groups: BTreeMap<_, Vec<Arc<Waiter>>> = BTreeMap::new();
        {
            let mut waiters = lock(&self.waiters);
            waiters.scheduled = !waiters.by_ticket.is_empty();
            for waiter in waiters.by_ticket.values() {
                if !waiter.is_shown() {
                    continue;
                }
                let alike = (Arc::clone(&waiter.claims), waiter.queue);
                groups.entry(alike).or_default().push(Arc::clone(waiter));
            }
            if waiters.scheduled {
                driver
                    .schedule
                    .insert(self.clock.now() + REFRESH, Due::Line);
            }
        }
        for ((claims, queue), waiters) in groups {
            for waiters in waiters.chunks(PLACES_MAX) {
                Refreshing::begin(driver, &claims, queue, waiters.to_vec());
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
            let next = Arc::clone(&waiter.place.id);
            waiters.next.insert(Arc::clone(&waiter.claims), next);
        }
        drop(waiters);
        if let Some(waiter) = waiter {
            // A node may say anything; nobody sleeps for longer than the next refresh because of it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SteppedClock;
    use crate::driver::waiter::tests::waiter;

    /// A room in which `waiter` waits.
    fn room(waiter: &Arc<Waiter>) -> WaitingRoom {
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let room = WaitingRoom::new("c".to_owned(), clock);
        let ticket = Arc::clone(&waiter.place.id);
        let mut waiters = lock(&room.waiters);
        waiters.by_ticket.insert(ticket, Arc::clone(waiter));
        drop(waiters);
        room
    }

    #[test]
    fn the_runner_up_is_the_next_once() {
        let waiter = Arc::new(waiter(Queue::Lock));
        let room = room(&waiter);
        let told = |after_ms| Wake {
            ticket: "c.1".to_owned(),
            after_ms,
            slot: None,
        };
        let is_next = |claims| {
            room.next(claims)
                .is_some_and(|it| Arc::ptr_eq(&it, &waiter))
        };
        let others: Arc<[Claim]> = waiter.claims[..1].into();
        room.hear(told(0));
        assert!(!is_next(&waiter.claims), "it is its turn now");
        room.hear(told(1500));
        assert!(!is_next(&others));
        assert!(is_next(&waiter.claims));
        assert!(!is_next(&waiter.claims));
        room.hear(told(1500));
        room.leave(&waiter);
        assert!(lock(&room.waiters).next.is_empty());
    }

    #[test]
    fn who_waits_for_a_slot_is_woken_by_the_nodes_alone() {
        let next = Arc::new(waiter(Queue::Slot));
        let room = room(&next);
        room.hear(Wake {
            ticket: "c.1".to_owned(),
            after_ms: 1500,
            slot: None,
        });
        assert!(lock(&room.waiters).next.is_empty());
    }
}
