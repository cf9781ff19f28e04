//! Exclusive locks without async.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::hold_work::trace_end;
use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, ExtendError, HoldError, Owner, Receipt, ReleaseReceiptError,
};
use crate::protocol::Lost;
use crate::token::Token;

use super::held::{getters, held};
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
        ttl(ttl: Duration),
        wait(wait: Duration),
        label(label: &str),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
        owner(owner: &Owner),
        lock_delay(delay: Duration),
        hold_at_least(span: Duration),
    }

    /// See [`crate::Lock::lock`].
    pub fn lock(&self) -> Result<Guard, AcquireError> {
        self.guard(self.engine.run(self.lock.lock()))
    }

    /// See [`crate::Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.guard(self.engine.run(self.lock.try_lock()))
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

    fn guard(&self, guard: Result<client::Guard, AcquireError>) -> Result<Guard, AcquireError> {
        guard.map(|guard| Guard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A lock that is held. See [`crate::Guard`].
// The guard stands first: it is dropped, and its release begun, before the engine goes.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    pub(super) guard: client::Guard,
    pub(super) engine: Arc<Engine>,
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
        let guard = self.engine.run(self.guard.downgrade())?;
        Ok(ReadGuard {
            guard,
            engine: self.engine,
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
