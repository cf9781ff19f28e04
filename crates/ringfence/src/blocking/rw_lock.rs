//! Many readers or one writer, without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{self, AcquireError};
use crate::token::Token;

use super::held::{getters, guard, held};
use super::{Engine, Guard, Locks};

/// A lock for many readers or one writer, not yet taken. See [`crate::RwLock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `read` or `write` is called"]
pub struct RwLock {
    engine: Arc<Engine>,
    lock: client::RwLock,
}

impl Locks {
    /// See [`crate::Locks::rw_lock`].
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
        label(label: &str),
        renew(renew: bool),
        max_hold(max_hold: impl Into<Option<Duration>>),
    }

    /// See [`crate::RwLock::read`].
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.engine.take(self.lock.read())
    }

    /// See [`crate::RwLock::try_read`].
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.engine.take(self.lock.try_read())
    }

    /// See [`crate::RwLock::write`].
    pub fn write(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.write())
    }

    /// See [`crate::RwLock::try_write`].
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.try_write())
    }
}

guard! {
    /// A share of a lock. See [`crate::ReadGuard`].
    #[must_use = "dropping the guard releases the lock"]
    ReadGuard
}

impl ReadGuard {
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
    }

    held!();
}
