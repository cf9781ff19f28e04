//! The validity of a grant. This is the only place that computes it from TTL, elapsed time and
//! drift.

use std::time::Duration;

use crate::time::Timestamp;

/// How much is subtracted from a TTL because clocks run at different rates: a fraction and a fixed
/// part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drift {
    parts_per_million: u32,
    fixed: Duration,
}

/// The fraction of the drift is out of range.
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

    /// How much to subtract from `span`.
    pub fn allowance(&self, span: Duration) -> Duration {
        self.fraction_of(span).saturating_add(self.fixed)
    }

    /// The fixed part.
    pub(super) fn fixed(&self) -> Duration {
        self.fixed
    }

    /// The part that is proportional to `span`.
    pub fn fraction_of(&self, span: Duration) -> Duration {
        let nanos = span.as_nanos() * u128::from(self.parts_per_million) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Default for Drift {
    /// 1 % and 2 ms.
    fn default() -> Self {
        Self {
            parts_per_million: 10_000,
            fixed: Duration::from_millis(2),
        }
    }
}

/// Until when a majority that was asked at `t0` for `ttl` surely holds the lock.
///
/// `t0` is read before the first request of the round is sent, so every node's lease starts later.
/// The drift covers nodes whose clocks run faster than ours.
pub fn deadline(t0: Timestamp, ttl: Duration, drift: Drift) -> Timestamp {
    t0 + ttl.saturating_sub(drift.allowance(ttl))
}
