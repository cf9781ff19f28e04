//! Points in time as plain values. Reading a clock is `clock.rs`' business alone.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the client's own clock, which counts suspend and is never set.
///
/// Only differences mean anything; a `Timestamp` of another process or boot means nothing here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);

    /// The point `nanos` after the beginning of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds since the beginning of the clock: the unit in which node clocks are compared.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1000
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
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
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}
