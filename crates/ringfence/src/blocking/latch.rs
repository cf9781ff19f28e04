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
    /// The latch `name`, which opens once `count` parties have arrived. See
    /// [`crate::Locks::latch`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch {
            engine: Arc::clone(&self.engine),
            latch: self.engine.locks.latch(name, count),
        }
    }
}

impl Latch {
    /// The name of the party that arrives. Default: a party of its own. See
    /// [`crate::Latch::party`].
    pub fn party(mut self, party: &str) -> Self {
        self.latch = self.latch.party(party);
        self
    }

    /// How long the nodes keep the latch after the last arrival. Default: one hour. See
    /// [`crate::Latch::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.latch = self.latch.ttl(ttl);
        self
    }

    /// How long [`wait`](Self::wait) waits; `None` is without a limit, which is the default. See
    /// [`crate::Latch::wait_for`].
    pub fn wait_for(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.latch = self.latch.wait_for(wait);
        self
    }

    /// How long to go on while no majority of the nodes answers. Default: 15 s. See
    /// [`crate::Latch::no_quorum_after`].
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.latch = self.latch.no_quorum_after(span);
        self
    }

    /// Arrives, without waiting for other parties. See [`crate::Latch::arrive`].
    ///
    /// # Errors
    /// If no majority of the nodes has recorded the arrival.
    #[track_caller]
    pub fn arrive(&self) -> Result<Arrival, LatchError> {
        self.engine.run(self.latch.arrive())
    }

    /// Blocks until the latch is open. See [`crate::Latch::wait`].
    ///
    /// # Errors
    /// If the latch is still shut when the wait is over, or if no majority of the nodes answers.
    #[track_caller]
    pub fn wait(&self) -> Result<(), LatchError> {
        self.engine.run(self.latch.wait())
    }
}
