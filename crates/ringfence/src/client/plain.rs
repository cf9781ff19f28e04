//! The original Redlock, as the other libraries do it: no fence, no queue, no side records.

use std::fmt;

use crate::message::Kind;

use super::error::{AcquireError, HoldError};
use super::guard::Guard;
use super::held::{held, impl_held};
use super::hold_work::{WorkDone, while_held};
use super::lock::Lock;
use super::terms::terms;

/// A plain Redlock, not yet taken. Made by [`Locks::plain_mutex`](super::Locks::plain_mutex).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::Locks::connect("memory:").await?;
/// let guard = locks.plain_mutex("orders:42").lock().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is awaited"]
pub struct PlainLock(Lock);

/// A plain Redlock that is held. It has no fence: nothing can refuse the late write of a holder
/// that paused for too long.
#[must_use = "dropping the guard releases the lock"]
pub struct PlainGuard(Guard);

impl PlainLock {
    pub(super) fn new(mut lock: Lock) -> Self {
        lock.kind = Kind::Plain;
        Self(lock)
    }

    terms! {
        0:
        renew,
        max_hold,
    }

    /// Takes the lock, waiting while another client holds it. There is no wait queue: the client
    /// retries with growing pauses. See [`Lock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.0.lock().await.map(PlainGuard)
    }

    /// Takes the lock if it is free. See [`Lock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    pub async fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.0.try_lock().await.map(PlainGuard)
    }

    /// Takes the lock, does `work`, and releases. The work is dropped at its next await when the
    /// lock is lost. See [`Lock::hold`].
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    pub async fn hold<T>(&self, work: impl AsyncFnOnce(&PlainGuard) -> T) -> Result<T, HoldError> {
        self.hold_to_end(work).await?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also of work that was done after the lock was
    /// lost. See [`Lock::hold_to_end`].
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost and the work was stopped.
    pub async fn hold_to_end<T>(
        &self,
        work: impl AsyncFnOnce(&PlainGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        let guard = self.lock().await?;
        while_held!(guard, work)
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
