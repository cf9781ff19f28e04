//! The end of a client: it was closed, or the runtime in which it was made has ended. And what
//! `Locks::close` waits for.
//!
//! With the runtime the client's background tasks end: nothing is renewed, no timer fires, and no
//! connection to a server is served. Calls from another runtime must not grant anything then, nor wait
//! for ever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::time::Timestamp;

use super::schedule::Schedule;
use super::{Driver, wait_for};

/// How long `Locks::close` waits for what a majority has confirmed and others have not.
const LINGER: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Set by `Locks::close`, and when the runtime has ended: no new attempts.
    pub(super) closed: AtomicBool,
    /// Set before `closed` when the keeper's runtime has ended: nothing could be renewed.
    pub(crate) runtime_gone: AtomicBool,
    /// `closed` was set.
    began: Notify,
    /// Attempts under way, which `Locks::close` has given up.
    pub(super) attempting: AtomicUsize,
    pub(super) given_up: Notify,
    /// Withdrawals under way: what `Locks::close` waits for.
    pub(super) withdrawing: AtomicUsize,
    /// Those of them that no majority has confirmed.
    pub(super) unconfirmed: AtomicUsize,
    /// Attempts that were won before every node had answered, and some have not yet.
    pub(super) straggling: AtomicUsize,
    /// One of these three numbers came down to zero.
    withdrawn: Notify,
}

impl Closing {
    /// Whether `close` was called, or the runtime of this client has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether the runtime of this client has ended.
    pub(crate) fn is_runtime_gone(&self) -> bool {
        self.runtime_gone.load(Ordering::SeqCst)
    }

    /// Completes when the client is closed or its runtime has ended.
    pub(crate) async fn begun(&self) {
        wait_for(&self.began, || self.is_closed()).await;
    }

    /// Completes at `at` if the runtime of this client has ended, never otherwise: for callers that
    /// rely on the keeper to tell them when time has passed.
    pub(crate) async fn outlives_runtime(&self, at: Timestamp, clock: &Clock) {
        wait_for(&self.began, || self.is_runtime_gone()).await;
        clock.sleep_until(at).await;
    }

    /// Completes when no attempt is under way any more, or after a second: a future that nobody
    /// polls cannot be waited for. What it set is taken back when it is dropped.
    pub(crate) async fn given_up(&self, clock: &Clock) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let none = || self.attempting.load(Ordering::SeqCst) == 0;
        tokio::select! {
            biased;
            () = wait_for(&self.given_up, none) => {}
            () = clock.sleep_until(clock.now() + PATIENCE) => {}
        }
    }

    /// Completes when a majority of the nodes has confirmed everything that was to be taken back, or
    /// it can no longer be there, or the runtime that would take it back has ended. The other nodes,
    /// and those that have not answered an acquire that was won, are waited for a moment: they may be
    /// about to answer, or hang.
    pub(crate) async fn drained(&self, clock: &Clock) {
        let none = |count: &AtomicUsize| count.load(Ordering::SeqCst) == 0;
        wait_for(&self.withdrawn, || {
            none(&self.unconfirmed) || self.is_runtime_gone()
        })
        .await;
        let all = || none(&self.withdrawing) && none(&self.straggling) || self.is_runtime_gone();
        tokio::select! {
            biased;
            () = wait_for(&self.withdrawn, all) => {}
            () = clock.sleep_until(clock.now() + LINGER) => {}
        }
    }

    /// One less of what `count`, a number of this client, counts.
    pub(super) fn count_down(&self, count: &AtomicUsize) {
        if count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.withdrawn.notify_waiters();
        }
    }
}

impl Driver {
    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.closing.closed.store(true, Ordering::SeqCst);
        self.closing.began.notify_waiters();
        self.schedule.wake_sleepers();
    }
}

/// Goes with the keeper's task, and tells its client when the runtime drops that task.
pub(crate) struct RuntimeWatch {
    driver: Weak<Driver>,
    schedule: Arc<Schedule>,
}

impl RuntimeWatch {
    pub(crate) fn of(driver: &Arc<Driver>) -> Self {
        Self {
            driver: Arc::downgrade(driver),
            schedule: Arc::clone(&driver.schedule),
        }
    }
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        let driver = self.driver.upgrade();
        // Before the schedule ends, which wakes its sleepers: they look at this.
        if let Some(driver) = &driver {
            driver.closing.runtime_gone.store(true, Ordering::SeqCst);
            driver.closing.closed.store(true, Ordering::SeqCst);
        }
        self.schedule.end();
        if let Some(driver) = &driver {
            driver.closing.began.notify_waiters();
            driver.closing.withdrawn.notify_waiters();
        }
    }
}
