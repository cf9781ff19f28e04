//! How long a grant may be counted on: the one place where TTL, elapsed time and drift meet.

use std::time::Duration;

use crate::time::Timestamp;

/// What is taken off a TTL because clocks do not run alike: a fraction of it, and a fixed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drift {
    parts_per_million: u32,
    fixed: Duration,
}

/// A drift that cannot be meant.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the drift must be a fraction between 0 and 0.25, not {0}")]
pub struct DriftError(f64);

impl Drift {
    /// A fraction between 0 and 0.25 of the TTL, plus a fixed part.
    pub fn new(fraction: f64, fixed: Duration) -> Result<Self, DriftError> {
        if !(0.0..=0.25).contains(&fraction) {
            return Err(DriftError(fraction));
        }
        Ok(Self {
            // In range: at most 250,000.
            parts_per_million: (fraction * 1e6).ceil() as u32,
            fixed,
        })
    }

    /// What is taken off `span`.
    pub fn allowance(&self, span: Duration) -> Duration {
        self.fraction_of(span).saturating_add(self.fixed)
    }

    /// The part that does not grow with the span.
    pub(super) fn fixed(&self) -> Duration {
        self.fixed
    }

    /// The part that grows with `span`.
    pub fn fraction_of(&self, span: Duration) -> Duration {
        let nanos = span.as_nanos() * u128::from(self.parts_per_million) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Default for Drift {
    /// One per cent and two milliseconds.
    fn default() -> Self {
        Self {
            parts_per_million: 10_000,
            fixed: Duration::from_millis(2),
        }
    }
}

/// The moment until which a majority that was asked at `t0` for `ttl` surely holds.
///
/// `t0` is read before the first request of the round leaves, so every node's lease starts later;
/// the drift covers nodes whose clocks run faster than ours.
pub fn deadline(t0: Timestamp, ttl: Duration, drift: Drift) -> Timestamp {
    t0 + ttl.saturating_sub(drift.allowance(ttl))
}
