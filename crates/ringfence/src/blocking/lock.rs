//! Exclusive locks without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, ExtendError, HoldError, Receipt, ReleaseReceiptError, WorkDone,
};
use crate::protocol::Lost;

use super::held::{fenced, guard, held, hold};
use super::{Engine, Locks, ReadGuard};

/// A lock, not yet taken. See [`crate::Lock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is called"]
pub struct Lock {
    engine: Arc<Engine>,
    lock: client::Lock,
}

impl Locks {
    /// The exclusive lock `name`, with a fence. See [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(self.engine.locks.mutex(name))
    }

    /// The exclusive locks `names`, all at once or none. See [`crate::Locks::multi`].
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Lock {
        self.lock(self.engine.locks.multi(names))
    }

    fn lock(&self, lock: client::Lock) -> Lock {
        Lock {
            engine: Arc::clone(&self.engine),
            lock,
        }
    }
}

impl Lock {
    terms! {
        lock:
        label,
        renew,
        max_hold,
        owner,
        lock_delay,
        hold_at_least,
    }

    /// Takes the lock, waiting while another client holds it. See [`crate::Lock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn lock(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.lock())
    }

    /// Takes the lock if it is free. See [`crate::Lock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.try_lock())
    }

    /// Takes the lock, does `work`, and releases. Nothing can stop a thread from outside: work that
    /// takes long should call [`Guard::check`] now and then.
    ///
    /// `Ok` only if the lock was held until the work was done, as with [`crate::Lock::hold`], whatever
    /// the release finds after that. [`hold_to_end`](Self::hold_to_end) returns the output all the
    /// same.
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, HoldError> {
        self.hold_to_end(work)?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also if the lock was lost before the work was done.
    ///
    /// # Errors
    /// If the lock was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_to_end<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<WorkDone<T>, HoldError> {
        hold!(self.lock()?, work)
    }

    /// Extends a lock that [`Guard::leave`] left behind. See [`crate::Lock::extend_receipt`].
    ///
    /// # Errors
    /// If the lock is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    #[track_caller]
    pub fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.engine.run(self.lock.extend_receipt(receipt, ttl))
    }

    /// Releases a lock that [`Guard::leave`] left behind. See [`crate::Lock::release_receipt`].
    ///
    /// # Errors
    /// If the lock was not held any more, or if no majority of the nodes confirmed.
    #[track_caller]
    pub fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.engine.run(self.lock.release_receipt(receipt))
    }
}

guard! {
    /// A lock that is held. See [`crate::Guard`].
    #[must_use = "dropping the guard releases the lock"]
    Guard
}

impl Guard {
    fenced!();

    /// What another process needs to extend or release this lock. See [`crate::Guard::receipt`].
    pub fn receipt(&self) -> Receipt {
        self.guard.receipt()
    }

    held!();

    /// Leaves the lock behind: stops renewing it and does not release it. See
    /// [`crate::Guard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }

    /// Shares the lock with readers from now on. See [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// If the lock is lost.
    #[track_caller]
    pub fn downgrade(self) -> Result<ReadGuard, Lost> {
        self.engine.take(self.guard.downgrade())
    }
}
