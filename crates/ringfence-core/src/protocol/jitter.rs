//! Randomness for delays only, from a seed that comes in as a value: the same seed, the same run.

use std::time::Duration;

use crate::splitmix::SplitMix64;

/// Draws delays. No safety depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Jitter(pub(super) SplitMix64);

impl Jitter {
    /// A duration between half of `span` and all of it: never so short that two clients who met
    /// meet again at once.
    pub(super) fn spread(&mut self, span: Duration) -> Duration {
        let half = span / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.0.draw() % nanos.max(1))
    }
}
