//! How long to wait before the next attempt to connect.

use std::time::Duration;

/// The first wait, once an attempt has failed.
const FIRST: Duration = Duration::from_millis(20);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits that double, with jitter, so that the clients of a fleet do not reconnect at the same
/// time.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    state: u64,
}

impl Backoff {
    /// Jitter from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            state: seed | 1,
        }
    }

    /// Resets the backoff after a connection that lasted: the next wait is zero.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait before the next attempt: zero after the first failure, then between half of and all
    /// of a span that doubles.
    pub(crate) fn next(&mut self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let at_once = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        if at_once {
            return Duration::ZERO;
        }
        let span = LONGEST.min(FIRST * 2u32.pow(doublings));
        // xorshift64: the jitter needs no good randomness.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        span / 2 + (span / 2).mul_f64((self.state >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_second_and_begin_again() {
        let mut backoff = Backoff::new(7);
        assert_eq!(backoff.next(), Duration::ZERO);
        for span_ms in [20, 40, 80, 160, 320, 640, 1000, 1000, 1000] {
            let wait = backoff.next().as_millis();
            assert!(
                (span_ms / 2..=span_ms).contains(&wait),
                "{wait} of {span_ms}"
            );
        }
        for _ in 0..100 {
            assert!(backoff.next() <= LONGEST);
        }
        backoff.reset();
        assert_eq!(backoff.next(), Duration::ZERO);
    }
}
