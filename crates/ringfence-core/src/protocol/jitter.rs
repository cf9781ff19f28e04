//! Random delays. The seed is an argument: the same seed gives the same run.

use std::time::Duration;

use crate::splitmix::SplitMix64;

/// Draws delays. Safety does not depend on them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Jitter(pub(super) SplitMix64);

impl Jitter {
    /// A duration between half of `span` and all of it. The lower bound keeps two clients that
    /// collided from colliding again at once.
    pub(super) fn spread(&mut self, span: Duration) -> Duration {
        let half = span / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.0.draw() % nanos.max(1))
    }
}
