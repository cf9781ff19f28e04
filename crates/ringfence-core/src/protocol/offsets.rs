//! How one node's clock stands to ours, as far as replies prove it, and the proof that it jumped.
//!
//! A reply shows the node's clock at some moment between request and answer, so it bounds the
//! offset from both sides: the longer the reply took, the wider the bounds. Two replies whose bounds
//! do not meet, drift included, prove a jump; a slow reply never does.

use std::time::Duration;

use crate::time::Timestamp;

use super::Drift;

/// One reply's word about its node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) clock_us: u64,
    /// The clock was read between these two moments of ours.
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
}

/// The bounds within which a node's clock runs ahead of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    low_us: i128,
    high_us: i128,
}

/// What is known of one node's offset: the narrowest bounds that all replies so far leave.
#[derive(Debug, Clone, Default)]
pub(super) struct Offset {
    known: Option<Known>,
    /// Replies to requests from before this are left out. They may show the clock as it was
    /// before a jump that is already known.
    begun: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    bounds: Bounds,
    /// The last reply that fitted was read between these two moments.
    from: Timestamp,
    until: Timestamp,
}

/// A jump of a node's clock against ours: it happened, by so much, at some time in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    /// The least and the most that it can have been; below zero it was set back.
    low_us: i128,
    high_us: i128,
    after: Timestamp,
    before: Timestamp,
}

impl Bounds {
    fn of(reading: &Reading) -> Self {
        let clock_us = i128::from(reading.clock_us);
        Self {
            // Rounded outwards: both clocks are cut to whole microseconds.
            low_us: clock_us - i128::from(reading.received.as_micros()) - 1,
            high_us: clock_us - i128::from(reading.sent.as_micros()) + 1,
        }
    }

    fn widened(self, by: Duration) -> Self {
        let by_us = by.as_micros() as i128;
        Self {
            low_us: self.low_us - by_us,
            high_us: self.high_us + by_us,
        }
    }

    /// How far apart they lie; zero or less if they meet.
    fn gap_us(self, other: Self) -> i128 {
        (self.low_us - other.high_us).max(other.low_us - self.high_us)
    }

    fn both(self, other: Self) -> Self {
        Self {
            low_us: self.low_us.max(other.low_us),
            high_us: self.high_us.min(other.high_us),
        }
    }
}

impl Offset {
    /// Takes a reply; the jump, if it proves one.
    ///
    /// What the fixed part of the drift covers is no jump: the validity of every grant is shorter by
    /// as much. Such a step does not move what is known, so that many of them cannot creep away.
    pub(super) fn hear(&mut self, reading: Reading, drift: Drift) -> Option<Jump> {
        if self.begun.is_some_and(|begun| reading.sent < begun) {
            return None;
        }
        let heard = Bounds::of(&reading);
        let Some(known) = self.known else {
            self.begin(reading);
            return None;
        };
        let elapsed = known
            .until
            .max(reading.received)
            .since(known.from.min(reading.sent));
        // Rounded up, as the bounds are.
        let moved = drift.fraction_of(elapsed) + Duration::from_micros(1);
        let expected = known.bounds.widened(moved);
        let gap_us = expected.gap_us(heard);
        if gap_us > drift.fixed().as_micros() as i128 {
            self.begin(reading);
            self.begun = Some(reading.received);
            return Some(Jump {
                low_us: heard.low_us - expected.high_us,
                high_us: heard.high_us - expected.low_us,
                after: known.from,
                before: reading.received,
            });
        }
        if gap_us <= 0 {
            self.known = Some(Known {
                bounds: expected.both(heard),
                from: reading.sent,
                until: reading.received,
            });
        }
        None
    }

    /// Forgets what is known: only replies to requests from `now` on count.
    pub(super) fn begin_again(&mut self, now: Timestamp) {
        self.known = None;
        self.begun = Some(now);
    }

    fn begin(&mut self, reading: Reading) {
        self.known = Some(Known {
            bounds: Bounds::of(&reading),
            from: reading.sent,
            until: reading.received,
        });
    }
}

impl Jump {
    /// By how much it jumped at least, in microseconds; below zero it was set back.
    pub(super) fn by_us(&self) -> i64 {
        let least = if self.is_forward() {
            self.low_us
        } else {
            self.high_us
        };
        least.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    pub(super) fn is_forward(&self) -> bool {
        self.low_us > 0
    }

    /// How many of `jumps` can have been one and the same: by the same amount, at the same moment.
    pub(super) fn most_alike<'a>(jumps: impl Iterator<Item = &'a Self> + Clone) -> usize {
        // Where any of them overlap, they do so where one of the amounts and one of the windows begin.
        let has = |jump: &Self, by_us: i128, at: Timestamp| {
            (jump.low_us..=jump.high_us).contains(&by_us)
                && (jump.after..=jump.before).contains(&at)
        };
        let alike = |by_us, at| jumps.clone().filter(|jump| has(jump, by_us, at)).count();
        let amounts = jumps.clone().map(|jump| jump.low_us);
        let counts = amounts.flat_map(|by_us| {
            let moments = jumps.clone().map(|jump| jump.after);
            moments.map(move |at| (by_us, at))
        });
        counts
            .map(|(by_us, at)| alike(by_us, at))
            .max()
            .unwrap_or_default()
    }
}
