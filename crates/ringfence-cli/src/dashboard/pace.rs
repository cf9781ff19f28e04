//! How often the nodes are asked for their locks: as often as one per cent of a server's time
//! allows, and not more often than a person can see. Pure.

use std::time::Duration;

/// The pause between two rounds at least and at most.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(2);
/// What a round may cost a node for each lock, times a hundred and some more: measured 9 µs for each
/// lock on a slow machine, and a round takes at most 0.6 % of a core.
const FOR_EACH_LOCK: Duration = Duration::from_micros(1_500);

/// The time from the beginning of a round that found `locks` to the beginning of the next one.
pub(super) fn interval(locks: usize) -> Duration {
    let locks = u32::try_from(locks).unwrap_or(u32::MAX);
    FOR_EACH_LOCK.saturating_mul(locks).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_locks_are_looked_at_often_and_many_every_two_seconds() {
        assert_eq!(interval(0), Duration::from_millis(250));
        assert_eq!(interval(100), Duration::from_millis(250));
        assert_eq!(interval(1_000), Duration::from_millis(1_500));
        assert_eq!(interval(100_000), Duration::from_secs(2));
        assert_eq!(interval(usize::MAX), Duration::from_secs(2));
    }
}
