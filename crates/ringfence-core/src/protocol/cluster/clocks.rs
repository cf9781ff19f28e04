//! The nodes' clocks against ours: who jumped and does not vote for it, and whether it was not they
//! but our own clock that stood still, as it does in a virtual machine that is paused.
//!
//! A client that has just begun has nothing to compare with: a jump before its first reply is not
//! noticed. The fence contains what that may cost.
//!
//! A reply shows the node's clock at some moment between request and answer, so it bounds the
//! offset from both sides: the longer the reply took, the wider the bounds. Two replies whose bounds
//! do not meet, drift included, prove a jump; a slow reply never does.

use std::time::Duration;

use crate::time::Timestamp;

use crate::protocol::{Drift, quorum};

/// How many servers are remembered that a node led to before.
const LEFT_MAX: usize = 16;

/// What a reply proved about clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockEvent {
    /// A node's clock jumped.
    Jumped {
        /// Which node's.
        node: usize,
        /// By how many microseconds at least; below zero it was set back.
        by_us: i64,
    },
    /// A majority of the nodes jumped forward alike: our own clock stood still, for at least this
    /// long. Whatever was held may have expired unnoticed.
    StoodStill {
        /// For how long, at least.
        span: Duration,
    },
    /// A majority of the nodes jumped back alike: our own clock ran ahead, by at least this much.
    /// Leases last longer than we think, not shorter: nothing is lost.
    RanAhead {
        /// By how much, at least.
        span: Duration,
    },
}

/// What is known of all nodes' clocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Clocks {
    drift: Drift,
    nodes: Vec<NodeClock>,
    stood_still: Option<Timestamp>,
    /// What is known of servers that a node led to before, by the number of the server.
    left: Vec<(u64, NodeClock)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct NodeClock {
    /// Its leases run on another clock than the one in its replies.
    exempt: bool,
    offset: Offset,
    jumps: u64,
    /// The last jump, and when it was proved.
    last: Option<(Jump, Timestamp)>,
}

impl Clocks {
    pub(super) fn new(nodes: usize, drift: Drift) -> Self {
        Self {
            drift,
            nodes: vec![NodeClock::default(); nodes],
            stood_still: None,
            left: Vec::new(),
        }
    }

    /// The clock in `node`'s replies says nothing about its leases.
    pub(super) fn exempt(&mut self, node: usize) {
        self.nodes[node].exempt = true;
    }

    /// Takes a reply of `node`. `counts` says which nodes' clocks are no other node's.
    ///
    /// A single jump is the node's own, until a majority turns out to have jumped alike. In between
    /// nothing that the node says counts, which is safe either way: if it was our clock, no round
    /// from before counts, and those who jumped get their votes back.
    pub(super) fn hear(
        &mut self,
        node: usize,
        reading: Reading,
        quarantine: Duration,
        counts: impl Fn(usize) -> bool,
    ) -> Option<ClockEvent> {
        let clock = &mut self.nodes[node];
        if clock.exempt {
            return None;
        }
        let jump = clock.offset.hear(reading, self.drift)?;
        clock.jumps += 1;
        clock.last = Some((jump, reading.received));
        // A jump that no longer costs a vote says nothing about this one.
        let recent = |at: Timestamp| !(at + quarantine).since(reading.received).is_zero();
        let nodes = self.nodes.iter().enumerate();
        let jumps = nodes.filter_map(|(node, clock)| clock.last.as_ref().filter(|_| counts(node)));
        let jumps = jumps.filter(|(_, at)| recent(*at)).map(|(jump, _)| jump);
        if Jump::most_alike(jumps) < quorum(self.nodes.len()) {
            let by_us = jump.by_us();
            return Some(ClockEvent::Jumped { node, by_us });
        }
        Some(self.blame_our_own(jump, reading.received))
    }

    /// `node` led to the server `from` and leads to `to` now, as does the node `twin`, if there is
    /// one. What is known of a clock goes with its server: a jump costs the vote of the server that
    /// jumped, wherever it is, and the clocks of two servers are not compared with each other.
    pub(super) fn moved(&mut self, node: usize, (from, to): (u64, u64), twin: Option<usize>) {
        let known = match twin {
            Some(twin) => Some(self.nodes[twin].clone()),
            None => {
                let left = self.left.iter().rposition(|(server, _)| *server == to);
                left.map(|index| self.left.remove(index).1)
            }
        };
        let known = known.unwrap_or_default();
        let clock = &mut self.nodes[node];
        self.left.push((from, clock.clone()));
        (clock.offset, clock.last) = (known.offset, known.last);
        if self.left.len() > LEFT_MAX {
            self.left.remove(0);
        }
    }

    /// For how much longer nothing counts that `node` says, and by how much it jumped, if it did.
    pub(super) fn jumped(
        &self,
        node: usize,
        quarantine: Duration,
        now: Timestamp,
    ) -> Option<(Duration, i64)> {
        let (jump, proved) = self.nodes[node].last.as_ref()?;
        let left = (*proved + quarantine).since(now);
        (!left.is_zero()).then(|| (left, jump.by_us()))
    }

    /// How often `node`'s clock jumped, our own clock's standing still left aside.
    pub(super) fn jumps(&self, node: usize) -> u64 {
        self.nodes[node].jumps
    }

    /// When our own clock was last found to have stood still.
    pub(super) fn stood_still(&self) -> Option<Timestamp> {
        self.stood_still
    }

    /// It was us, not them: whoever jumped alike gets its vote back, and all are measured anew.
    fn blame_our_own(&mut self, jump: Jump, now: Timestamp) -> ClockEvent {
        let left = self.left.iter_mut().map(|(_, clock)| clock);
        for clock in self.nodes.iter_mut().chain(left) {
            clock.offset.begin_again(now);
            let last = clock.last.as_ref();
            if last.is_some_and(|(other, _)| Jump::most_alike([jump, *other].iter()) == 2) {
                clock.last = None;
                clock.jumps = clock.jumps.saturating_sub(1);
            }
        }
        let span = Duration::from_micros(jump.by_us().unsigned_abs());
        if jump.is_forward() {
            self.stood_still = Some(now);
            ClockEvent::StoodStill { span }
        } else {
            ClockEvent::RanAhead { span }
        }
    }
}

/// One reply's word about its node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    pub(super) clock_us: u64,
    /// The clock was read between these two moments of ours.
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
}

/// The bounds within which a node's clock runs ahead of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Bounds {
    low_us: i128,
    high_us: i128,
}

/// What is known of one node's offset: the narrowest bounds that all replies so far leave.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Offset {
    known: Option<Known>,
    /// Replies to requests from before this are left out. They may show the clock as it was
    /// before a jump that is already known.
    begun: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Known {
    bounds: Bounds,
    /// The last reply that fitted was read between these two moments.
    from: Timestamp,
    until: Timestamp,
}

/// A jump of a node's clock against ours: it happened, by so much, at some time in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Jump {
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
