//! Plain Redlocks without async.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{self, AcquireError};

use super::held::held;
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
        ttl(ttl: Duration),
        wait(wait: Duration),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
    }

    /// See [`crate::PlainLock::lock`].
    pub fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.guard(self.engine.run(self.lock.lock()))
    }

    /// See [`crate::PlainLock::try_lock`].
    pub fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.guard(self.engine.run(self.lock.try_lock()))
    }

    fn guard(
        &self,
        guard: Result<client::PlainGuard, AcquireError>,
    ) -> Result<PlainGuard, AcquireError> {
        guard.map(|guard| PlainGuard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A plain Redlock that is held. See [`crate::PlainGuard`].
#[must_use = "dropping the guard releases the lock"]
pub struct PlainGuard {
    guard: client::PlainGuard,
    engine: Arc<Engine>,
}

impl PlainGuard {
    held!();
}

impl fmt::Debug for PlainGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
