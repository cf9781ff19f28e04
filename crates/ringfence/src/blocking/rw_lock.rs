//! Many readers or one writer, without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, ExtendError, HoldError, Receipt, ReleaseReceiptError, WorkDone,
};

use super::held::{fenced, guard, held, hold};
use super::{Engine, Guard, Locks};

/// A lock for many readers or one writer, not yet taken. See [`crate::RwLock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `read` or `write` is called"]
pub struct RwLock {
    engine: Arc<Engine>,
    lock: client::RwLock,
}

impl Locks {
    /// The lock `name` for many readers or one writer. See [`crate::Locks::rw_lock`].
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock {
            engine: Arc::clone(&self.engine),
            lock: self.engine.locks.rw_lock(name),
        }
    }
}

impl RwLock {
    terms! {
        lock:
        label,
        renew,
        max_hold,
        owner,
        lock_delay,
    }

    /// Takes a share, waiting while a writer holds the lock or is ahead in the queue. See
    /// [`crate::RwLock::read`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.engine.take(self.lock.read())
    }

    /// Takes a share if no writer holds the lock or waits for it. See
    /// [`crate::RwLock::try_read`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if a writer does.
    #[track_caller]
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.engine.take(self.lock.try_read())
    }

    /// Takes the lock alone, waiting for readers and writers. See
    /// [`crate::RwLock::write`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn write(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.write())
    }

    /// Takes the lock alone if no client holds it or waits for it. See
    /// [`crate::RwLock::try_write`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client does.
    #[track_caller]
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.try_write())
    }

    /// Extends what [`ReadGuard::leave`] left behind. See [`crate::RwLock::extend_receipt`].
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

    /// Releases what [`ReadGuard::leave`] left behind. See [`crate::RwLock::release_receipt`].
    ///
    /// # Errors
    /// If it was not held any more, or if no majority of the nodes confirmed.
    #[track_caller]
    pub fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.engine.run(self.lock.release_receipt(receipt))
    }

    /// Takes a share, does `work`, and releases. See [`Lock::hold`](super::Lock::hold).
    ///
    /// # Errors
    /// If the share was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold_read<T>(&self, work: impl FnOnce(&ReadGuard) -> T) -> Result<T, HoldError> {
        self.hold_read_to_end(work)?.held()
    }

    /// As [`hold_read`](Self::hold_read), but returns the output also if the share was lost before the work was done.
    ///
    /// # Errors
    /// If the share was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_read_to_end<T>(
        &self,
        work: impl FnOnce(&ReadGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        hold!(self.read()?, work)
    }

    /// Takes the lock alone, does `work`, and releases. See [`Lock::hold`](super::Lock::hold).
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, HoldError> {
        self.hold_write_to_end(work)?.held()
    }

    /// As [`hold_write`](Self::hold_write), but returns the output also if the lock was lost before the work was done.
    ///
    /// # Errors
    /// If the lock was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_write_to_end<T>(
        &self,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        hold!(self.write()?, work)
    }
}

guard! {
    /// A share of a lock. See [`crate::ReadGuard`].
    #[must_use = "dropping the guard releases the lock"]
    ReadGuard
}

impl ReadGuard {
    fenced!();

    /// What another process needs to extend or release it. See [`crate::ReadGuard::receipt`].
    pub fn receipt(&self) -> Receipt {
        self.guard.receipt()
    }

    /// Leaves it behind: stops renewing it and does not release it. See
    /// [`crate::ReadGuard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }

    held!();
}
