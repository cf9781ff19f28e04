//! Semaphores without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{self, AcquireError, InspectError, SemaphoreInspection};
use crate::token::Token;

use super::held::{getters, guard, held};
use super::{Engine, Locks};

/// A semaphore, of which no permit has been taken yet. See [`crate::Semaphore`].
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until `acquire` or `try_acquire` is called"]
pub struct Semaphore {
    engine: Arc<Engine>,
    lock: client::Semaphore,
}

impl Locks {
    /// See [`crate::Locks::semaphore`].
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
        label(label: &str),
        renew(renew: bool),
        max_hold(max_hold: impl Into<Option<Duration>>),
        lock_delay(delay: Duration),
    }

    /// See [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.engine.take(self.lock.acquire())
    }

    /// See [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.engine.take(self.lock.try_acquire())
    }

    /// See [`crate::Semaphore::inspect`].
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
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
    }

    /// See [`crate::SemaphoreGuard::slot`].
    pub fn slot(&self) -> u32 {
        self.guard.slot()
    }

    held!();
}
