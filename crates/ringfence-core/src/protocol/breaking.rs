//! Breaking a lock on a majority: rounds under rising ballots until one is accepted.
//!
//! A break counts like a grant: a majority of the nodes that may vote must accept one and the same
//! ballot. Then the broken hold has no majority left that could extend or restore it, and every
//! later grant has a higher fence than the break.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Ballot, Break, Claim, Op, Request};
use crate::time::Timestamp;

use super::request::of_no_holder;
use super::round::{Purpose, Round, RoundReply};
use super::{Cluster, RoundMachine, Vote};

/// After so many refused ballots in a row, other clients raise the fence faster than we can.
const ROUNDS_MAX: u32 = 12;

/// One break, over several rounds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BreakCall {
    floors: Vec<Option<Ballot>>,
    rounds: u32,
    /// How many holders were removed at most on one node, in all rounds.
    removed: Vec<u64>,
}

/// One round of a break: one ballot, sent to all nodes.
pub type BreakRound = Round<Breaking>;

/// What a round of a break proposes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Breaking {
    ballot: Ballot,
}

/// What a round of a break keeps of a node beside its vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BreakReport {
    floor: Option<Ballot>,
    removed: u64,
}

/// The verdict of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakVerdict {
    /// A majority closed the ballot of the holder and raised the fence.
    Broken,
    /// The ballot was refused on too many nodes: a higher one may be accepted.
    Refused,
    /// A later holder has the lock on too many nodes.
    Changed,
    /// Too few answers that count.
    NoQuorum,
}

/// What follows a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakNext {
    /// The lock is broken.
    Broken {
        /// The fence from now on.
        fence: Ballot,
        /// How many holders were removed, as the node with the most of them says.
        holders: u64,
    },
    /// Begin another round.
    Again,
    /// The lock has another holder than the one that was to be broken.
    Changed,
    /// No majority accepted the break. Some nodes may have carried it out.
    NoQuorum,
}

impl BreakCall {
    /// A break on `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            floors: vec![None; nodes],
            rounds: 0,
            removed: vec![0; nodes],
        }
    }

    /// Begins a round. `now` must be read before anything is sent.
    pub fn begin(
        &mut self,
        cluster: &mut Cluster,
        now: Timestamp,
        patience: Duration,
    ) -> BreakRound {
        self.rounds += 1;
        let choice = cluster.choose(&self.floors, now);
        let ballot = choice.map(|choice| choice.ballot).unwrap_or_default();
        let reports = vec![BreakReport::default(); self.floors.len()];
        BreakRound::begin(Breaking { ballot }, now, now + patience, reports)
    }

    /// Decides what follows `round`.
    pub fn conclude(&mut self, round: &BreakRound) -> BreakNext {
        for (node, state) in round.nodes.iter().enumerate() {
            self.floors[node] = state.note.floor.or(self.floors[node]);
            self.removed[node] += state.note.removed;
        }
        match round.verdict() {
            Some(BreakVerdict::Broken) => BreakNext::Broken {
                fence: round.purpose.ballot,
                holders: self.removed.iter().copied().max().unwrap_or_default(),
            },
            Some(BreakVerdict::Changed) => BreakNext::Changed,
            Some(BreakVerdict::Refused) if self.rounds < ROUNDS_MAX => BreakNext::Again,
            _ => BreakNext::NoQuorum,
        }
    }
}

impl BreakRound {
    /// The request of this round. The ballot in `what` is replaced.
    pub fn request(&self, claims: &Arc<[Claim]>, what: &Break) -> Request {
        let ballot = self.purpose.ballot;
        let op = Op::Break(Break {
            ballot,
            ..what.clone()
        });
        of_no_holder(Arc::clone(claims), op)
    }
}

impl Purpose for Breaking {
    type Note = BreakReport;
    type Verdict = BreakVerdict;

    fn vote(&mut self, report: &mut BreakReport, reply: RoundReply) -> Option<Vote> {
        if let Ok(reply) = &reply.outcome {
            report.floor = reply.stamp.map(|stamp| stamp.floor);
            if let Answer::Removed { holders } = reply.answer {
                report.removed = holders;
            }
        }
        Some(reply.vote())
    }

    fn tally(round: &BreakRound, _: Timestamp) -> Option<BreakVerdict> {
        let quorum = round.quorum();
        let broken = round.count(|vote| *vote == Vote::Granted);
        if broken >= quorum {
            return Some(BreakVerdict::Broken);
        }
        // A break that reached a minority is not undone: the holder has lost these nodes. So wait
        // for every node before giving up.
        if round.count(|vote| *vote == Vote::Pending) > 0 {
            return None;
        }
        let refused = round.count(|vote| matches!(vote, Vote::Stale | Vote::Ahead));
        let held = round.count(|vote| matches!(vote, Vote::Held(_)));
        Some(if broken + refused + held < quorum {
            BreakVerdict::NoQuorum
        } else if broken + refused >= quorum {
            BreakVerdict::Refused
        } else {
            BreakVerdict::Changed
        })
    }
}
