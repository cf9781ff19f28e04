//! One caller that waits: what it was told, and when it comes.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::message::{Claim, Place, Turn};
use crate::protocol::{Queue, TicketNodes, quorum};
use crate::time::Timestamp;

use super::lock;

/// One who waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) claims: Arc<[Claim]>,
    pub(super) place: Place,
    pub(super) queue: Queue,
    /// Which nodes may have its ticket.
    pub(super) nodes: Mutex<TicketNodes>,
    state: Mutex<State>,
    woken: Notify,
}

/// A wake that brings an attempt about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Woken {
    /// Which slot of a semaphore was freed, if that was told.
    pub(crate) slot: Option<u32>,
}

#[derive(Debug)]
struct State {
    /// When it was told to come, and for which slot of a semaphore.
    due: Option<(Timestamp, Option<u32>)>,
    /// An attempt is under way.
    attempting: bool,
    /// How it stands on each node, as last heard.
    turns: Vec<Option<Turn>>,
    /// How many each node said had arrived at the latch, when it was last looked at.
    arrived: Vec<Option<u64>>,
}

impl Waiter {
    /// One who waits for `claims` at `place`, on `nodes` nodes, and whose attempt is under way.
    pub(super) fn new(claims: &Arc<[Claim]>, place: Place, queue: Queue, nodes: usize) -> Self {
        Self {
            claims: Arc::clone(claims),
            place,
            queue,
            nodes: Mutex::new(TicketNodes::new(nodes)),
            state: Mutex::new(State {
                due: None,
                attempting: true,
                turns: vec![None; nodes],
                arrived: vec![None; nodes],
            }),
            woken: Notify::new(),
        }
    }

    /// Has it come at `at` for `slot`, unless it was told to come sooner.
    pub(super) fn wake(&self, at: Timestamp, slot: Option<u32>) {
        // The gate comes first. A slot that there is not is nothing to ask for.
        let slot = slot.filter(|slot| (*slot as usize) + 1 < self.claims.len());
        let slot = slot.filter(|_| self.queue == Queue::Slot);
        let mut state = lock(&self.state);
        // Every node tells it: one awakening is enough.
        if state.due.is_none_or(|(due, _)| at < due) {
            state.due = Some((at, slot));
            drop(state);
            self.woken.notify_one();
        }
    }

    /// Has it come at `now`: what it waits for has been freed.
    pub(crate) fn come(&self, now: Timestamp) {
        self.wake(now, None);
    }

    /// Whether this is who waits at `place`.
    pub(crate) fn is_at(&self, place: &Place) -> bool {
        (self.place.since_us, &self.place.id) == (place.since_us, &place.id)
    }

    /// Whether its place is to be refreshed now. A ticket leaves the queue when it is granted, which an
    /// attempt under way may just have been: it must not be put back. The attempt refreshes it anyway.
    pub(super) fn is_shown(&self) -> bool {
        let latch = matches!(self.queue, Queue::Latch { .. });
        latch || !lock(&self.state).attempting
    }

    /// An attempt begins: what it was told before is done with. A wake from now on counts after it.
    pub(crate) fn begin(&self) {
        let mut state = lock(&self.state);
        state.due = None;
        state.attempting = true;
    }

    /// The attempt is over, and lost.
    pub(crate) fn end(&self) {
        lock(&self.state).attempting = false;
    }

    /// Waits until `at`, or until it is woken, but then not before `wake_at`: by which wake, if it
    /// was one.
    pub(crate) async fn turn(
        &self,
        clock: &Clock,
        at: Timestamp,
        wake_at: Timestamp,
    ) -> Option<Woken> {
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
                () = clock.sleep_until(until) => {}
            }
        }
    }

    /// A look at the latch is over: so many had arrived, node by node. Only what differs is news.
    pub(crate) fn looked(&self, arrived: Vec<Option<u64>>) {
        let mut state = lock(&self.state);
        state.arrived = arrived;
        state.attempting = false;
    }

    /// Hears how many have arrived at the latch on `node`; whether that is news.
    pub(super) fn hears_of(&self, node: usize, arrived: u64) -> bool {
        let mut state = lock(&self.state);
        let news = !state.attempting && state.arrived[node] != Some(arrived);
        // Once is enough, whatever comes of the look.
        state.arrived[node] = Some(arrived);
        news
    }

    /// Hears how it stands on `node`; whether a majority would let it in.
    pub(super) fn stands(&self, node: usize, turn: Turn) -> bool {
        let mut state = lock(&self.state);
        state.turns[node] = Some(turn);
        let lets_in = |turn: &&Option<Turn>| turn.is_some_and(|t| t.free && t.ahead == 0);
        let entitled = state.turns.iter().filter(lets_in).count();
        let entitled = entitled >= quorum(state.turns.len());
        if entitled {
            // Once is enough: the next refresh says whether it still is so.
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

    /// One who waits for a semaphore of two, or for its names as a lock.
    pub(in crate::driver) fn waiter(queue: Queue) -> Waiter {
        let name = Name::new("", "s").unwrap();
        let names = [name.gate(), name.slot(0), name.slot(1)];
        let claims = names.map(|name| Claim {
            name,
            mode: Mode::Exclusive,
        });
        let place = Place {
            since_us: 0,
            id: "c.1".into(),
            first: false,
        };
        Waiter::new(&claims.into(), place, queue, 1)
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_earliest_wake_says_for_which_slot() {
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
        for (what, shown) in cases {
            let waiter = waiter(what);
            waiter.begin();
            assert_eq!(waiter.is_shown(), shown, "{what:?} during an attempt");
            waiter.end();
            assert!(waiter.is_shown(), "{what:?} between two");
        }
    }

    #[test]
    fn a_slot_that_there_is_not_is_not_asked_for() {
        for (what, slot, asked) in [
            (Queue::Slot, 1, Some(1)),
            (Queue::Slot, 2, None),
            (Queue::Slot, u32::MAX, None),
            (Queue::Lock, 0, None),
        ] {
            let waiter = waiter(what);
            waiter.wake(at(1), Some(slot));
            assert_eq!(lock(&waiter.state).due, Some((at(1), asked)), "{slot}");
        }
    }
}
