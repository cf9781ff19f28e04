//! For how long a name must be kept from other clients after a hold, in true time: what is certain
//! on the slowest clock that the drift allows.

use std::time::Duration;

use ringfence_core::time::Timestamp;

use crate::history::What;

use super::dial::Dial;
use super::held::Held;
use super::life::Life;
use super::plan::Step;

/// What a node may lose by rounding, twice.
pub(super) const ROUNDED: Duration = Duration::from_millis(3);

/// What the caller requested when it took the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    lock_delay: Duration,
    /// Until when the lock is to be held at least, on the client's clock.
    at_least: Option<Timestamp>,
    drift: f64,
}

impl Keep {
    /// What `step` requested for a lock that was just granted.
    pub(super) fn new(life: &Life, step: &Step, held: &Held) -> Self {
        // The attempt began no later than this, and the grant came later.
        let began = held.deadline() - step.ttl;
        Self {
            lock_delay: step.lock_delay,
            at_least: (!step.at_least.is_zero()).then(|| began + step.at_least),
            drift: life.drift,
        }
    }

    /// The lock was not released before its `deadline`.
    pub(super) fn after_loss(&self, op: u64, deadline: Timestamp, dial: &Dial) -> Option<What> {
        let from = dial.when(deadline.as_nanos());
        self.kept(op, from, self.lock_delay)
    }

    /// The lock was released at `from`, and a majority has confirmed that.
    pub(super) fn after_release(&self, op: u64, from: u64, dial: &Dial) -> Option<What> {
        let until = dial.when(self.at_least?.as_nanos());
        self.kept(op, from, Duration::from_nanos(until.saturating_sub(from)))
    }

    fn kept(&self, op: u64, from: u64, span: Duration) -> Option<What> {
        let surely = span.mul_f64(1.0 - self.drift).checked_sub(ROUNDED)?;
        let from_us = from / 1_000;
        Some(What::Kept {
            op,
            from_us,
            until_us: from_us + surely.as_micros() as u64,
        })
    }
}
