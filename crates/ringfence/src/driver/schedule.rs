//! What is due when, for one client: a sorted map behind a mutex, so that taking and releasing a
//! lock costs two short insertions and no message to a task.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::message::{Claim, Mode};
use crate::time::Timestamp;

use super::hold::{Hold, Taker};
use super::lock;
use super::releasing::Releasing;
use super::strays::Strays;

/// What is due when.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Mutex<Entries>,
    /// Something is due earlier than the keeper thinks, or the client is gone.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    map: BTreeMap<Key, Due>,
    next: u64,
    /// When the keeper looks again without being told. Not moved when something is taken out: to look
    /// once in vain is cheaper than to set an alarm for every lock.
    alarm: Option<Timestamp>,
    /// The keeper is gone, with its runtime: nothing is done any more.
    ended: bool,
}

/// Where an entry stands; needed to take it out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Timestamp, u64);

impl Key {
    /// When the entry is due.
    pub(crate) fn at(self) -> Timestamp {
        self.0
    }
}

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    /// A hold is to be renewed, or has reached its deadline.
    Hold(Arc<Hold>),
    /// A release or undo has to be looked at.
    Release(Arc<Releasing>),
    /// Nodes that have not said which slot they gave have had their time.
    Strays(Arc<Strays>),
    /// Those who wait in line have to show that they still do.
    Line,
    /// Somebody is to be woken.
    Sleeper(Waker),
}

impl Due {
    /// Wakes the sleeper, if it is one.
    fn wake(&self) {
        if let Self::Sleeper(waker) = self {
            waker.wake_by_ref();
        }
    }
}

impl Schedule {
    /// Has `due` done at `at`.
    pub(crate) fn insert(&self, at: Timestamp, due: Due) -> Key {
        let mut entries = lock(&self.entries);
        entries.next += 1;
        let key = Key(at, entries.next);
        if entries.ended {
            // Kept, it would keep the client alive for ever, and its connections with it.
            drop(entries);
            drop(due);
            return key;
        }
        entries.map.insert(key, due);
        let early = entries.alarm.is_none_or(|alarm| at < alarm);
        if early {
            entries.alarm = Some(at);
        }
        drop(entries);
        if early {
            self.changed.notify_one();
        }
        key
    }

    /// Nothing that is due is done any more: forgets everything, and wakes all who sleep.
    pub(crate) fn end(&self) {
        let mut entries = lock(&self.entries);
        entries.ended = true;
        let left = std::mem::take(&mut entries.map);
        // After the lock: what was due may itself come back here when it is dropped.
        drop(entries);
        left.values().for_each(Due::wake);
    }

    /// Wakes all who sleep: the client is closed.
    pub(crate) fn wake_sleepers(&self) {
        let is_sleeper = |due: &&Due| matches!(due, Due::Sleeper(_));
        let entries = lock(&self.entries);
        let sleepers: Vec<Due> = entries.map.values().filter(is_sleeper).cloned().collect();
        drop(entries);
        sleepers.iter().for_each(Due::wake);
    }

    /// Takes an entry out before it is due.
    pub(crate) fn remove(&self, key: Key) {
        // Dropped after the lock is: what was due may itself come back here when it is dropped.
        let removed = lock(&self.entries).map.remove(&key);
        drop(removed);
    }

    /// The next thing that is due at `now`.
    pub(crate) fn pop(&self, now: Timestamp) -> Option<Due> {
        let mut entries = lock(&self.entries);
        let first = entries.map.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Completes once `clock` has reached `at`. For those who hardly ever wait that long: unlike a timer
    /// of the runtime, what is taken back in time has cost two short insertions.
    pub(crate) fn sleep_until<'a>(&'a self, at: Timestamp, clock: &'a Clock) -> Sleep<'a> {
        Sleep {
            schedule: self,
            clock,
            at,
            key: None,
        }
    }

    /// Has the sleeper under `key` woken through `waker`. Whether it still sleeps.
    fn wake_through(&self, key: Key, waker: &Waker) -> bool {
        match lock(&self.entries).map.get_mut(&key) {
            Some(Due::Sleeper(known)) => {
                known.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    /// When the next thing is due. The keeper promises to look again then.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let mut entries = lock(&self.entries);
        entries.alarm = entries.map.first_key_value().map(|(key, _)| key.0);
        entries.alarm
    }

    /// A hold that `taker` took and that is in the way of any of `claims`. Looks through all of them: for
    /// warnings only.
    pub(crate) fn hold_of(&self, taker: Taker, claims: &[Claim]) -> Option<Arc<Hold>> {
        let clash = |a: &Claim, b: &Claim| {
            a.name == b.name && (a.mode, b.mode) != (Mode::Shared, Mode::Shared)
        };
        let in_the_way = |due: &Due| match due {
            Due::Hold(hold) => {
                let ours = &hold.id().claims;
                let same = ours.iter().any(|a| claims.iter().any(|b| clash(a, b)));
                same.then(|| Arc::clone(hold))
            }
            Due::Release(_) | Due::Strays(_) | Due::Line | Due::Sleeper(_) => None,
        };
        let entries = lock(&self.entries);
        let holds: Vec<Arc<Hold>> = entries.map.values().filter_map(in_the_way).collect();
        // Before a hold is locked: a hold that is locked locks the schedule.
        drop(entries);
        holds.into_iter().find(|hold| hold.taker() == taker)
    }

    /// Completes when something may be due earlier than the keeper looks.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Has the keeper look again.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
    }
}

/// See [`Schedule::sleep_until`].
pub(crate) struct Sleep<'a> {
    schedule: &'a Schedule,
    clock: &'a Clock,
    at: Timestamp,
    key: Option<Key>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        let sleeps = |key| self.schedule.wake_through(key, cx.waker());
        if !self.key.is_some_and(sleeps) {
            let due = Due::Sleeper(cx.waker().clone());
            self.key = Some(self.schedule.insert(self.at, due));
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.schedule.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use crate::clock::SteppedClock;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Whether the keeper has been told to look.
    fn told(schedule: &Schedule) -> bool {
        let changed = pin!(schedule.changed());
        let mut cx = Context::from_waker(Waker::noop());
        changed.poll(&mut cx).is_ready()
    }

    #[test]
    fn the_keeper_is_told_only_of_what_is_due_before_it_looks_anyway() {
        let schedule = Schedule::default();
        let first = schedule.insert(at(10), Due::Line);
        assert!(told(&schedule));
        assert_eq!(schedule.next(), Some(at(10)));
        schedule.remove(first);
        // Lock after lock: the keeper looks at 10, finds nothing due, and sees what is then.
        let second = schedule.insert(at(20), Due::Line);
        assert!(!told(&schedule));
        schedule.insert(at(5), Due::Line);
        assert!(told(&schedule));
        schedule.insert(at(6), Due::Line);
        assert!(!told(&schedule));
        while schedule.pop(at(10)).is_some() {}
        assert_eq!(schedule.next(), Some(at(20)));
        schedule.remove(second);
        assert_eq!(schedule.next(), None);
        schedule.insert(at(30), Due::Line);
        assert!(told(&schedule));
    }

    #[test]
    fn a_sleeper_is_on_the_schedule_until_it_is_time_or_it_is_gone() {
        let (schedule, time) = (Schedule::default(), SteppedClock::default());
        let clock = Clock::Stepped(time.clone());
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut sleep = pin!(schedule.sleep_until(at(10), &clock));
            assert!(sleep.as_mut().poll(&mut cx).is_pending());
            assert!(sleep.as_mut().poll(&mut cx).is_pending());
            assert_eq!(schedule.next(), Some(at(10)));
            assert!(schedule.pop(at(9)).is_none());
            assert!(matches!(schedule.pop(at(10)), Some(Due::Sleeper(_))));
            assert_eq!(schedule.next(), None, "it stood there once");
            // Woken too early it goes on sleeping.
            assert!(sleep.as_mut().poll(&mut cx).is_pending());
            assert_eq!(schedule.next(), Some(at(10)));
            time.step(Duration::from_millis(10));
            assert!(sleep.as_mut().poll(&mut cx).is_ready());
        }
        assert_eq!(schedule.next(), None);
    }
}
