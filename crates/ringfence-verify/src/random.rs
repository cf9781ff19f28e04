//! Chance that a seed decides: the same seed, the same world.

use ringfence_core::splitmix::SplitMix64;

/// Draws what a schedule leaves open.
#[derive(Debug, Clone)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// A generator of its own for each `of`, so that what one draws does not change what another does.
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

    /// A number from `-most` to `most`.
    pub(crate) fn about(&mut self, most: i64) -> i64 {
        let most = most.unsigned_abs();
        self.between(0, 2 * most) as i64 - most as i64
    }

    /// Whether something that happens `percent` times in a hundred does.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }
}
