//! The timers of one client: a sorted map behind a mutex, so that taking and releasing a lock
//! costs two short insertions and no message to a task. The keeper executes the entries. If it is
//! late, the second line executes those of holds (`second.rs`).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::environment::KernelTimer;
use crate::message::Claim;
use crate::time::Timestamp;

use super::hold::{HeldLock, HolderTask};
use super::lock;
use super::releasing::Releasing;
use super::second::SecondLine;
use super::surplus_slots::SurplusSlots;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Mutex<Entries>,
    /// Notified when an entry is due before the keeper wakes, or the client was dropped.
    changed: Notify,
    /// Sets the keeper's timer.
    kernel_timer: OnceLock<KernelTimer>,
    /// The second line, if it watches this client.
    second: OnceLock<&'static SecondLine>,
    /// The second line executes the entries of holds when they are due. Set once the keeper was
    /// late, until it runs again.
    taken_over: AtomicBool,
    /// A renewal over the client's own connections failed because nodes did not answer.
    second_wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct Entries {
    /// Timeouts of holds.
    holds: BTreeMap<ScheduleKey, Arc<HeldLock>>,
    others: BTreeMap<ScheduleKey, Due>,
    next: u64,
    /// When the keeper wakes by itself. Removing an entry does not change it: one needless
    /// wake-up is cheaper than setting a timer for every lock.
    wake_at: Option<Timestamp>,
    /// The keeper has ended with its tokio runtime: no entry is executed.
    ended: bool,
    /// How late the keeper may be before the second line takes over: a part of the shortest TTL of
    /// this client's locks. `None` before the first lock.
    may_be_late: Option<Duration>,
    /// When the second line looks next. As for `wake_at`, removing an entry does not change it.
    look_at: Option<Timestamp>,
}

impl Entries {
    /// The next key, whether of a hold or not.
    fn first(&self) -> Option<ScheduleKey> {
        let hold = self.holds.first_key_value().map(|(key, _)| *key);
        let other = self.others.first_key_value().map(|(key, _)| *key);
        match (hold, other) {
            (Some(hold), Some(other)) => Some(hold.min(other)),
            (hold, other) => hold.or(other),
        }
    }

    /// A new key for `at`.
    fn key(&mut self, at: Timestamp) -> ScheduleKey {
        self.next += 1;
        ScheduleKey(at, self.next)
    }

    /// Notes that an entry was inserted for `at`. Returns whether the keeper must be woken.
    fn is_early(&mut self, at: Timestamp) -> bool {
        let early = self.wake_at.is_none_or(|wake_at| at < wake_at);
        if early {
            self.wake_at = Some(at);
        }
        early
    }
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
    /// Schedules `due`, which is not a hold, for `at`.
    pub(crate) fn insert(&self, at: Timestamp, due: Due) -> ScheduleKey {
        let mut entries = lock(&self.entries);
        let key = entries.key(at);
        if entries.ended {
            // An entry that is never executed would keep the client and its connections alive for
            // ever.
            drop(entries);
            drop(due);
            return key;
        }
        entries.others.insert(key, due);
        let early = entries.is_early(at);
        drop(entries);
        if early {
            self.changed.notify_one();
        }
        key
    }

    /// Schedules a timeout of `hold`, whose lock has this `ttl`, for `at`.
    pub(crate) fn insert_hold(
        &self,
        at: Timestamp,
        ttl: Duration,
        hold: Arc<HeldLock>,
    ) -> ScheduleKey {
        let mut entries = lock(&self.entries);
        let key = entries.key(at);
        if entries.ended {
            drop(entries);
            drop(hold);
            return key;
        }
        entries.holds.insert(key, hold);
        let early = entries.is_early(at);
        let look = self.second.get().and_then(|line| {
            let may_be_late = may_be_late(ttl);
            let known = entries.may_be_late.get_or_insert(may_be_late);
            *known = may_be_late.min(*known);
            let look_at = self.look_after(at, *known);
            let early = entries.look_at.is_none_or(|planned| look_at < planned);
            early.then(|| {
                entries.look_at = Some(look_at);
                (line, look_at)
            })
        });
        drop(entries);
        if early {
            self.changed.notify_one();
        }
        if let Some((line, look_at)) = look {
            line.look_by(look_at);
        }
        key
    }

    /// Ends the schedule: drops all entries and wakes all sleepers.
    pub(crate) fn end(&self) {
        let mut entries = lock(&self.entries);
        entries.ended = true;
        let left = std::mem::take(&mut entries.others);
        let holds = std::mem::take(&mut entries.holds);
        // After unlocking: dropping an entry may call the schedule again.
        drop(entries);
        left.values().for_each(Due::wake);
        drop(holds);
    }

    /// Wakes all sleepers, because the client is closed.
    pub(crate) fn wake_sleepers(&self) {
        let is_sleeper = |due: &&Due| matches!(due, Due::Sleeper(_));
        let entries = lock(&self.entries);
        let sleepers: Vec<Due> = entries
            .others
            .values()
            .filter(is_sleeper)
            .cloned()
            .collect();
        drop(entries);
        sleepers.iter().for_each(Due::wake);
    }

    /// Removes an entry that is not a hold before it is due.
    pub(crate) fn remove(&self, key: ScheduleKey) {
        // Dropped after unlocking: dropping an entry may call the schedule again.
        let removed = lock(&self.entries).others.remove(&key);
        drop(removed);
    }

    /// Removes an entry of a hold before it is due.
    pub(crate) fn remove_hold(&self, key: ScheduleKey) {
        let removed = lock(&self.entries).holds.remove(&key);
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
        let next = entries.first().map(ScheduleKey::at);
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

    /// Removes and returns the next entry that is due at `now`, for the keeper.
    pub(crate) fn pop(&self, now: Timestamp) -> Option<Due> {
        self.taken_over.store(false, Ordering::Relaxed);
        let mut entries = lock(&self.entries);
        let first = entries.first().filter(|key| key.at() <= now)?;
        match entries.holds.remove(&first) {
            Some(hold) => Some(Due::HeldLock(hold)),
            None => entries.others.remove(&first),
        }
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
        match lock(&self.entries).others.get_mut(&key) {
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
        entries.wake_at = entries.first().map(ScheduleKey::at);
        entries.wake_at
    }

    /// A hold that `task` acquired and that conflicts with one of `claims`. Searches all entries:
    /// for warnings only.
    pub(crate) fn hold_of(&self, task: HolderTask, claims: &[Claim]) -> Option<Arc<HeldLock>> {
        let conflicting = |hold: &&Arc<HeldLock>| hold.excludes(&hold.runtime, claims);
        let entries = lock(&self.entries);
        let holds = entries.holds.values().filter(conflicting);
        let holds: Vec<Arc<HeldLock>> = holds.cloned().collect();
        // Unlock before locking a hold: a locked hold locks the schedule.
        drop(entries);
        holds.into_iter().find(|hold| hold.task() == task)
    }

    /// Completes when an entry may be due before the keeper wakes.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Wakes the keeper, and the second line if it does the keeper's work.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
        if self.is_taken_over()
            && let Some(second) = self.second.get()
        {
            second.look_by(Timestamp::ZERO);
        }
    }
}

/// What the second line reads (`second.rs`): whether the keeper is late, and what is due then.
impl Schedule {
    /// From now on `second` watches this client.
    pub(super) fn watched_by(&self, second: &'static SecondLine) {
        let _ = self.second.set(second);
    }

    /// The client was dropped.
    pub(super) fn leave_second(&self) {
        if let Some(second) = self.second.get() {
            second.forget_dropped();
        }
    }

    /// A renewal failed because nodes did not answer: asks the second line for its connections.
    pub(super) fn want_second(&self) {
        if let Some(second) = self.second.get() {
            self.second_wanted.store(true, Ordering::Relaxed);
            second.look_by(Timestamp::ZERO);
        }
    }

    /// Whether [`want_second`](Self::want_second) was called.
    pub(super) fn is_second_wanted(&self) -> bool {
        self.second_wanted.load(Ordering::Relaxed)
    }

    /// The second line has its connections.
    pub(super) fn second_is_there(&self) {
        self.second_wanted.store(false, Ordering::Relaxed);
    }

    /// Whether the second line does the work of the keeper.
    pub(super) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Whether what was due at `at` is overdue at `now`, so that the second line takes over.
    pub(super) fn is_overdue(&self, at: Timestamp, now: Timestamp) -> bool {
        let may_be_late = lock(&self.entries).may_be_late.unwrap_or_default();
        let overdue = self.look_after(at, may_be_late) <= now;
        if overdue {
            self.taken_over.store(true, Ordering::Relaxed);
        }
        overdue
    }

    /// When the first hold is due.
    pub(super) fn first_hold(&self) -> Option<Timestamp> {
        let entries = lock(&self.entries);
        entries.holds.first_key_value().map(|(key, _)| key.at())
    }

    /// Removes and returns the next hold that is due at `now`, if the second line has taken over.
    pub(super) fn pop_hold(&self, now: Timestamp) -> Option<Arc<HeldLock>> {
        if !self.is_taken_over() {
            return None;
        }
        let mut entries = lock(&self.entries);
        let first = entries.holds.first_entry()?;
        (first.key().at() <= now).then(|| first.remove())
    }

    /// When the second line looks at this client next, because of its holds or of a renewal that
    /// waits since `waiting`.
    pub(super) fn plan_look(&self, waiting: Option<Timestamp>) -> Option<Timestamp> {
        let mut entries = lock(&self.entries);
        let first = entries.holds.first_key_value().map(|(key, _)| key.at());
        let due = match (first, waiting) {
            (Some(first), Some(waiting)) => Some(first.min(waiting)),
            (first, waiting) => first.or(waiting),
        };
        let may_be_late = entries.may_be_late.unwrap_or_default();
        entries.look_at = due.map(|due| self.look_after(due, may_be_late));
        entries.look_at
    }

    /// When the second line looks for what is due at `at`.
    fn look_after(&self, at: Timestamp, may_be_late: Duration) -> Timestamp {
        match self.is_taken_over() {
            true => at,
            false => at + may_be_late,
        }
    }
}

/// How late the keeper may be with a lock of this `ttl`. A renewal is due after a third of the TTL, so
/// the second line begins when half of it is left.
fn may_be_late(ttl: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(10);
    (ttl / 6).max(LEAST)
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
mod tests;
