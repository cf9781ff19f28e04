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

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::message::{Claim, Place, Turn, Wake};
use crate::node::Hear;
use crate::protocol::quorum;
use crate::time::Timestamp;

use super::refreshing::{REFRESH, Refreshing};
use super::schedule::Due;
use super::ticket::TicketNodes;
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

/// One who waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    claims: Arc<[Claim]>,
    place: Place,
    what: WaitsFor,
    /// Which nodes may have its ticket.
    pub(super) nodes: TicketNodes,
    state: Mutex<State>,
    woken: Notify,
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitsFor {
    /// Its turn to hold.
    Lock,
    /// Its turn to have a slot of a semaphore.
    Slot,
    /// That enough arrive at a latch, which is kept for so long for the sake of those who wait.
    Latch { ttl_ms: u64 },
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
        what: WaitsFor,
    ) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            claims: Arc::clone(claims),
            place,
            what,
            nodes: TicketNodes::new(driver.nodes.len()),
            state: Mutex::new(State {
                due: None,
                attempting: true,
                turns: vec![None; driver.nodes.len()],
                arrived: vec![None; driver.nodes.len()],
            }),
            woken: Notify::new(),
        });
        let mut waiters = lock(&self.waiters);
        let ticket = Arc::clone(&waiter.place.id);
        waiters.by_ticket.insert(ticket, Arc::clone(&waiter));
        let listen = !std::mem::replace(&mut waiters.listening, true);
        let schedule = !std::mem::replace(&mut waiters.scheduled, true);
        drop(waiters);
        if listen {
            for node in &driver.nodes {
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
                let alike = (Arc::clone(&waiter.claims), waiter.what);
                groups.entry(alike).or_default().push(Arc::clone(waiter));
            }
            if waiters.scheduled {
                driver
                    .schedule
                    .insert(self.clock.now() + REFRESH, Due::Line);
            }
        }
        for ((claims, what), waiters) in groups {
            for waiters in waiters.chunks(PLACES_MAX) {
                Refreshing::begin(driver, &claims, what, waiters.to_vec());
            }
        }
    }
}

impl Hear for WaitingRoom {
    fn hear(&self, wake: Wake) {
        let mut waiters = lock(&self.waiters);
        let waiter = waiters.by_ticket.get(wake.ticket.as_str()).cloned();
        if let Some(waiter) = &waiter
            && waiter.what == WaitsFor::Lock
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

impl Waiter {
    /// Has it come at `at` for `slot`, unless it was told to come sooner.
    pub(super) fn wake(&self, at: Timestamp, slot: Option<u32>) {
        // The gate comes first. A slot that there is not is nothing to ask for.
        let slot = slot.filter(|slot| (*slot as usize) + 1 < self.claims.len());
        let slot = slot.filter(|_| self.what == WaitsFor::Slot);
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

    /// Where it stands.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// What it waits for.
    pub(super) fn claims(&self) -> &Arc<[Claim]> {
        &self.claims
    }

    /// In which way.
    pub(super) fn waits_for(&self) -> WaitsFor {
        self.what
    }

    /// Whether this is who waits at `place`.
    pub(crate) fn is_at(&self, place: &Place) -> bool {
        (self.place.since_us, &self.place.id) == (place.since_us, &place.id)
    }

    /// Whether its place is to be refreshed now. A ticket leaves the queue when it is granted, which an
    /// attempt under way may just have been: it must not be put back. The attempt refreshes it anyway.
    fn is_shown(&self) -> bool {
        let latch = matches!(self.what, WaitsFor::Latch { .. });
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
mod tests {
    use super::*;
    use crate::clock::SteppedClock;
    use crate::message::Mode;
    use crate::name::Name;

    /// One who waits for a semaphore of two, or for its names as a lock.
    fn waiter(what: WaitsFor) -> Waiter {
        let name = Name::new("", "s").unwrap();
        let names = [name.gate(), name.slot(0), name.slot(1)];
        let claims = names.map(|name| Claim {
            name,
            mode: Mode::Exclusive,
        });
        Waiter {
            claims: claims.into(),
            place: Place {
                since_us: 0,
                id: "c.1".into(),
                first: false,
            },
            what,
            nodes: TicketNodes::new(1),
            state: Mutex::new(State {
                due: None,
                attempting: false,
                turns: Vec::new(),
                arrived: Vec::new(),
            }),
            woken: Notify::new(),
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_earliest_wake_says_for_which_slot() {
        let waiter = waiter(WaitsFor::Slot);
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
        let waiter = waiter(WaitsFor::Lock);
        waiter.begin();
        waiter.wake(at(5), None);
        waiter.end();
        assert_eq!(lock(&waiter.state).due, Some((at(5), None)));
    }

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
        let waiter = Arc::new(waiter(WaitsFor::Lock));
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
        let next = Arc::new(waiter(WaitsFor::Slot));
        let room = room(&next);
        room.hear(Wake {
            ticket: "c.1".to_owned(),
            after_ms: 1500,
            slot: None,
        });
        assert!(lock(&room.waiters).next.is_empty());
    }

    #[test]
    fn a_ticket_that_may_just_have_been_granted_is_not_refreshed() {
        let latch = WaitsFor::Latch { ttl_ms: 1 };
        let cases = [
            (WaitsFor::Slot, false),
            (WaitsFor::Lock, false),
            (latch, true),
        ];
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
            (WaitsFor::Slot, 1, Some(1)),
            (WaitsFor::Slot, 2, None),
            (WaitsFor::Slot, u32::MAX, None),
            (WaitsFor::Lock, 0, None),
        ] {
            let waiter = waiter(what);
            waiter.wake(at(1), Some(slot));
            assert_eq!(lock(&waiter.state).due, Some((at(1), asked)), "{slot}");
        }
    }
}
