//! The timers of one client: a sorted map behind a mutex, so that taking and releasing a lock
//! costs two short insertions and no message to a task. The keeper executes the entries.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::environment::KernelTimer;
use crate::message::Claim;
use crate::time::Timestamp;

use super::hold::{HeldLock, HolderTask};
use super::lock;
use super::releasing::Releasing;
use super::surplus_slots::SurplusSlots;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Mutex<Entries>,
    /// Notified when an entry is due before the keeper wakes, or the client was dropped.
    changed: Notify,
    /// Sets the keeper's timer.
    kernel_timer: OnceLock<KernelTimer>,
}

#[derive(Debug, Default)]
struct Entries {
    map: BTreeMap<ScheduleKey, Due>,
    next: u64,
    /// When the keeper wakes by itself. Removing an entry does not change it: one needless
    /// wake-up is cheaper than setting a timer for every lock.
    wake_at: Option<Timestamp>,
    /// The keeper has ended with its tokio runtime: no entry is executed.
    ended: bool,
}

/// Identifies an entry, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScheduleKey(Timestamp, u64);

impl ScheduleKey {
    /// When the entry is due.
    pub(crate) fn at(self) -> Timestamp {
        self.0
    }
}

/// What to do when an entry is due.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    /// A timeout of a hold: a renewal, a round, or its deadline.
    HeldLock(Arc<HeldLock>),
    /// A timeout of a release or undo.
    Release(Arc<Releasing>),
    /// The timeout of an attempt that won a slot while some nodes had not answered.
    SurplusSlots(Arc<SurplusSlots>),
    /// The tickets of this client's waiters are refreshed.
    Refresh,
    /// A sleeping task is woken.
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
    /// Schedules `due` for `at`.
    pub(crate) fn insert(&self, at: Timestamp, due: Due) -> ScheduleKey {
        let mut entries = lock(&self.entries);
        entries.next += 1;
        let key = ScheduleKey(at, entries.next);
        if entries.ended {
            // An entry that is never executed would keep the client and its connections alive for
            // ever.
            drop(entries);
            drop(due);
            return key;
        }
        entries.map.insert(key, due);
        let early = entries.wake_at.is_none_or(|wake_at| at < wake_at);
        if early {
            entries.wake_at = Some(at);
        }
        drop(entries);
        if early {
            self.changed.notify_one();
        }
        key
    }

    /// Ends the schedule: drops all entries and wakes all sleepers.
    pub(crate) fn end(&self) {
        let mut entries = lock(&self.entries);
        entries.ended = true;
        let left = std::mem::take(&mut entries.map);
        // After unlocking: dropping an entry may call the schedule again.
        drop(entries);
        left.values().for_each(Due::wake);
    }

    /// Wakes all sleepers, because the client is closed.
    pub(crate) fn wake_sleepers(&self) {
        let is_sleeper = |due: &&Due| matches!(due, Due::Sleeper(_));
        let entries = lock(&self.entries);
        let sleepers: Vec<Due> = entries.map.values().filter(is_sleeper).cloned().collect();
        drop(entries);
        sleepers.iter().for_each(Due::wake);
    }

    /// Removes an entry before it is due.
    pub(crate) fn remove(&self, key: ScheduleKey) {
        // Dropped after unlocking: dropping an entry may call the schedule again.
        let removed = lock(&self.entries).map.remove(&key);
        drop(removed);
    }

    /// From now on `kernel_timer` is what the keeper waits for.
    pub(crate) fn wakes_by(&self, kernel_timer: KernelTimer) {
        let _ = self.kernel_timer.set(kernel_timer);
    }

    /// Lets the keeper sleep until the next entry, if the one that it waits for was removed. For a
    /// renewal, which usually ends long before its timeout. Costs a system call, so a lock that is
    /// taken and released must not use it.
    pub(crate) fn postpone(&self) {
        let mut entries = lock(&self.entries);
        let next = entries.map.first_key_value().map(|(key, _)| key.0);
        let (Some(next), Some(wake_at)) = (next, entries.wake_at) else {
            return;
        };
        // Under the mutex: an earlier entry that is inserted meanwhile wakes the keeper after this.
        if next > wake_at
            && self
                .kernel_timer
                .get()
                .is_some_and(|kernel_timer| kernel_timer.set(next))
        {
            entries.wake_at = Some(next);
        }
    }

    /// Removes and returns the next entry that is due at `now`.
    pub(crate) fn pop(&self, now: Timestamp) -> Option<Due> {
        let mut entries = lock(&self.entries);
        let first = entries.map.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Completes once `clock` has reached `at`. For timeouts that are almost always cancelled: that
    /// costs two short map operations, less than a timer of the tokio runtime.
    pub(crate) fn sleep_until<'a>(&'a self, at: Timestamp, clock: &'a Clock) -> Sleep<'a> {
        Sleep {
            schedule: self,
            clock,
            at,
            key: None,
        }
    }

    /// Sets the waker of the sleeper under `key`. Returns whether it still sleeps.
    fn wake_through(&self, key: ScheduleKey, waker: &Waker) -> bool {
        match lock(&self.entries).map.get_mut(&key) {
            Some(Due::Sleeper(known)) => {
                known.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    /// When the next entry is due. The keeper wakes at that time.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let mut entries = lock(&self.entries);
        entries.wake_at = entries.map.first_key_value().map(|(key, _)| key.0);
        entries.wake_at
    }

    /// A hold that `task` acquired and that conflicts with one of `claims`. Searches all entries:
    /// for warnings only.
    pub(crate) fn hold_of(&self, task: HolderTask, claims: &[Claim]) -> Option<Arc<HeldLock>> {
        let conflicting = |due: &Due| match due {
            Due::HeldLock(hold) => hold
                .excludes(&hold.runtime, claims)
                .then(|| Arc::clone(hold)),
            Due::Release(_) | Due::SurplusSlots(_) | Due::Refresh | Due::Sleeper(_) => None,
        };
        let entries = lock(&self.entries);
        let holds: Vec<Arc<HeldLock>> = entries.map.values().filter_map(conflicting).collect();
        // Unlock before locking a hold: a locked hold locks the schedule.
        drop(entries);
        holds.into_iter().find(|hold| hold.task() == task)
    }

    /// Completes when an entry may be due before the keeper wakes.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Wakes the keeper.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
    }
}

/// See [`Schedule::sleep_until`].
pub(crate) struct Sleep<'a> {
    schedule: &'a Schedule,
    clock: &'a Clock,
    at: Timestamp,
    key: Option<ScheduleKey>,
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

    /// Whether the keeper has been woken.
    fn is_woken(schedule: &Schedule) -> bool {
        let changed = pin!(schedule.changed());
        let mut cx = Context::from_waker(Waker::noop());
        changed.poll(&mut cx).is_ready()
    }

    #[test]
    fn the_keeper_is_woken_only_for_entries_due_before_its_next_wake_up() {
        let schedule = Schedule::default();
        let first = schedule.insert(at(10), Due::Refresh);
        assert!(is_woken(&schedule));
        assert_eq!(schedule.next(), Some(at(10)));
        schedule.remove(first);
        // Lock after lock: the keeper wakes at 10, finds no entry due, and reads the next time.
        let second = schedule.insert(at(20), Due::Refresh);
        assert!(!is_woken(&schedule));
        schedule.insert(at(5), Due::Refresh);
        assert!(is_woken(&schedule));
        schedule.insert(at(6), Due::Refresh);
        assert!(!is_woken(&schedule));
        while schedule.pop(at(10)).is_some() {}
        assert_eq!(schedule.next(), Some(at(20)));
        schedule.remove(second);
        assert_eq!(schedule.next(), None);
        schedule.insert(at(30), Due::Refresh);
        assert!(is_woken(&schedule));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_keeper_sleeps_on_if_its_entry_was_removed() {
        use crate::environment::Timer;
        let (schedule, timer) = (Schedule::default(), Timer::new(Clock::System));
        let kernel_timer = || timer.kernel_timer().unwrap();
        schedule.wakes_by(kernel_timer());
        let hours = |hours: u64| Clock::System.now() + Duration::from_secs(3600 * hours);
        let first = schedule.insert(hours(1), Due::Refresh);
        assert!(is_woken(&schedule));
        assert!(kernel_timer().set(schedule.next().unwrap()));
        schedule.insert(hours(5), Due::Refresh);
        schedule.postpone();
        assert!(kernel_timer().left() < Duration::from_secs(2 * 3600));
        schedule.remove(first);
        schedule.postpone();
        assert!(kernel_timer().left() > Duration::from_secs(4 * 3600));
        assert!(!is_woken(&schedule));
        // An earlier entry still wakes it.
        schedule.insert(hours(3), Due::Refresh);
        assert!(is_woken(&schedule));
    }

    #[test]
    fn a_sleeper_is_on_the_schedule_until_its_time_or_its_drop() {
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
            assert_eq!(schedule.next(), None, "it had one entry");
            // Woken too early, it sleeps again.
            assert!(sleep.as_mut().poll(&mut cx).is_pending());
            assert_eq!(schedule.next(), Some(at(10)));
            time.step(Duration::from_millis(10));
            assert!(sleep.as_mut().poll(&mut cx).is_ready());
        }
        assert_eq!(schedule.next(), None);
    }
}
