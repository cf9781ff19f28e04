//! Which ballots each node accepts, and which ballot to propose.

use std::time::Duration;

use crate::ledger::FIRST_AGE_MAX_US;
use crate::message::Ballot;
use crate::protocol::quorum;
use crate::time::Timestamp;

use super::{Cluster, micros};

/// A ballot to propose, and how many answering nodes are expected to accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The ballot.
    pub ballot: Ballot,
    /// How many nodes should accept it, judged by their last replies.
    pub accepting: usize,
    /// How many nodes answered their last call.
    pub answering: usize,
    /// If no majority accepts any ballot now: when a majority will. Their fences are ahead of their
    /// clocks, because a clock was set back or the clocks differ.
    pub accepted_in: Option<Duration>,
}

impl Cluster {
    /// The ballot that most nodes should accept at `now`. `floors` are the claims' floors in the
    /// nodes' last replies. `None` if no node's clock is known yet.
    ///
    /// Only the nodes' clocks are used, so a wrong client clock costs nothing. A wrong node clock
    /// costs that node's vote. If no majority accepts any ballot yet, this is the ballot that a
    /// majority will accept soonest.
    pub fn choose(&mut self, floors: &[Option<Ballot>], now: Timestamp) -> Option<Choice> {
        let answering = self.answering();
        let ranges = self.ranges(floors.iter().copied(), now);
        let mut best = ranges.best()?;
        let soonest = ranges.soonest(quorum(self.nodes.len()));
        // Each attempt of a client has a higher ballot, as long as no node is lost by it.
        let next = self.proposed.get().saturating_add(1);
        let followed = ranges.accepting(next) >= ranges.accepting(best);
        if let Some((_, soonest)) = soonest {
            best = soonest;
        } else if best < next && followed {
            best = next;
        }
        let ballot = Ballot::new(best);
        self.proposed = self.proposed.max(ballot);
        Some(Choice {
            ballot,
            accepting: ranges.accepting(best),
            answering,
            accepted_in: soonest.map(|(wait_us, _)| Duration::from_micros(wait_us)),
        })
    }

    /// How many of the answering nodes have clocks so close that one ballot could suit them all.
    /// Floors are ignored: a floor that is too high now comes into reach as time passes.
    pub(in crate::protocol) fn most_in_reach(&self, now: Timestamp) -> usize {
        let ranges = self.ranges(std::iter::repeat(None), now);
        ranges.best().map_or(0, |best| ranges.accepting(best))
    }

    /// The lower median of the clocks of the answering nodes, in microseconds. `None` if no node's
    /// clock is known yet.
    pub(in crate::protocol) fn median_clock(&self, now: Timestamp) -> Option<u64> {
        self.ranges(std::iter::repeat(None), now).median()
    }

    /// The time for a new ticket, in microseconds: the lower median of the answering nodes' clocks.
    /// If the clocks are so far apart that no majority would accept it as new, the earliest time
    /// that a majority accepts. `None` if no node's clock is known yet.
    pub(in crate::protocol) fn ticket_time(&self, now: Timestamp) -> Option<u64> {
        let ranges = self.ranges(std::iter::repeat(None), now);
        let median = ranges.median()?;
        let clocks = ranges.clocks();
        // Leave half of the tolerated age for the time until the request arrives.
        let majority = clocks.get(quorum(self.nodes.len()) - 1);
        let taken = majority.map(|clock| clock.saturating_sub(FIRST_AGE_MAX_US / 2));
        Some(median.max(taken.unwrap_or_default()))
    }

    fn answering(&self) -> usize {
        self.nodes.iter().filter(|view| view.answers).count()
    }

    /// The ranges of the nodes that take part in the choice, under `floors` in node order.
    fn ranges(&self, floors: impl Iterator<Item = Option<Ballot>>, now: Timestamp) -> Ranges {
        let window_us = micros(self.group.window);
        let none_answers = self.answering() == 0;
        let ranges = self
            .nodes
            .iter()
            .zip(floors)
            .enumerate()
            // A duplicate node has no vote, so it does not take part.
            .filter(|(node, (view, _))| self.duplicate_of(*node, view.last_server).is_none())
            .map(|(_, pair)| pair)
            // A node that no longer answers does not take part. If none answers, use the last known
            // clocks.
            .filter(|(view, _)| view.answers || none_answers)
            .filter_map(|(view, floor)| {
                let clock_us = now.as_micros().checked_add_signed(view.offset_us?)?;
                Some(Range::new(clock_us, floor, window_us))
            });
        Ranges::new(ranges.collect())
    }
}

/// The ballots that one node should accept.
#[derive(Debug, Clone, Copy)]
struct Range {
    clock_us: u64,
    /// The lower end of the window: clock − w.
    clock_floor: u64,
    /// Ballots must be above this: the higher of `clock_floor` and the node's fence.
    lowest: u64,
    /// Ballots must not be above this: clock + w.
    highest: u64,
}

impl Range {
    /// Both ends of the window have a margin, because the node's clock moves on and is known only
    /// to within a round trip. The fence is exact.
    fn new(clock_us: u64, floor: Option<Ballot>, window_us: u64) -> Self {
        let margin = window_us / 10;
        let floor = floor.unwrap_or_default().get();
        let clock_floor = clock_us.saturating_sub(window_us - margin);
        Self {
            clock_us,
            clock_floor,
            lowest: floor.max(clock_floor),
            highest: clock_us.saturating_add(window_us - margin),
        }
    }

    fn accepts(&self, ballot: u64) -> bool {
        self.lowest < ballot && ballot <= self.highest
    }

    /// After how many microseconds the ceiling reaches `ballot`; `None` if the floor is too high.
    fn accepts_in(&self, ballot: u64) -> Option<u64> {
        (self.lowest < ballot).then(|| ballot.saturating_sub(self.highest))
    }

    /// Whether `clock_floor` is still below `ballot` after `wait_us`.
    fn is_below_after(&self, ballot: u64, wait_us: u64) -> bool {
        self.clock_floor.saturating_add(wait_us) < ballot
    }
}

/// The ranges of the nodes that take part in the choice.
#[derive(Debug)]
struct Ranges(Vec<Range>);

impl Ranges {
    fn new(ranges: Vec<Range>) -> Self {
        Self(ranges)
    }

    /// How many nodes accept `ballot` now.
    fn accepting(&self, ballot: u64) -> usize {
        self.0.iter().filter(|range| range.accepts(ballot)).count()
    }

    /// The ballot that most nodes accept now. On a tie the smallest that is not below the median
    /// clock, else the largest. `None` without any node.
    fn best(&self) -> Option<u64> {
        let median = self.median()?;
        // Prefer more nodes, then not below the median, then close to it.
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

    /// If a majority answers, but accepts no common ballot now and will later: the ballot with the
    /// shortest wait, after that wait in microseconds.
    ///
    /// This happens when clocks are far apart and the fence of the fast node is above the ceiling
    /// of the slow one. If clients proposed the fast node's current time again and again, they
    /// would raise its fence as fast as the slow node's ceiling rises, and no client would ever get
    /// a grant. This ballot raises the fence by one microsecond only.
    fn soonest(&self, quorum: usize) -> Option<(u64, u64)> {
        if self.0.len() < quorum || self.best().is_some_and(|b| self.accepting(b) >= quorum) {
            return None;
        }
        let waits = self.lowest().filter_map(|ballot| {
            let wait_us = self.accepted_in(ballot, quorum)?;
            Some((wait_us, ballot))
        });
        waits.min()
    }

    /// After how many microseconds `quorum` nodes accept `ballot` at the same time; `None` if
    /// never.
    fn accepted_in(&self, ballot: u64, quorum: usize) -> Option<u64> {
        let mut waits: Vec<(u64, &Range)> = self
            .0
            .iter()
            .filter_map(|range| Some((range.accepts_in(ballot)?, range)))
            .collect();
        waits.sort_unstable_by_key(|(wait_us, _)| *wait_us);
        // The longest wait of the quorum decides. By then the floor of another node may have passed
        // the ballot.
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
    fn clocks(&self) -> Vec<u64> {
        let mut clocks: Vec<u64> = self.0.iter().map(|range| range.clock_us).collect();
        clocks.sort_unstable();
        clocks
    }

    /// The lower median of the clocks.
    fn median(&self) -> Option<u64> {
        let clocks = self.clocks();
        clocks.get(clocks.len().checked_sub(1)? / 2).copied()
    }
}
