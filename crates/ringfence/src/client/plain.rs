//! The original Redlock, as the other libraries do it: no fence, no queue, no side records.

use std::fmt;
use std::time::Duration;

use crate::message::Kind;

use super::error::AcquireError;
use super::guard::Guard;
use super::held::{held, impl_held};
use super::lock::Lock;
use super::terms::terms;

/// A plain Redlock, not yet taken. Made by [`Locks::plain_mutex`](super::Locks::plain_mutex).
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is awaited"]
pub struct PlainLock(Lock);

/// A plain Redlock that is held. It has no fence: a holder that pauses for too long may write late
/// and nobody can tell.
#[must_use = "dropping the guard releases the lock"]
pub struct PlainGuard(Guard);

impl PlainLock {
    pub(super) fn new(mut lock: Lock) -> Self {
        lock.kind = Kind::Plain;
        Self(lock)
    }

    terms! {
        0:
        renew(renew: bool),
        max_hold(max_hold: impl Into<Option<Duration>>),
    }

    /// See [`Lock::lock`].
    pub async fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.0.lock().await.map(PlainGuard)
    }

    /// See [`Lock::try_lock`].
    pub async fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.0.try_lock().await.map(PlainGuard)
    }
}

impl PlainGuard {
    /// The lock's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    held!(0);
}

impl_held!(PlainGuard, _guard => None);

impl fmt::Debug for PlainGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainGuard")
            .field("name", &self.0.name())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
