//! One round about a latch: what the nodes are asked, which answers count, and the result.
//!
//! Which answers count is the important rule. A restarted node has lost arrivals, and a latch lives
//! longer than a quarantine, so the quarantine alone is not enough. A node counts only if it has
//! been running without interruption since a whole quarantine before the latch was created. The
//! nodes store that creation time beside the arrivals. If no node of a majority knows the latch,
//! they may have lost it. So then a node must be older than the lifetime of a latch. With this
//! rule, any two majorities that count share a node that has lost nothing, so one majority reads
//! what the other has stored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Arrivals, Reply};
use crate::node::CallError;
use crate::time::Timestamp;

use super::vote::count_once;
use super::{Cluster, Discount, Vote, quorum};

/// What a round asks the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Report the parties that have arrived.
    Look,
    /// Store these parties.
    Add {
        /// The parties.
        parties: Arc<[Arc<str>]>,
        /// When the latch was created, if that is known.
        since_us: Option<u64>,
    },
}

/// One round about a latch. Its inputs are replies and time; its result is the
/// [`tally`](Self::tally).
#[derive(Debug, Clone)]
pub struct LatchRound {
    question: Question,
    /// What was known about the nodes when the round began, and what their replies add.
    cluster: Cluster,
    /// How long the nodes keep a latch without any call about it.
    lifetime: Duration,
    t0: Timestamp,
    timeout: Timestamp,
    replies: Vec<NodeReply>,
    /// Nodes whose last call timed out. The round does not wait for them once the others have
    /// answered.
    suspects: Vec<bool>,
    over: bool,
}

#[derive(Debug, Clone)]
enum NodeReply {
    Pending,
    TimedOut,
    /// The outcome of the call, and why it does not count.
    Outcome(Result<Reply, CallError>, Option<Discount>),
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchTally {
    /// Every node's vote, in node order: [`Vote::Granted`] if its answer counts.
    pub votes: Vec<Vote>,
    /// When the latch was created: the earliest time that a node reported. `None` if no node knows
    /// the latch.
    pub since_us: Option<u64>,
    /// All parties that any node reported.
    pub parties: BTreeSet<Arc<str>>,
    /// Whether a majority counts.
    pub speaks: bool,
    /// Whether a majority that counts has stored all parties of the request.
    pub taken: bool,
    /// Whether a majority that counts has stored all of `parties`.
    pub everywhere: bool,
}

impl LatchRound {
    /// A round that begins at `t0` and ends at `timeout` at the latest.
    pub fn new(
        question: Question,
        cluster: &Cluster,
        lifetime: Duration,
        t0: Timestamp,
        timeout: Timestamp,
        nodes: usize,
    ) -> Self {
        Self {
            question,
            cluster: cluster.clone(),
            lifetime,
            t0,
            timeout,
            replies: vec![NodeReply::Pending; nodes],
            suspects: (0..nodes).map(|node| cluster.is_silent(node)).collect(),
            over: false,
        }
    }

    /// What the round asks the nodes.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// When the round began, before the first send.
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), unless the round is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.over).then_some(self.timeout)
    }

    /// Whether no further answer can change what follows.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes the outcome of the call to `node`. `discount`: why its answers do not count. Answers
    /// after the timeout are ignored: all answers of a round must come from a time span that is
    /// short compared with the quarantine.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        // The client has already handled what the reply proves about clocks.
        let _ = self.cluster.observe(node, &outcome, self.t0, now);
        if now < self.timeout {
            self.replies[node] = NodeReply::Outcome(outcome, discount);
            self.over = self.over || self.decides(now);
        }
    }

    /// Time has passed. After the timeout, nodes that have not answered do not count.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.over || now < self.timeout {
            return;
        }
        for reply in &mut self.replies {
            if matches!(reply, NodeReply::Pending) {
                *reply = NodeReply::TimedOut;
            }
        }
        self.over = true;
    }

    /// How many arrivals each node reports, in node order.
    pub fn arrived(&self) -> Vec<Option<u64>> {
        let arrivals = |reply: &NodeReply| arrivals(reply).map(|arrivals| arrivals.arrived);
        self.replies.iter().map(arrivals).collect()
    }

    /// The nodes that did not answer before the timeout.
    pub fn silent(&self) -> Vec<usize> {
        let replies = self.replies.iter().enumerate();
        let silent = replies.filter(|(_, reply)| matches!(reply, NodeReply::TimedOut));
        silent.map(|(node, _)| node).collect()
    }

    /// The lower median of the nodes' clocks when the round began. This is the creation time of a
    /// latch that none of them knew. It must not be later, however long the answers took: arrivals
    /// that other clients stored meanwhile must not be older than the latch.
    pub fn began_us(&self) -> Option<u64> {
        self.cluster.median_clock(self.t0)
    }

    /// The result at `now`.
    pub fn tally(&self, now: Timestamp) -> LatchTally {
        let known = || self.replies.iter().filter_map(arrivals);
        let since_us = known().filter_map(|arrivals| arrivals.since_us).min();
        let parties: BTreeSet<Arc<str>> = known().flat_map(|a| a.parties.iter().cloned()).collect();
        let mut votes: Vec<Vote> = (0..self.replies.len())
            .map(|node| self.vote(node, since_us, now))
            .collect();
        let servers = self.replies.iter().map(server);
        for server in servers.clone() {
            count_once(server, servers.clone().zip(&mut votes));
        }
        let majority_has = |wanted: &dyn Fn(&BTreeSet<&Arc<str>>) -> bool| {
            let counted = self.replies.iter().zip(&votes);
            let counted = counted.filter(|(_, vote)| **vote == Vote::Granted);
            let having = counted.filter(|(reply, _)| {
                let has = arrivals(reply).map(|arrivals| arrivals.parties.iter().collect());
                has.is_some_and(|has| wanted(&has))
            });
            having.count() >= quorum(self.replies.len())
        };
        LatchTally {
            speaks: majority_has(&|_| true),
            taken: majority_has(&|has| self.asked().iter().all(|party| has.contains(party))),
            everywhere: majority_has(&|has| has.len() == parties.len()),
            since_us,
            parties,
            votes,
        }
    }

    /// The vote of `node` about a latch that was created at `since_us`, or that no node knows.
    fn vote(&self, node: usize, since_us: Option<u64>, now: Timestamp) -> Vote {
        let (outcome, given) = match &self.replies[node] {
            NodeReply::Pending => return Vote::Pending,
            NodeReply::TimedOut => return Vote::TimedOut,
            NodeReply::Outcome(outcome, discount) => (outcome, *discount),
        };
        let Ok(Reply {
            answer: Answer::Arrivals(_),
            standing,
            ..
        }) = outcome
        else {
            return Vote::of(outcome.clone(), None);
        };
        // Ignore a quarantine: the comparison with the latch's age below is the stricter rule.
        let by_clock = |discount: &Discount| !matches!(discount, Discount::Quarantined { .. });
        let found = self.cluster.discount(node, *standing, self.t0, now);
        if let Some(discount) = given.filter(by_clock).or(found.filter(by_clock)) {
            return discount.into();
        }
        let age = since_us.map(|since_us| {
            let clock_us = self.cluster.median_clock(now).unwrap_or_default();
            Duration::from_micros(clock_us.saturating_sub(since_us))
        });
        let span = age.unwrap_or(self.lifetime);
        match self
            .cluster
            .time_until_old_enough(node, *standing, span, now)
        {
            None => Vote::Granted,
            // This is final: the latch and the node grow older at the same rate.
            Some(_) if age.is_some() => Vote::BornLater,
            Some(left) => Vote::Quarantined { left },
        }
    }

    fn asked(&self) -> &[Arc<str>] {
        match &self.question {
            Question::Look => &[],
            Question::Add { parties, .. } => parties,
        }
    }

    /// Whether the answers so far decide what follows. A majority that has stored the parties does.
    /// If only a part of a majority has, wait: other nodes may have stored them, too.
    fn decides(&self, now: Timestamp) -> bool {
        let awaited = self.replies.iter().zip(&self.suspects);
        let mut awaited =
            awaited.filter(|(reply, suspect)| matches!(reply, NodeReply::Pending) && !**suspect);
        awaited.next().is_none() || self.tally(now).taken
    }
}

/// The server that answered; zero if none did.
fn server(reply: &NodeReply) -> u64 {
    match reply {
        NodeReply::Outcome(Ok(reply), _) => reply.standing.server,
        _ => 0,
    }
}

/// What the node knows about the latch, if it answered that.
fn arrivals(reply: &NodeReply) -> Option<&Arrivals> {
    match reply {
        NodeReply::Outcome(
            Ok(Reply {
                answer: Answer::Arrivals(arrivals),
                ..
            }),
            _,
        ) => Some(arrivals),
        _ => None,
    }
}
