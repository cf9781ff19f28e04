//! Latches without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{self, Arrival, LatchError};

use super::{Engine, Locks};

/// A latch. See [`crate::Latch`].
#[derive(Debug, Clone)]
#[must_use = "a latch does nothing until `arrive` or `wait` is called"]
pub struct Latch {
    engine: Arc<Engine>,
    latch: client::Latch,
}

impl Locks {
    /// See [`crate::Locks::latch`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch {
            engine: Arc::clone(&self.engine),
            latch: self.engine.locks.latch(name, count),
        }
    }
}

impl Latch {
    /// See [`crate::Latch::party`].
    pub fn party(mut self, party: &str) -> Self {
        self.latch = self.latch.party(party);
        self
    }

    /// See [`crate::Latch::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.latch = self.latch.ttl(ttl);
        self
    }

    /// See [`crate::Latch::wait_for`].
    pub fn wait_for(mut self, span: Duration) -> Self {
        self.latch = self.latch.wait_for(span);
        self
    }

    /// See [`crate::Latch::no_quorum_after`].
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.latch = self.latch.no_quorum_after(span);
        self
    }

    /// See [`crate::Latch::arrive`].
    pub fn arrive(&self) -> Result<Arrival, LatchError> {
        self.engine.run(self.latch.arrive())
    }

    /// Blocks until the latch is open. See [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<(), LatchError> {
        self.engine.run(self.latch.wait())
    }
}
