//! Exclusive locks without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::hold_work::trace_end;
use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, ExtendError, HoldError, Owner, Receipt, ReleaseReceiptError,
};
use crate::protocol::Lost;
use crate::token::Token;

use super::held::{getters, guard, held};
use super::{Engine, Locks, ReadGuard};

/// A lock, not yet taken. See [`crate::Lock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is called"]
pub struct Lock {
    engine: Arc<Engine>,
    lock: client::Lock,
}

impl Locks {
    /// See [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(self.engine.locks.mutex(name))
    }

    /// See [`crate::Locks::multi`].
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
        label(label: &str),
        renew(renew: bool),
        max_hold(max_hold: impl Into<Option<Duration>>),
        owner(owner: &Owner),
        lock_delay(delay: Duration),
        hold_at_least(span: Duration),
    }

    /// See [`crate::Lock::lock`].
    pub fn lock(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.lock())
    }

    /// See [`crate::Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.try_lock())
    }

    /// Takes the lock, does `work`, and releases. Nothing can stop a thread from outside: where the
    /// work is long, have it look at [`Guard::check`].
    ///
    /// `Ok` once the work is done, as with [`crate::Lock::hold`]: the result is never masked. If the lock
    /// was lost meanwhile, that is traced.
    pub fn hold<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, HoldError> {
        let guard = self.lock()?;
        let done = work(&guard);
        let held = guard.check();
        trace_end(held, guard.release());
        Ok(done)
    }

    /// See [`crate::Lock::extend_receipt`].
    pub fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.engine.run(self.lock.extend_receipt(receipt, ttl))
    }

    /// See [`crate::Lock::release_receipt`].
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
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
        receipt -> Receipt,
    }

    held!();

    /// See [`crate::Guard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }

    /// See [`crate::Guard::downgrade`].
    pub fn downgrade(self) -> Result<ReadGuard, Lost> {
        self.engine.take(self.guard.downgrade())
    }
}
