//! Limits the renewals of a client that are in progress at once. Others wait in the order in
//! which they became due.
//!
//! A client may hold a hundred thousand locks, and very many of them are due together after a
//! pause of the machine or an outage. If all renewals were sent at once, slow nodes would answer
//! each of them too late, and the client would lose locks that it could have renewed one after
//! the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::hold::HeldLock;
use super::lock;
use super::schedule::Schedule;
use crate::time::Timestamp;

/// The most renewals in progress at once: twenty thousand per second at 50 ms each.
pub(crate) const AT_ONCE: usize = 1024;

/// See the module.
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
