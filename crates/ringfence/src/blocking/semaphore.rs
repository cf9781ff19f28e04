//! Semaphores without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, ExtendError, HoldError, InspectError, Receipt, ReleaseReceiptError,
    SemaphoreInspection, WorkDone,
};

use super::held::{fenced, guard, held, hold};
use super::{Engine, Locks};

/// A semaphore, of which no permit has been taken yet. See [`crate::Semaphore`].
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until `acquire` or `try_acquire` is called"]
pub struct Semaphore {
    engine: Arc<Engine>,
    lock: client::Semaphore,
}

impl Locks {
    /// The semaphore `name`, of which `permits` can be held at once. See
    /// [`crate::Locks::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore {
            engine: Arc::clone(&self.engine),
            lock: self.engine.locks.semaphore(name, permits),
        }
    }
}

impl Semaphore {
    terms! {
        lock:
        label,
        renew,
        max_hold,
        lock_delay,
    }

    /// Takes a permit, waiting in the queue while none is free. See [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.engine.take(self.lock.acquire())
    }

    /// Takes a permit if one is free. See [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if none is free.
    #[track_caller]
    pub fn try_acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.engine.take(self.lock.try_acquire())
    }

    /// Takes a permit, does `work`, and releases it. See [`Lock::hold`](super::Lock::hold).
    ///
    /// # Errors
    /// If no permit was granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold<T>(&self, work: impl FnOnce(&SemaphoreGuard) -> T) -> Result<T, HoldError> {
        self.hold_to_end(work)?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also if the permit was lost before the work was done.
    ///
    /// # Errors
    /// If the permit was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_to_end<T>(
        &self,
        work: impl FnOnce(&SemaphoreGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        hold!(self.acquire()?, work)
    }

    /// Extends what [`SemaphoreGuard::leave`] left behind. See [`crate::Semaphore::extend_receipt`].
    ///
    /// # Errors
    /// If it is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    #[track_caller]
    pub fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.engine.run(self.lock.extend_receipt(receipt, ttl))
    }

    /// Releases what [`SemaphoreGuard::leave`] left behind. See [`crate::Semaphore::release_receipt`].
    ///
    /// # Errors
    /// If it was not held any more, or if no majority of the nodes confirmed.
    #[track_caller]
    pub fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.engine.run(self.lock.release_receipt(receipt))
    }

    /// The holder of each slot and the number of waiters, as a majority of the nodes sees it. See
    /// [`crate::Semaphore::inspect`].
    ///
    /// # Errors
    /// If no majority of the nodes answers, or if the name is not allowed.
    #[track_caller]
    pub fn inspect(&self) -> Result<SemaphoreInspection, InspectError> {
        self.engine.run(self.lock.inspect())
    }
}

guard! {
    /// A permit that is held. See [`crate::SemaphoreGuard`].
    #[must_use = "dropping the guard gives the permit back"]
    SemaphoreGuard
}

impl SemaphoreGuard {
    fenced!();

    /// The number of the slot, from 0 on. See [`crate::SemaphoreGuard::slot`].
    pub fn slot(&self) -> u32 {
        self.guard.slot()
    }

    /// What another process needs to extend or release it. See [`crate::SemaphoreGuard::receipt`].
    pub fn receipt(&self) -> Receipt {
        self.guard.receipt()
    }

    /// Leaves it behind: stops renewing it and does not release it. See
    /// [`crate::SemaphoreGuard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }

    held!();
}
