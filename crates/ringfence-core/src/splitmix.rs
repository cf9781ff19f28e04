//! A pseudo-random number generator: the same seed gives the same numbers. It is for delays and
//! simulations only.

/// The generator splitmix64. Its numbers are predictable, so never use them for secrets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    /// The generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference_implementation() {
        let mut numbers = SplitMix64::new(1_234_567);
        let first = [numbers.draw(), numbers.draw(), numbers.draw()];
        let reference = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, reference);
    }
}
