//! Random numbers from a seed: the same seed gives the same world.

use ringfence_core::splitmix::SplitMix64;

/// Draws everything that a schedule leaves to chance.
#[derive(Debug, Clone)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// A separate generator for each `of`, so that the draws of one do not change those of another.
    pub(crate) fn apart(seed: u64, of: u64) -> Self {
        let mut mixed = SplitMix64::new(seed ^ of.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(SplitMix64::new(mixed.draw()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// A number from `-most` to `most`, both included.
    pub(crate) fn about(&mut self, most: i64) -> i64 {
        let most = most.unsigned_abs();
        self.between(0, 2 * most) as i64 - most as i64
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }
}
