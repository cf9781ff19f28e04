//! The nodes' clocks against ours: who jumped and does not vote for it, and whether it was not they
//! but our own clock that stood still, as it does in a virtual machine that is paused.
//!
//! A client that has just begun has nothing to compare with: a jump before its first reply is not
//! noticed. The fence contains what that may cost.

use std::time::Duration;

use crate::time::Timestamp;

use super::offsets::{Jump, Offset, Reading};
use super::{Drift, quorum};

/// How many servers are remembered that a node led to before.
const LEFT_MAX: usize = 16;

/// What a reply proved about clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone)]
pub(super) struct Clocks {
    drift: Drift,
    nodes: Vec<NodeClock>,
    stood_still: Option<Timestamp>,
    /// What is known of servers that a node led to before, by the number of the server.
    left: Vec<(u64, NodeClock)>,
}

#[derive(Debug, Clone, Default)]
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
