//! Breaking a lock on a majority: rounds under rising ballots until one is accepted.
//!
//! A break counts like a grant: a majority of the nodes that may vote must accept one and the same
//! ballot. Then the broken hold has no majority left that could extend or restore it, and every
//! later grant has a higher fence than the break.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Ballot, Break, Claim, Op, Reply, Request};
use crate::node::CallError;
use crate::time::Timestamp;

use super::request::of_no_holder;
use super::vote::count_once;
use super::{Cluster, Discount, Vote, quorum};

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BreakRound {
    ballot: Ballot,
    t0: Timestamp,
    timeout: Timestamp,
    nodes: Vec<BreakNode>,
    verdict: Option<BreakVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BreakNode {
    vote: Vote,
    server: u64,
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
        let unheard = BreakNode {
            vote: Vote::Pending,
            server: 0,
            floor: None,
            removed: 0,
        };
        BreakRound {
            ballot: choice.map(|choice| choice.ballot).unwrap_or_default(),
            t0: now,
            timeout: now + patience,
            nodes: vec![unheard; self.floors.len()],
            verdict: None,
        }
    }

    /// Decides what follows `round`.
    pub fn conclude(&mut self, round: &BreakRound) -> BreakNext {
        for (node, state) in round.nodes.iter().enumerate() {
            self.floors[node] = state.floor.or(self.floors[node]);
            self.removed[node] += state.removed;
        }
        match round.verdict {
            Some(BreakVerdict::Broken) => BreakNext::Broken {
                fence: round.ballot,
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
        let ballot = self.ballot;
        let op = Op::Break(Break {
            ballot,
            ..what.clone()
        });
        of_no_holder(Arc::clone(claims), op)
    }

    /// When the round began, before the first send.
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), unless there is a verdict.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.verdict.is_none().then_some(self.timeout)
    }

    /// The verdict, as soon as it cannot change.
    pub fn verdict(&self) -> Option<BreakVerdict> {
        self.verdict
    }

    /// Every node's vote so far, in node order.
    pub fn votes(&self) -> impl Iterator<Item = &Vote> {
        self.nodes.iter().map(|node| &node.vote)
    }

    /// Takes the outcome of the call to `node`. `discount`: why its answers do not count.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
    ) {
        let state = &mut self.nodes[node];
        if let Ok(reply) = &outcome {
            state.server = reply.standing.server;
            state.floor = reply.stamp.map(|stamp| stamp.floor);
            if let Answer::Removed { holders } = reply.answer {
                state.removed = holders;
            }
        }
        let server = state.server;
        state.vote = Vote::of(outcome, discount);
        let all = self.nodes.iter_mut().map(|s| (s.server, &mut s.vote));
        count_once(server, all);
        self.verdict = self.verdict.or_else(|| self.tally());
    }

    /// Time has passed. After the timeout, nodes that have not answered do not count.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.verdict.is_some() || now < self.timeout {
            return;
        }
        Vote::time_out(self.nodes.iter_mut().map(|node| &mut node.vote));
        self.verdict = self.tally();
    }

    fn tally(&self) -> Option<BreakVerdict> {
        let quorum = quorum(self.nodes.len());
        let count = |wanted: fn(&Vote) -> bool| self.votes().filter(|v| wanted(v)).count();
        let broken = count(|vote| *vote == Vote::Granted);
        if broken >= quorum {
            return Some(BreakVerdict::Broken);
        }
        // A break that reached a minority is not undone: the holder has lost these nodes. So wait
        // for every node before giving up.
        if count(|vote| *vote == Vote::Pending) > 0 {
            return None;
        }
        let refused = count(|vote| matches!(vote, Vote::Stale | Vote::Ahead));
        let held = count(|vote| matches!(vote, Vote::Held(_)));
        Some(if broken + refused + held < quorum {
            BreakVerdict::NoQuorum
        } else if broken + refused >= quorum {
            BreakVerdict::Refused
        } else {
            BreakVerdict::Changed
        })
    }
}
