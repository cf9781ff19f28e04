//! One waiting caller: which wakes it got, and when it may try again.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::message::{Claim, Ticket, Turn};
use crate::protocol::{Queue, TicketNodes, quorum};
use crate::time::Timestamp;

use super::{ClientRuntime, lock};

/// A caller in the wait queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) claims: Arc<[Claim]>,
    pub(super) ticket: Ticket,
    pub(super) queue: Queue,
    /// Which nodes may have its ticket.
    pub(super) nodes: Mutex<TicketNodes>,
    state: Mutex<WaiterState>,
    woken: Notify,
}

/// A wake that led to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Woken {
    /// The slot of a semaphore that was freed, if the wake named one.
    pub(crate) slot: Option<u32>,
}

#[derive(Debug)]
struct WaiterState {
    /// When a wake lets it try, and for which slot of a semaphore.
    due: Option<(Timestamp, Option<u32>)>,
    /// An attempt is in progress.
    attempting: bool,
    /// Its last known position in the queue of each node.
    turns: Vec<Option<Turn>>,
    /// How many parties had arrived at the latch, by the last answer of each node.
    arrived: Vec<Option<u64>>,
}

impl Waiter {
    /// A waiter for `claims` with `ticket`, on `nodes` nodes, with an attempt in
    /// progress.
    pub(super) fn new(claims: &Arc<[Claim]>, ticket: Ticket, queue: Queue, nodes: usize) -> Self {
        Self {
            claims: Arc::clone(claims),
            ticket,
            queue,
            nodes: Mutex::new(TicketNodes::new(nodes)),
            state: Mutex::new(WaiterState {
                due: None,
                attempting: true,
                turns: vec![None; nodes],
                arrived: vec![None; nodes],
            }),
            woken: Notify::new(),
        }
    }

    /// Lets it try at `at` for `slot`, unless an earlier wake is due sooner.
    pub(super) fn wake(&self, at: Timestamp, slot: Option<u32>) {
        // The first claim is the admission record. Ignore unknown slot numbers.
        let slot = slot.filter(|slot| (*slot as usize) + 1 < self.claims.len());
        let slot = slot.filter(|_| self.queue == Queue::Slot);
        let mut state = lock(&self.state);
        // Every node sends a wake: one is enough.
        if state.due.is_none_or(|(due, _)| at < due) {
            state.due = Some((at, slot));
            drop(state);
            self.woken.notify_one();
        }
    }

    /// Whether this is the waiter of `ticket`.
    pub(crate) fn has(&self, ticket: &Ticket) -> bool {
        (self.ticket.since_us, &self.ticket.id) == (ticket.since_us, &ticket.id)
    }

    /// Whether its ticket is refreshed now. Not during an attempt: a node that grants removes the
    /// ticket from the queue, and a refresh would enter it again. The attempt keeps the ticket
    /// alive anyway.
    pub(super) fn needs_refresh(&self) -> bool {
        let latch = matches!(self.queue, Queue::Latch { .. });
        latch || !lock(&self.state).attempting
    }

    /// An attempt begins. It uses up the earlier wakes; a wake from now on counts after it.
    pub(crate) fn begin(&self) {
        let mut state = lock(&self.state);
        state.due = None;
        state.attempting = true;
    }

    /// The attempt has lost.
    pub(crate) fn end(&self) {
        lock(&self.state).attempting = false;
    }

    /// Waits until `at` or until a wake, but for a wake not before `wake_at`. Returns the wake, if
    /// there was one.
    pub(crate) async fn wait_for_wake(
        &self,
        runtime: &ClientRuntime,
        at: Timestamp,
        wake_at: Timestamp,
    ) -> Option<Woken> {
        let clock = &runtime.sender.clock;
        loop {
            let due = lock(&self.state).due;
            let due = due.map(|(due, slot)| (due.max(wake_at), Woken { slot }));
            let (until, woken) = match due.filter(|(due, _)| *due <= at) {
                Some((due, woken)) => (due, Some(woken)),
                None => (at, None),
            };
            if until <= clock.now() {
                return woken;
            }
            tokio::select! {
                biased;
                () = self.woken.notified() => {}
                () = runtime.schedule.sleep_until(until, clock) => {}
            }
        }
    }

    /// A round on the latch has ended with these numbers of arrivals, in node order. Only a
    /// different number is news.
    pub(crate) fn set_arrivals(&self, arrived: Vec<Option<u64>>) {
        let mut state = lock(&self.state);
        state.arrived = arrived;
        state.attempting = false;
    }

    /// Records how many parties have arrived at the latch on `node`. Returns whether that is news.
    pub(super) fn observe_arrivals(&self, node: usize, arrived: u64) -> bool {
        let mut state = lock(&self.state);
        let news = !state.attempting && state.arrived[node] != Some(arrived);
        // Report each number once, whatever the next round finds.
        state.arrived[node] = Some(arrived);
        news
    }

    /// Records its position on `node`. Returns whether a majority would grant to it.
    pub(super) fn observe_turn(&self, node: usize, turn: Turn) -> bool {
        let mut state = lock(&self.state);
        state.turns[node] = Some(turn);
        let grants = |turn: &&Option<Turn>| turn.is_some_and(|t| t.free && t.ahead == 0);
        let entitled = state.turns.iter().filter(grants).count();
        let entitled = entitled >= quorum(state.turns.len());
        if entitled {
            // Report it once: the next refresh shows whether it is still true.
            state.turns.fill(None);
        }
        entitled
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::Mode;
    use crate::name::Name;

    /// A waiter for a semaphore with two permits, or for the same names as a lock.
    pub(in crate::runtime) fn waiter(queue: Queue) -> Waiter {
        let name = Name::new("", "s").unwrap();
        let names = [name.admission(), name.slot(0), name.slot(1)];
        let claims = names.map(|name| Claim {
            name,
            mode: Mode::Exclusive,
        });
        let ticket = Ticket {
            since_us: 0,
            id: "c.1".into(),
            first: false,
            label: "waiter".into(),
        };
        Waiter::new(&claims.into(), ticket, queue, 1)
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_earliest_wake_decides_the_slot() {
        let waiter = waiter(Queue::Slot);
        let due = || lock(&waiter.state).due;
        waiter.wake(at(9), None);
        waiter.wake(at(5), Some(1));
        waiter.wake(at(5), Some(0));
        waiter.wake(at(7), None);
        assert_eq!(due(), Some((at(5), Some(1))));
        waiter.begin();
        assert_eq!(due(), None);
    }

    #[test]
    fn a_wake_during_an_attempt_counts_after_it() {
        let waiter = waiter(Queue::Lock);
        waiter.begin();
        waiter.wake(at(5), None);
        waiter.end();
        assert_eq!(lock(&waiter.state).due, Some((at(5), None)));
    }

    #[test]
    fn a_ticket_that_may_just_have_been_granted_is_not_refreshed() {
        let latch = Queue::Latch { ttl_ms: 1 };
        let cases = [(Queue::Slot, false), (Queue::Lock, false), (latch, true)];
        for (queue, refreshed) in cases {
            let waiter = waiter(queue);
            waiter.begin();
            assert_eq!(waiter.needs_refresh(), refreshed, "{queue:?}");
            waiter.end();
            assert!(waiter.needs_refresh(), "{queue:?} between two attempts");
        }
    }

    #[test]
    fn unknown_slot_numbers_are_ignored() {
        for (queue, slot, asked) in [
            (Queue::Slot, 1, Some(1)),
            (Queue::Slot, 2, None),
            (Queue::Slot, u32::MAX, None),
            (Queue::Lock, 0, None),
        ] {
            let waiter = waiter(queue);
            waiter.wake(at(1), Some(slot));
            assert_eq!(lock(&waiter.state).due, Some((at(1), asked)), "{slot}");
        }
    }
}
