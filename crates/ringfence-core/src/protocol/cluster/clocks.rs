//! The clocks of the nodes: which ballots they accept, and which of them jumped.
//!
//! A node accepts ballots close to its clock, so the ballot of an attempt is chosen from the nodes'
//! clocks ([`Cluster::choose`]).
//!
//! Compares the nodes' clocks with ours. A node whose clock jumped may not vote for a quarantine.
//! If a majority jumped alike, our own clock froze, as it does in a paused virtual machine.
//!
//! A client that has just started has nothing to compare with: it does not notice a jump before its
//! first reply. The fence limits the damage.
//!
//! A reply shows the node's clock at some time between sending and receiving, so it bounds the
//! offset from both sides. The longer the reply took, the wider the bounds. Two replies whose
//! bounds do not meet, drift included, prove a jump. A slow reply never does.

use std::time::Duration;

use crate::ledger::FIRST_AGE_MAX_US;
use crate::message::Ballot;
use crate::protocol::{Drift, quorum};
use crate::time::Timestamp;

use super::{Cluster, micros};

/// How many servers are remembered to which a node led before.
const FORMER_SERVERS_MAX: usize = 16;

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
        Ranges(ranges.collect())
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

/// What a reply proved about clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClockEvent {
    /// A node's clock jumped.
    Jumped {
        /// The node.
        node: usize,
        /// The size of the jump in microseconds, at least; negative if the clock was set back.
        by_us: i64,
    },
    /// A majority of the nodes jumped forward alike: our own clock froze. Every lock that was held
    /// may have expired unnoticed.
    Froze {
        /// How long it froze, at least.
        span: Duration,
    },
    /// A majority of the nodes jumped back alike: our own clock ran ahead. Leases last longer than
    /// we think, so nothing is lost.
    RanAhead {
        /// How far it ran ahead, at least.
        span: Duration,
    },
}

/// What is known about the clocks of all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Clocks {
    drift: Drift,
    nodes: Vec<ObservedClock>,
    froze_at: Option<Timestamp>,
    /// The clocks of servers to which a node led before, by server number.
    former_servers: Vec<(u64, ObservedClock)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct ObservedClock {
    /// The node's leases run on another clock than the one in its replies.
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
            nodes: vec![ObservedClock::default(); nodes],
            froze_at: None,
            former_servers: Vec::new(),
        }
    }

    /// The clock in `node`'s replies says nothing about its leases.
    pub(super) fn exempt(&mut self, node: usize) {
        self.nodes[node].exempt = true;
    }

    /// Takes a reply of `node`. `counts`: whether a node's clock is counted, which is false for a
    /// duplicate.
    ///
    /// A single jump is blamed on the node, until a majority turns out to have jumped alike. Until
    /// then the node's answers do not count, which is safe in both cases: if our clock froze, no
    /// earlier round counts, and the nodes that jumped alike get their votes back.
    pub(super) fn observe(
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
        let jump = clock.offset.observe(reading, self.drift)?;
        clock.jumps += 1;
        clock.last = Some((jump, reading.received));
        // Ignore older jumps that no longer cost a vote.
        let recent = |at: Timestamp| !(at + quarantine).since(reading.received).is_zero();
        let nodes = self.nodes.iter().enumerate();
        let jumps = nodes.filter_map(|(node, clock)| clock.last.as_ref().filter(|_| counts(node)));
        let jumps = jumps.filter(|(_, at)| recent(*at)).map(|(jump, _)| jump);
        if Jump::most_alike(jumps) < quorum(self.nodes.len()) {
            let by_us = jump.by_us();
            return Some(ClockEvent::Jumped { node, by_us });
        }
        Some(self.own_clock_jumped(jump, reading.received))
    }

    /// `node` led to the server `from` and now leads to `to`. `duplicate` is another node that
    /// leads to `to`, if there is one. The knowledge about a clock follows its server: a jump costs
    /// the vote of the server that jumped, behind whichever node it is, and clocks of different
    /// servers are never compared.
    pub(super) fn moved(&mut self, node: usize, (from, to): (u64, u64), duplicate: Option<usize>) {
        let known = match duplicate {
            Some(duplicate) => Some(self.nodes[duplicate].clone()),
            None => {
                let former = self
                    .former_servers
                    .iter()
                    .rposition(|(server, _)| *server == to);
                former.map(|index| self.former_servers.remove(index).1)
            }
        };
        let known = known.unwrap_or_default();
        let clock = &mut self.nodes[node];
        self.former_servers.push((from, clock.clone()));
        (clock.offset, clock.last) = (known.offset, known.last);
        if self.former_servers.len() > FORMER_SERVERS_MAX {
            self.former_servers.remove(0);
        }
    }

    /// `node` was born again. Measures its offset anew: its data may be that of another server, and
    /// a clock that is ahead must not look like a freeze of our own.
    pub(super) fn begin_anew(&mut self, node: usize) {
        self.nodes[node].offset = Offset::default();
    }

    /// How much longer the answers of `node` do not count because its clock jumped, and the size of
    /// the jump.
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

    /// How many jumps of `node`'s clock were proved, without those that were a freeze of our own.
    pub(super) fn jumps(&self, node: usize) -> u64 {
        self.nodes[node].jumps
    }

    /// When the last freeze of our own clock was found.
    pub(super) fn froze_at(&self) -> Option<Timestamp> {
        self.froze_at
    }

    /// Our own clock was at fault. Nodes that jumped alike get their votes back, and all offsets
    /// are measured anew.
    fn own_clock_jumped(&mut self, jump: Jump, now: Timestamp) -> ClockEvent {
        let former = self.former_servers.iter_mut().map(|(_, clock)| clock);
        for clock in self.nodes.iter_mut().chain(former) {
            clock.offset.restart(now);
            let last = clock.last.as_ref();
            if last.is_some_and(|(other, _)| Jump::most_alike([jump, *other].iter()) == 2) {
                clock.last = None;
                clock.jumps = clock.jumps.saturating_sub(1);
            }
        }
        let span = Duration::from_micros(jump.by_us().unsigned_abs());
        if jump.is_forward() {
            self.froze_at = Some(now);
            ClockEvent::Froze { span }
        } else {
            ClockEvent::RanAhead { span }
        }
    }
}

/// The clock of a node in one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    pub(super) clock_us: u64,
    /// The node read its clock between these two points on our clock.
    pub(super) sent: Timestamp,
    pub(super) received: Timestamp,
}

/// The bounds of a node's clock minus ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Bounds {
    low_us: i128,
    high_us: i128,
}

/// What is known about the offset of one node: the bounds that are consistent with all replies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Offset {
    known: Option<Known>,
    /// Replies to requests that were sent before this are ignored. They may show the clock before a
    /// jump that is already known.
    ignore_before: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Known {
    bounds: Bounds,
    /// The last consistent reply was sent and received at these times.
    from: Timestamp,
    until: Timestamp,
}

/// A jump of a node's clock relative to ours: its size, and when it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Jump {
    /// The smallest and the largest possible size; negative if the clock was set back.
    low_us: i128,
    high_us: i128,
    after: Timestamp,
    before: Timestamp,
}

impl Bounds {
    fn of(reading: &Reading) -> Self {
        let clock_us = i128::from(reading.clock_us);
        Self {
            // Rounded outwards, because both clocks are cut to whole microseconds.
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

    /// The gap between the bounds; zero or less if they meet.
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
    /// Takes a reply. Returns the jump, if the reply proves one.
    ///
    /// A step within the fixed part of the drift is not a jump, because the validity of every grant
    /// is shorter by that part. Such a step does not change the known bounds, so many small steps
    /// still add up to a jump.
    pub(super) fn observe(&mut self, reading: Reading, drift: Drift) -> Option<Jump> {
        if self
            .ignore_before
            .is_some_and(|ignore_before| reading.sent < ignore_before)
        {
            return None;
        }
        let observed = Bounds::of(&reading);
        let Some(known) = self.known else {
            self.start(reading);
            return None;
        };
        let elapsed = known
            .until
            .max(reading.received)
            .since(known.from.min(reading.sent));
        // Rounded up, like the bounds.
        let moved = drift.fraction_of(elapsed) + Duration::from_micros(1);
        let expected = known.bounds.widened(moved);
        let gap_us = expected.gap_us(observed);
        if gap_us > drift.fixed().as_micros() as i128 {
            self.start(reading);
            self.ignore_before = Some(reading.received);
            return Some(Jump {
                low_us: observed.low_us - expected.high_us,
                high_us: observed.high_us - expected.low_us,
                after: known.from,
                before: reading.received,
            });
        }
        if gap_us <= 0 {
            self.known = Some(Known {
                bounds: expected.both(observed),
                from: reading.sent,
                until: reading.received,
            });
        }
        None
    }

    /// Forgets the offset: only replies to requests that are sent from `now` on count.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.known = None;
        self.ignore_before = Some(now);
    }

    fn start(&mut self, reading: Reading) {
        self.known = Some(Known {
            bounds: Bounds::of(&reading),
            from: reading.sent,
            until: reading.received,
        });
    }
}

impl Jump {
    /// The size of the jump in microseconds, at least; negative if the clock was set back.
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

    /// How many of `jumps` can be the same jump: of the same size at the same time.
    pub(super) fn most_alike<'a>(jumps: impl Iterator<Item = &'a Self> + Clone) -> usize {
        // If some of them overlap, they overlap where one of the sizes and one of the intervals
        // begins.
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
