//! The one background task of a client: executes what is due (`schedule.rs`), and begins renewals.
//! Ends when the client is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use crate::environment::Timer;
use crate::protocol::Line;
use crate::time::Timestamp;

use super::closing::RuntimeWatch;
use super::hold::HeldLock;
use super::schedule::{Due, Schedule};
use super::{ClientRuntime, lock};

/// After so many entries the keeper yields to other tasks of the thread.
const YIELD_AFTER: usize = 64;

/// Executes what is due for `runtime` until it is dropped.
pub(crate) async fn keep(
    runtime: Weak<ClientRuntime>,
    schedule: Arc<Schedule>,
    _watch: RuntimeWatch,
) {
    let Some(clock) = runtime
        .upgrade()
        .map(|runtime| runtime.sender.clock.clone())
    else {
        return;
    };
    let mut timer = Timer::new(clock.clone());
    if let Some(kernel_timer) = timer.kernel_timer() {
        schedule.wakes_by(kernel_timer);
    }
    let mut done: usize = 0;
    while runtime.strong_count() > 0 {
        let now = clock.now();
        while let Some(due) = schedule.pop(now) {
            execute(&due, &runtime);
            // Thousands of entries may be due at once, and other tasks use this thread too.
            done += 1;
            if done.is_multiple_of(YIELD_AFTER) {
                drop(due);
                tokio::task::yield_now().await;
            }
        }
        while let Some(hold) = runtime
            .upgrade()
            .and_then(|runtime| runtime.renewals.next(now))
        {
            hold.renew(Line::First);
            done += 1;
            if done.is_multiple_of(YIELD_AFTER) {
                drop(hold);
                tokio::task::yield_now().await;
            }
        }
        match schedule.next() {
            Some(at) => tokio::select! {
                () = timer.sleep_until(at) => {}
                () = schedule.changed() => {}
            },
            None => schedule.changed().await,
        }
    }
}

fn execute(due: &Due, runtime: &Weak<ClientRuntime>) {
    match due {
        Due::HeldLock(hold) => hold.time_out(),
        Due::Release(releasing) => releasing.time_out(),
        Due::SurplusSlots(surplus) => surplus.time_out(),
        Due::Sleeper(sleeper) => sleeper.wake_by_ref(),
        Due::Refresh => {
            if let Some(runtime) = runtime.upgrade() {
                runtime.room.refresh(&runtime);
            }
        }
    }
}

impl Drop for ClientRuntime {
    fn drop(&mut self) {
        if !self.process.is_ours() {
            // Nodes have sockets and threads, and the schedule has the keeper's timer.
            std::mem::forget(std::mem::take(&mut self.sender.nodes));
            std::mem::forget(std::mem::take(&mut self.sender.second));
            std::mem::forget((Arc::clone(&self.schedule), Arc::clone(&self.room)));
            return;
        }
        self.schedule.nudge();
        self.schedule.leave_second();
    }
}

/// The most renewals in progress at once: twenty thousand per second at 50 ms each.
pub(crate) const AT_ONCE: usize = 1024;

/// Limits the renewals of a client that are in progress at once. Others wait in the order in which
/// they became due.
///
/// A client may hold a hundred thousand locks, and very many of them are due together after a pause
/// of the machine or an outage. If all renewals were sent at once, slow nodes would answer each of
/// them too late, and the client would lose locks that it could have renewed one after the other.
#[derive(Debug)]
pub(crate) struct Renewals {
    queue: Mutex<RenewalQueue>,
    /// Wakes the keeper, which begins the waiting renewals.
    schedule: Arc<Schedule>,
}

#[derive(Debug, Default)]
struct RenewalQueue {
    in_progress: usize,
    waiting: VecDeque<Arc<HeldLock>>,
    /// Since when the first one waits, if it does: it came, or the one before it began.
    since: Option<Timestamp>,
}

impl Renewals {
    pub(crate) fn new(schedule: Arc<Schedule>) -> Self {
        Self {
            queue: Mutex::default(),
            schedule,
        }
    }

    /// Adds `hold` to the holds that wait for their renewal.
    pub(crate) fn want(&self, hold: Arc<HeldLock>, now: Timestamp) {
        let mut queue = lock(&self.queue);
        if queue.waiting.is_empty() {
            queue.since = Some(now);
        }
        queue.waiting.push_back(hold);
    }

    /// Since when a hold waits although the limit allows its renewal.
    pub(crate) fn waiting_since(&self) -> Option<Timestamp> {
        let queue = lock(&self.queue);
        let may_begin = !queue.waiting.is_empty() && queue.in_progress < AT_ONCE;
        queue.since.filter(|_| may_begin)
    }

    /// The next hold to renew, if the limit allows it. Its renewal ends with
    /// [`finish`](Self::finish).
    pub(crate) fn next(&self, now: Timestamp) -> Option<Arc<HeldLock>> {
        let mut queue = lock(&self.queue);
        if queue.in_progress >= AT_ONCE {
            return None;
        }
        let hold = queue.waiting.pop_front()?;
        queue.in_progress += 1;
        queue.since = Some(now);
        Some(hold)
    }

    /// A renewal has ended.
    pub(crate) fn finish(&self) {
        let mut queue = lock(&self.queue);
        queue.in_progress -= 1;
        // Not at every end: the keeper then begins many renewals together, which nodes answer in
        // batches.
        let wake = queue.in_progress <= AT_ONCE / 2 && !queue.waiting.is_empty();
        drop(queue);
        if wake {
            self.schedule.nudge();
        }
    }
}
