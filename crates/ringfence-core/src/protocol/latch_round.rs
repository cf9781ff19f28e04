//! One round about a latch: what all nodes are asked, whose word counts, and what it amounts to.
//!
//! Whose word counts is the heart of it. A node that was restarted has forgotten arrivals, and a latch
//! lives longer than a quarantine, so the quarantine alone does not help. A node counts only if it has
//! been running, without a gap, since a whole quarantine before the latch was made. When that was is
//! kept beside the arrivals; where no node of a majority knows the latch, it may be that they forgot it,
//! so a node has to be older than a latch may live. Then two majorities that count share a node that
//! has forgotten nothing, and what the one has written the other reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Arrivals, Reply};
use crate::node::CallError;
use crate::time::Timestamp;

use super::vote::count_once;
use super::{Cluster, Discount, Vote, quorum};

/// What the nodes are asked about a latch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Who has arrived?
    Look,
    /// Take note that these have.
    Add {
        /// Who.
        parties: Arc<[Arc<str>]>,
        /// When the latch was made, if that is known.
        since_us: Option<u64>,
    },
}

/// One round about a latch. Inputs are replies and time; the answer is its [`tally`](Self::tally).
#[derive(Debug, Clone)]
pub struct LatchRound {
    question: Question,
    /// What was known of the nodes when it began, and what their replies add.
    cluster: Cluster,
    /// How long a latch lives without being heard of.
    lifetime: Duration,
    t0: Timestamp,
    timeout: Timestamp,
    heard: Vec<Heard>,
    /// Nodes that were silent last time: nobody waits for them once the others have spoken.
    suspects: Vec<bool>,
    over: bool,
}

#[derive(Debug, Clone)]
enum Heard {
    Nothing,
    Silence,
    /// An outcome, and why it does not count, if so.
    Outcome(Result<Reply, CallError>, Option<Discount>),
}

/// What a round amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchTally {
    /// Every node's vote, in node order: [`Vote::Granted`] if its word counts.
    pub votes: Vec<Vote>,
    /// When the latch was made: the earliest time that any node told. `None` if none knows it.
    pub since_us: Option<u64>,
    /// All who have arrived, as far as anybody said.
    pub parties: BTreeSet<Arc<str>>,
    /// Whether a majority's word counts.
    pub speaks: bool,
    /// Whether a majority whose word counts has taken all that it was to take note of.
    pub taken: bool,
    /// Whether a majority whose word counts has all of `parties`.
    pub everywhere: bool,
}

impl LatchRound {
    /// A round that begins at `t0`, to be over by `timeout`.
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
            heard: vec![Heard::Nothing; nodes],
            suspects: (0..nodes).map(|node| cluster.is_silent(node)).collect(),
            over: false,
        }
    }

    /// What the nodes are asked.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// When it began.
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, unless the round is over.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.over).then_some(self.timeout)
    }

    /// Whether nothing that could still come would change what follows.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes `node`'s outcome at `now`, and why it does not count, if so. What comes after the timeout does not count: all that a round
    /// brings together must have happened within a time that is nothing against the quarantine.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        // What it proves about clocks, the client has noticed.
        let _ = self.cluster.observe(node, &outcome, self.t0, now);
        if now < self.timeout {
            self.heard[node] = Heard::Outcome(outcome, discount);
            self.over = self.over || self.decides(now);
        }
    }

    /// Time has passed: whoever has not answered by the timeout is silent.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.over || now < self.timeout {
            return;
        }
        for heard in &mut self.heard {
            if matches!(heard, Heard::Nothing) {
                *heard = Heard::Silence;
            }
        }
        self.over = true;
    }

    /// How many each node says have arrived, in node order.
    pub fn arrived(&self) -> Vec<Option<u64>> {
        let arrivals = |heard: &Heard| arrivals(heard).map(|arrivals| arrivals.arrived);
        self.heard.iter().map(arrivals).collect()
    }

    /// The nodes that did not answer in time.
    pub fn silent(&self) -> Vec<usize> {
        let heard = self.heard.iter().enumerate();
        let silent = heard.filter(|(_, heard)| matches!(heard, Heard::Silence));
        silent.map(|(node, _)| node).collect()
    }

    /// The lower median of the nodes' clocks when the round began: the time at which a latch is made
    /// that none of them knew. Not a moment later, however long the answers took: what others did
    /// meanwhile must not look older than the latch.
    pub fn began_us(&self) -> Option<u64> {
        self.cluster.median_clock(self.t0)
    }

    /// What it amounts to at `now`.
    pub fn tally(&self, now: Timestamp) -> LatchTally {
        let known = || self.heard.iter().filter_map(arrivals);
        let since_us = known().filter_map(|arrivals| arrivals.since_us).min();
        let parties: BTreeSet<Arc<str>> = known().flat_map(|a| a.parties.iter().cloned()).collect();
        let mut votes: Vec<Vote> = (0..self.heard.len())
            .map(|node| self.vote(node, since_us, now))
            .collect();
        let servers = self.heard.iter().map(server);
        for server in servers.clone() {
            count_once(server, servers.clone().zip(&mut votes));
        }
        let majority_has = |wanted: &dyn Fn(&BTreeSet<&Arc<str>>) -> bool| {
            let counted = self.heard.iter().zip(&votes);
            let counted = counted.filter(|(_, vote)| **vote == Vote::Granted);
            let having = counted.filter(|(heard, _)| {
                let has = arrivals(heard).map(|arrivals| arrivals.parties.iter().collect());
                has.is_some_and(|has| wanted(&has))
            });
            having.count() >= quorum(self.heard.len())
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

    /// What `node` has to say about a latch that was made at `since_us`, or that nobody knows.
    fn vote(&self, node: usize, since_us: Option<u64>, now: Timestamp) -> Vote {
        let (outcome, told) = match &self.heard[node] {
            Heard::Nothing => return Vote::Pending,
            Heard::Silence => return Vote::Silent,
            Heard::Outcome(outcome, discount) => (outcome, *discount),
        };
        let Ok(Reply {
            answer: Answer::Arrivals(_),
            standing,
            ..
        }) = outcome
        else {
            return Vote::of(outcome.clone(), None);
        };
        // Of a quarantine the latch's age is the better measure.
        let by_clock = |discount: &Discount| !matches!(discount, Discount::Quarantined { .. });
        let found = self.cluster.discount(node, *standing, self.t0, now);
        if let Some(discount) = told.filter(by_clock).or(found.filter(by_clock)) {
            return discount.into();
        }
        let age = since_us.map(|since_us| {
            let clock_us = self.cluster.median_clock(now).unwrap_or_default();
            Duration::from_micros(clock_us.saturating_sub(since_us))
        });
        let span = age.unwrap_or(self.lifetime);
        match self.cluster.too_young_for(node, *standing, span, now) {
            None => Vote::Granted,
            // It stays so: the latch and the node grow old together.
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

    /// Whether the answers so far decide what follows. A majority is enough; but what not all of it
    /// took, others may still have taken.
    fn decides(&self, now: Timestamp) -> bool {
        let awaited = self.heard.iter().zip(&self.suspects);
        let mut awaited =
            awaited.filter(|(heard, suspect)| matches!(heard, Heard::Nothing) && !**suspect);
        awaited.next().is_none() || self.tally(now).taken
    }
}

/// Which server answered; zero if none has.
fn server(heard: &Heard) -> u64 {
    match heard {
        Heard::Outcome(Ok(reply), _) => reply.standing.server,
        _ => 0,
    }
}

/// What a node knows of the latch, if that is what it said.
fn arrivals(heard: &Heard) -> Option<&Arrivals> {
    match heard {
        Heard::Outcome(
            Ok(Reply {
                answer: Answer::Arrivals(arrivals),
                ..
            }),
            _,
        ) => Some(arrivals),
        _ => None,
    }
}
