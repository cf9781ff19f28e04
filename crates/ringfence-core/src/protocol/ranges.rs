//! The ballots that each node accepts, and which of them to propose.

use crate::message::Ballot;

/// The ballots that one node should accept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    clock_us: u64,
    /// What the clock alone demands.
    ground: u64,
    /// Ballots must be above this: the ground, or what the node has on record.
    lowest: u64,
    /// And not above this.
    highest: u64,
}

impl Range {
    /// Both ends of the window are taken with a margin, since the node's clock moves on and is
    /// known only to within a round trip; its record is exact.
    pub(super) fn new(clock_us: u64, floor: Option<Ballot>, window_us: u64) -> Self {
        let margin = window_us / 10;
        let floor = floor.unwrap_or_default().get();
        let ground = clock_us.saturating_sub(window_us - margin);
        Self {
            clock_us,
            ground,
            lowest: floor.max(ground),
            highest: clock_us.saturating_add(window_us - margin),
        }
    }

    fn accepts(&self, ballot: u64) -> bool {
        self.lowest < ballot && ballot <= self.highest
    }

    /// After how many microseconds its clock has come far enough for `ballot`, if it is above the record.
    fn accepts_in(&self, ballot: u64) -> Option<u64> {
        (self.lowest < ballot).then(|| ballot.saturating_sub(self.highest))
    }

    /// Whether the ground is still below `ballot` after `wait_us`.
    fn is_below_after(&self, ballot: u64, wait_us: u64) -> bool {
        self.ground.saturating_add(wait_us) < ballot
    }
}

/// The ranges of all nodes that have a say.
#[derive(Debug)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    pub(super) fn new(ranges: Vec<Range>) -> Self {
        Self(ranges)
    }

    /// How many nodes accept `ballot` now.
    pub(super) fn accepting(&self, ballot: u64) -> usize {
        self.0.iter().filter(|range| range.accepts(ballot)).count()
    }

    /// The ballot that most nodes accept now; of several the smallest that is not below the median
    /// clock, else the largest. `None` without any node.
    pub(super) fn best(&self) -> Option<u64> {
        let median = self.median()?;
        // Better: more nodes; then not below the median; then near it.
        let rank = |&ballot: &u64| {
            let below = ballot < median;
            (
                self.accepting(ballot),
                !below,
                if below { ballot } else { u64::MAX - ballot },
            )
        };
        self.lowest().chain([median]).max_by_key(rank)
    }

    /// Where a majority answers and no ballot pleases one now, but one will when time has passed: that
    /// ballot, of several the one that has to wait least.
    ///
    /// It happens where clocks are far apart and the fast node's record is above the slow one's ceiling. To
    /// propose the fast one's present time again and again would lift the record as fast as the
    /// ceiling rises, and nobody would ever be granted anything; this lifts it by a microsecond.
    pub(super) fn soonest(&self, quorum: usize) -> Option<u64> {
        if self.0.len() < quorum || self.best().is_some_and(|b| self.accepting(b) >= quorum) {
            return None;
        }
        let waits = self.lowest().filter_map(|ballot| {
            let wait_us = self.accepted_in(ballot, quorum)?;
            Some((wait_us, ballot))
        });
        waits.min().map(|(_, ballot)| ballot)
    }

    /// After how many microseconds `quorum` nodes accept `ballot`, if they ever do at once.
    fn accepted_in(&self, ballot: u64, quorum: usize) -> Option<u64> {
        let mut waits: Vec<(u64, &Range)> = self
            .0
            .iter()
            .filter_map(|range| Some((range.accepts_in(ballot)?, range)))
            .collect();
        waits.sort_unstable_by_key(|(wait_us, _)| *wait_us);
        // Those who wait longest decide when; by then the ground of others may have passed it.
        let moments = waits.iter().map(|(wait_us, _)| *wait_us);
        moments.into_iter().find(|&moment| {
            let there = waits.iter().filter(|(wait_us, range)| {
                *wait_us <= moment && range.is_below_after(ballot, moment)
            });
            there.count() >= quorum
        })
    }

    fn lowest(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|range| range.lowest.saturating_add(1))
    }

    /// The clocks, in ascending order.
    pub(super) fn clocks(&self) -> Vec<u64> {
        let mut clocks: Vec<u64> = self.0.iter().map(|range| range.clock_us).collect();
        clocks.sort_unstable();
        clocks
    }

    /// The lower median of the clocks.
    pub(super) fn median(&self) -> Option<u64> {
        let clocks = self.clocks();
        clocks.get(clocks.len().checked_sub(1)? / 2).copied()
    }
}
