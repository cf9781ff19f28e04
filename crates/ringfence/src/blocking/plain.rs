//! Plain Redlocks without async.

use std::sync::Arc;

use crate::client::terms::terms;
use crate::client::{self, AcquireError, HoldError, WorkDone};

use super::held::{guard, held, hold};
use super::{Engine, Locks};

/// A plain Redlock, not yet taken. See [`crate::PlainLock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is called"]
pub struct PlainLock {
    engine: Arc<Engine>,
    lock: client::PlainLock,
}

impl Locks {
    /// The exclusive lock `name` without a fence. See [`crate::Locks::plain_mutex`].
    pub fn plain_mutex(&self, name: impl AsRef<str>) -> PlainLock {
        PlainLock {
            engine: Arc::clone(&self.engine),
            lock: self.engine.locks.plain_mutex(name),
        }
    }
}

impl PlainLock {
    terms! {
        lock:
        renew,
        max_hold,
    }

    /// Takes the lock, waiting while another client holds it. See [`crate::PlainLock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.engine.take(self.lock.lock())
    }

    /// Takes the lock if it is free. See [`crate::PlainLock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.engine.take(self.lock.try_lock())
    }

    /// Takes the lock, does `work`, and releases. See [`Lock::hold`](super::Lock::hold).
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold<T>(&self, work: impl FnOnce(&PlainGuard) -> T) -> Result<T, HoldError> {
        self.hold_to_end(work)?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also if the lock was lost before the work was done.
    ///
    /// # Errors
    /// If the lock was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_to_end<T>(
        &self,
        work: impl FnOnce(&PlainGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        hold!(self.lock()?, work)
    }
}

guard! {
    /// A plain Redlock that is held. See [`crate::PlainGuard`].
    #[must_use = "dropping the guard releases the lock"]
    PlainGuard
}

impl PlainGuard {
    held!();
}
