//! Many readers or one writer, without async.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{self, AcquireError};
use crate::token::Token;

use super::held::{getters, held};
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
        ttl(ttl: Duration),
        wait(wait: Duration),
        label(label: &str),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
    }

    /// See [`crate::RwLock::read`].
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.reading(self.engine.run(self.lock.read()))
    }

    /// See [`crate::RwLock::try_read`].
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.reading(self.engine.run(self.lock.try_read()))
    }

    /// See [`crate::RwLock::write`].
    pub fn write(&self) -> Result<Guard, AcquireError> {
        self.writing(self.engine.run(self.lock.write()))
    }

    /// See [`crate::RwLock::try_write`].
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        self.writing(self.engine.run(self.lock.try_write()))
    }

    fn reading(
        &self,
        guard: Result<client::ReadGuard, AcquireError>,
    ) -> Result<ReadGuard, AcquireError> {
        guard.map(|guard| ReadGuard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }

    fn writing(&self, guard: Result<client::Guard, AcquireError>) -> Result<Guard, AcquireError> {
        guard.map(|guard| Guard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A share of a lock. See [`crate::ReadGuard`].
#[must_use = "dropping the guard releases the lock"]
pub struct ReadGuard {
    pub(super) guard: client::ReadGuard,
    pub(super) engine: Arc<Engine>,
}

impl ReadGuard {
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
    }

    held!();
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
