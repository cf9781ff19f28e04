//! Points in time as plain values. Reading a clock is `clock.rs`' business alone.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the client's own clock, which counts suspend and is never set.
///
/// Only differences mean anything; a `Timestamp` of another process or boot means nothing here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// One more than the nanoseconds, so that a timestamp that may be missing takes no more room.
    NonZeroU64,
);

impl Timestamp {
    /// The beginning of the clock.
    pub const ZERO: Self = Self::from_nanos(0);

    /// The point `nanos` after the beginning of the clock, or the last that can be written.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the beginning of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Microseconds since the beginning of the clock: the unit in which node clocks are compared.
    pub const fn as_micros(self) -> u64 {
        self.as_nanos() / 1000
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates: a timestamp too far away to be written is one that never comes.
    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.as_nanos().saturating_sub(nanos))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_that_may_be_missing_takes_no_more_room() {
        assert_eq!(size_of::<Option<Timestamp>>(), size_of::<u64>());
    }

    #[test]
    fn what_cannot_be_written_saturates() {
        let never = Timestamp::from_nanos(u64::MAX);
        assert_eq!(never + Duration::from_nanos(1), never);
        assert_eq!(Timestamp::ZERO + Duration::MAX, never);
        assert_eq!(Timestamp::ZERO - Duration::from_nanos(1), Timestamp::ZERO);
        for nanos in [0, 1, u64::MAX - 1] {
            assert_eq!(Timestamp::from_nanos(nanos).as_nanos(), nanos);
        }
        assert_eq!(
            (never - Duration::from_nanos(5)).since(never),
            Duration::ZERO
        );
        assert_eq!(never.since(never - Duration::from_nanos(5)).as_nanos(), 5);
    }
}
