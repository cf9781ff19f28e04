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

use super::round::{Purpose, Round, RoundNode, RoundReply, count_once};
use super::{Cluster, Vote};

/// What a round asks the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// One round about a latch. Its result is the tally; its verdict says only
/// that no further answer can change what follows.
pub type LatchRound = Round<LatchQuestion>;

/// What a round about a latch asks, and what it knows of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LatchQuestion {
    question: Question,
    /// What was known about the nodes when the round began, and what their replies add.
    cluster: Cluster,
    /// How long the nodes keep a latch without any call about it.
    lifetime: Duration,
}

/// What a round about a latch keeps of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LatchNote {
    /// The last call to the node timed out. The round does not wait for it once the others have
    /// answered.
    suspect: bool,
    /// The outcome of the call, and why it does not count.
    reply: Option<(Result<Reply, CallError>, Option<Vote>)>,
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
        let notes = (0..nodes).map(|node| LatchNote {
            suspect: cluster.is_silent(node),
            reply: None,
        });
        let question = LatchQuestion {
            question,
            cluster: cluster.clone(),
            lifetime,
        };
        Self::begin(question, t0, timeout, notes)
    }

    /// What the round asks the nodes.
    pub fn question(&self) -> &Question {
        &self.purpose.question
    }

    /// How many arrivals each node reports, in node order.
    pub fn arrived(&self) -> Vec<Option<u64>> {
        let arrived = |node| arrivals(node).map(|arrivals| arrivals.arrived);
        self.nodes.iter().map(arrived).collect()
    }

    /// The lower median of the nodes' clocks when the round began. This is the creation time of a
    /// latch that none of them knew. It must not be later, however long the answers took: arrivals
    /// that other clients stored meanwhile must not be older than the latch.
    pub fn began_us(&self) -> Option<u64> {
        self.purpose.cluster.median_clock(self.t0())
    }

    /// The result at `now`.
    pub fn tally(&self, now: Timestamp) -> LatchTally {
        let known = || self.nodes.iter().filter_map(arrivals);
        let since_us = known().filter_map(|arrivals| arrivals.since_us).min();
        let parties: BTreeSet<Arc<str>> = known().flat_map(|a| a.parties.iter().cloned()).collect();
        let nodes = self.nodes.iter().enumerate();
        let votes = nodes.map(|(node, state)| self.vote_about(node, state, since_us, now));
        let mut votes: Vec<Vote> = votes.collect();
        for server in self.servers() {
            count_once(server, self.servers().zip(&mut votes));
        }
        let majority_has = |wanted: &dyn Fn(&BTreeSet<&Arc<str>>) -> bool| {
            let counted = self.nodes.iter().zip(&votes);
            let counted = counted.filter(|(_, vote)| **vote == Vote::Granted);
            let having = counted.filter(|(node, _)| {
                let has = arrivals(node).map(|arrivals| arrivals.parties.iter().collect());
                has.is_some_and(|has| wanted(&has))
            });
            having.count() >= self.quorum()
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
    fn vote_about(
        &self,
        node: usize,
        state: &RoundNode<LatchNote>,
        since_us: Option<u64>,
        now: Timestamp,
    ) -> Vote {
        let (cluster, t0) = (&self.purpose.cluster, self.t0());
        let Some((outcome, given)) = &state.note.reply else {
            return state.vote.clone();
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
        let by_clock = |discount: &Vote| !matches!(discount, Vote::Quarantined { .. });
        let given = given.clone().filter(by_clock);
        let found = || cluster.discount(node, *standing, t0, now).filter(by_clock);
        if let Some(discount) = given.or_else(found) {
            return discount;
        }
        let age = since_us.map(|since_us| {
            let clock_us = cluster.median_clock(now).unwrap_or_default();
            Duration::from_micros(clock_us.saturating_sub(since_us))
        });
        let span = age.unwrap_or(self.purpose.lifetime);
        match cluster.time_until_old_enough(node, *standing, span, now) {
            None => Vote::Granted,
            // This is final: the latch and the node grow older at the same rate.
            Some(_) if age.is_some() => Vote::BornLater,
            Some(left) => Vote::Quarantined { left },
        }
    }

    fn asked(&self) -> &[Arc<str>] {
        match &self.purpose.question {
            Question::Look => &[],
            Question::Add { parties, .. } => parties,
        }
    }
}

impl Purpose for LatchQuestion {
    type Note = LatchNote;
    type Verdict = ();

    /// Answers after the timeout are ignored: all answers of a round must come from a time span
    /// that is short compared with the quarantine. What an answer counts as depends on all of
    /// them, so [`LatchRound::tally`] decides it; until then `Granted` says that there is one.
    fn vote(&mut self, note: &mut LatchNote, reply: RoundReply) -> Option<Vote> {
        // The client has already handled what the reply proves about clocks.
        let (outcome, t0) = (reply.outcome, reply.t0);
        let _ = self.cluster.observe(reply.node, &outcome, t0, reply.now);
        if reply.late {
            return None;
        }
        note.reply = Some((outcome, reply.discount));
        Some(Vote::Granted)
    }

    /// The answers so far decide what follows if a majority has stored the parties. If only a part
    /// of a majority has, wait: other nodes may have stored them, too.
    fn tally(round: &LatchRound, now: Timestamp) -> Option<()> {
        let awaited =
            |node: &RoundNode<LatchNote>| node.vote == Vote::Pending && !node.note.suspect;
        let is_over = !round.nodes.iter().any(awaited) || round.tally(now).taken;
        is_over.then_some(())
    }
}

/// What the node knows about the latch, if it answered that.
fn arrivals(node: &RoundNode<LatchNote>) -> Option<&Arrivals> {
    match &node.note.reply.as_ref()?.0.as_ref().ok()?.answer {
        Answer::Arrivals(arrivals) => Some(arrivals),
        _ => None,
    }
}
