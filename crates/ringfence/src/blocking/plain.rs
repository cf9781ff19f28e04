//! Plain Redlocks without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{self, AcquireError};

use super::held::{guard, held};
use super::{Engine, Locks};

/// A plain Redlock, not yet taken. See [`crate::PlainLock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is called"]
pub struct PlainLock {
    engine: Arc<Engine>,
    lock: client::PlainLock,
}

impl Locks {
    /// See [`crate::Locks::plain_mutex`].
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
        renew(renew: bool),
        max_hold(max_hold: impl Into<Option<Duration>>),
    }

    /// See [`crate::PlainLock::lock`].
    pub fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.engine.take(self.lock.lock())
    }

    /// See [`crate::PlainLock::try_lock`].
    pub fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.engine.take(self.lock.try_lock())
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
