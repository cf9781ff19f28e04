//! The end of a client: it was closed, or the tokio runtime in which it was built has ended. Also
//! counts what `Locks::close` waits for.
//!
//! With the tokio runtime the client's background tasks end: no lock is renewed, no timer fires,
//! and no connection is served. Calls from another tokio runtime must not grant a lock then, and
//! must not wait for ever.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::protocol::Failure;
use crate::time::Timestamp;

use super::schedule::Schedule;
use super::{ClientRuntime, wait_for};

/// How long `Locks::close` waits for the remaining nodes once a majority has confirmed each
/// release.
const LINGER: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Set by `Locks::close`, and when the tokio runtime has ended: no attempt begins.
    pub(super) closed: AtomicBool,
    /// Set before `closed` when the keeper's tokio runtime has ended: no lock can be renewed.
    pub(crate) runtime_gone: AtomicBool,
    /// `closed` was set.
    began: Notify,
    /// Attempts in progress. They end once `closed` is set.
    pub(super) attempting: AtomicUsize,
    pub(super) attempts_ended: Notify,
    /// Releases and undos in progress, which `Locks::close` waits for.
    pub(super) releasing: AtomicUsize,
    /// How many of them no majority has confirmed yet.
    pub(super) unconfirmed: AtomicUsize,
    /// Attempts that won before every node had answered, and still miss an answer.
    pub(super) late_replies: AtomicUsize,
    /// One of the last three counters reached zero.
    changed: Notify,
}

/// Why a call got no result.
#[derive(Debug)]
pub(crate) enum Refusal<K> {
    Failed(Failure<K>),
    Closed,
    /// The tokio runtime of the client has ended.
    RuntimeGone,
    NoEntropy(getrandom::Error),
}

impl Closing {
    /// The refusal of a client that is closed or whose tokio runtime has ended.
    pub(super) fn refusal<K>(&self) -> Refusal<K> {
        match self.is_runtime_gone() {
            false => Refusal::Closed,
            true => Refusal::RuntimeGone,
        }
    }

    /// Whether `close` was called, or the tokio runtime of this client has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether the tokio runtime of this client has ended.
    pub(crate) fn is_runtime_gone(&self) -> bool {
        self.runtime_gone.load(Ordering::SeqCst)
    }

    /// Completes when the client is closed or its tokio runtime has ended.
    pub(crate) async fn begun(&self) {
        wait_for(&self.began, || self.is_closed()).await;
    }

    /// Completes at `at` if the tokio runtime of this client has ended, and never otherwise: for
    /// callers that rely on the keeper's timers.
    pub(crate) async fn after_runtime_end(&self, at: Timestamp, clock: &Clock) {
        wait_for(&self.began, || self.is_runtime_gone()).await;
        clock.sleep_until(at).await;
    }

    /// Completes when no attempt is in progress, or after a second: a future that is not polled
    /// never ends. Its attempt is undone when it is dropped.
    pub(crate) async fn attempts_ended(&self, clock: &Clock) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let none = || self.attempting.load(Ordering::SeqCst) == 0;
        tokio::select! {
            biased;
            () = wait_for(&self.attempts_ended, none) => {}
            () = clock.sleep_until(clock.now() + PATIENCE) => {}
        }
    }

    /// Completes when a majority of the nodes has confirmed every release and undo, or their
    /// leases have ended, or the tokio runtime that would send them has ended. For the other
    /// nodes, and for late replies to an acquire that won, it waits only [`LINGER`]: such a node
    /// may hang.
    pub(crate) async fn drained(&self, clock: &Clock) {
        let none = |count: &AtomicUsize| count.load(Ordering::SeqCst) == 0;
        wait_for(&self.changed, || {
            none(&self.unconfirmed) || self.is_runtime_gone()
        })
        .await;
        let all = || none(&self.releasing) && none(&self.late_replies) || self.is_runtime_gone();
        tokio::select! {
            biased;
            () = wait_for(&self.changed, all) => {}
            () = clock.sleep_until(clock.now() + LINGER) => {}
        }
    }

    /// Decrements `count`, which is one of the counters above.
    pub(super) fn count_down(&self, count: &AtomicUsize) {
        if count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.changed.notify_waiters();
        }
    }
}

impl ClientRuntime {
    /// Closes the client: every waiting call ends.
    pub(crate) fn close(&self) {
        self.closing.closed.store(true, Ordering::SeqCst);
        self.closing.began.notify_waiters();
        self.schedule.wake_sleepers();
    }
}

/// Owned by the keeper's task: its drop marks the client as closed when the tokio runtime drops the
/// task.
pub(crate) struct RuntimeWatch {
    runtime: Weak<ClientRuntime>,
    schedule: Arc<Schedule>,
}

impl RuntimeWatch {
    pub(crate) fn of(runtime: &Arc<ClientRuntime>) -> Self {
        Self {
            runtime: Arc::downgrade(runtime),
            schedule: Arc::clone(&runtime.schedule),
        }
    }
}

impl Drop for RuntimeWatch {
    fn drop(&mut self) {
        let runtime = self.runtime.upgrade();
        // Before the schedule ends: that wakes the sleepers, and they read these flags.
        if let Some(runtime) = &runtime {
            runtime.closing.runtime_gone.store(true, Ordering::SeqCst);
            runtime.closing.closed.store(true, Ordering::SeqCst);
        }
        self.schedule.end();
        if let Some(runtime) = &runtime {
            runtime.closing.began.notify_waiters();
            runtime.closing.changed.notify_waiters();
        }
    }
}
