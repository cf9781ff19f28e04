//! One call about a latch: question after question until it has arrived, or is open, or it is time to
//! give up.
//!
//! *Arrived* means that a majority whose word counts has taken the party. *Open* means more: that all
//! who have arrived are on one and the same majority. Where they are not yet, they are written there
//! first, or another client, asking another majority, could find the latch shut again.

use std::sync::Arc;
use std::time::Duration;

use crate::splitmix::SplitMix64;
use crate::time::Timestamp;

use super::jitter::Jitter;
use super::latch_round::{LatchRound, LatchTally, Question};
use super::{Cluster, Vote, quorum};

/// How often somebody who waits looks of its own accord, beside being woken and hearing of changes.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The pauses while no majority answers.
const NO_QUORUM_POLL_MIN: Duration = Duration::from_millis(20);
const NO_QUORUM_POLL_MAX: Duration = Duration::from_secs(1);
/// However short the wait, a round gets this long.
const ROUND_MIN: Duration = Duration::from_millis(20);

/// What the caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatchTerms {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many have to arrive.
    pub count: u64,
    /// How long the latch lives without being heard of.
    pub ttl: Duration,
    /// How long a node may take to answer.
    pub call_timeout: Duration,
    /// How long to wait until it opens; `None` is for ever.
    pub wait: Option<Duration>,
    /// How long to go on without a majority that counts.
    pub no_quorum_after: Duration,
}

/// One call about a latch.
#[derive(Debug)]
pub struct LatchCall {
    terms: LatchTerms,
    started: Timestamp,
    jitter: Jitter,
    /// Who arrives; `None` for whoever only waits.
    party: Option<Arc<str>>,
    asks: Question,
    no_quorum_since: Option<Timestamp>,
    no_quorum_in_a_row: u32,
    /// How many had arrived when a majority last spoke.
    arrived: Option<u64>,
}

/// What comes after a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LatchNext {
    /// The next question, at once.
    Ask,
    /// The next question at `at`, or when woken.
    Rest {
        /// When.
        at: Timestamp,
    },
    /// It is done: whoever was to arrive has, and what was to be open is.
    Done {
        /// How many have arrived. If they are enough, a majority has them all.
        arrived: u64,
    },
    /// Give up.
    GiveUp(LatchFailure),
}

/// Why a call about a latch failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchFailure {
    /// What stood in the way.
    pub kind: LatchFailureKind,
    /// Every node's vote in the last round, in node order.
    pub votes: Vec<Vote>,
}

/// What stood in the way of a call about a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LatchFailureKind {
    /// Too few have arrived, for longer than the caller would wait.
    Shut {
        /// How many have.
        arrived: u64,
    },
    /// Too few nodes answered, or remember the latch from its beginning.
    NoQuorum,
    /// Too few nodes may vote yet: the cluster is new or was restarted.
    Quarantined {
        /// When a majority may vote.
        left: Duration,
    },
    /// A majority needs somebody to change a setting.
    Misconfigured,
}

impl LatchCall {
    /// `party` arrives. Repeated with the same party it counts once.
    pub fn arriving(terms: LatchTerms, party: Arc<str>, now: Timestamp, seed: u64) -> Self {
        let question = Question::Add {
            parties: Arc::from([Arc::clone(&party)]),
            since_us: None,
        };
        Self::new(terms, Some(party), question, now, seed)
    }

    /// The caller waits until the latch is open.
    pub fn waiting(terms: LatchTerms, now: Timestamp, seed: u64) -> Self {
        Self::new(terms, None, Question::Look, now, seed)
    }

    fn new(
        terms: LatchTerms,
        party: Option<Arc<str>>,
        asks: Question,
        now: Timestamp,
        seed: u64,
    ) -> Self {
        Self {
            terms,
            started: now,
            jitter: Jitter(SplitMix64(seed)),
            party,
            asks,
            no_quorum_since: None,
            no_quorum_in_a_row: 0,
            arrived: None,
        }
    }

    /// Begins the next round. `now` is before anything of it is sent.
    pub fn begin(&self, cluster: &Cluster, now: Timestamp) -> LatchRound {
        let full = now + self.terms.call_timeout;
        let timeout = match self.terms.wait {
            Some(wait) if !wait.is_zero() => full.min((self.started + wait).max(now + ROUND_MIN)),
            _ => full,
        };
        LatchRound::new(
            self.asks.clone(),
            cluster,
            self.terms.ttl,
            now,
            timeout,
            self.terms.nodes,
        )
    }

    /// Decides what comes after `round`, which is over.
    pub fn conclude(&mut self, round: &LatchRound, now: Timestamp) -> LatchNext {
        let tally = round.tally(now);
        if !tally.speaks {
            return self.after_no_quorum(round, tally, now);
        }
        let arrived = tally.parties.len() as u64;
        self.arrived = Some(arrived);
        if !tally.taken {
            return self.after_not_taken(round, tally, now);
        }
        self.no_quorum_since = None;
        self.no_quorum_in_a_row = 0;
        if arrived < self.terms.count {
            return match self.party {
                Some(_) => LatchNext::Done { arrived },
                None => self.after_shut(tally, arrived, now),
            };
        }
        if tally.everywhere {
            return LatchNext::Done { arrived };
        }
        // Enough are there, but no majority has them all: nobody may be told before one does.
        self.asks = Question::Add {
            parties: tally.parties.into_iter().collect(),
            since_us: tally.since_us,
        };
        LatchNext::Ask
    }

    /// A majority counts, but has not taken the parties. Either it knows nothing of the latch, and has
    /// vouched by that that there is none: it is made now. Or some knew it and others did not.
    fn after_not_taken(
        &mut self,
        round: &LatchRound,
        tally: LatchTally,
        now: Timestamp,
    ) -> LatchNext {
        let Question::Add { since_us, parties } = round.question() else {
            return self.after_no_quorum(round, tally, now);
        };
        let made_us = tally.since_us.or_else(|| round.began_us());
        if made_us.is_none() || *since_us == made_us {
            // They were told, and did not take it: their clocks are behind, say.
            return self.after_no_quorum(round, tally, now);
        }
        self.asks = Question::Add {
            parties: Arc::clone(parties),
            since_us: made_us,
        };
        LatchNext::Ask
    }

    /// Too few have arrived: again when woken, as long as the caller waits.
    fn after_shut(&mut self, tally: LatchTally, arrived: u64, now: Timestamp) -> LatchNext {
        let give_up_at = self.terms.wait.map(|wait| self.started + wait);
        if give_up_at.is_some_and(|at| now >= at) {
            return LatchNext::GiveUp(LatchFailure {
                kind: LatchFailureKind::Shut { arrived },
                votes: tally.votes,
            });
        }
        self.asks = Question::Look;
        let at = now + self.jitter.spread(LOOK_AGAIN);
        LatchNext::Rest {
            at: give_up_at.map_or(at, |end| at.min(end)),
        }
    }

    /// No majority counts. Waiting is about those who have not arrived, so this ends sooner.
    fn after_no_quorum(
        &mut self,
        round: &LatchRound,
        tally: LatchTally,
        now: Timestamp,
    ) -> LatchNext {
        let quorum = quorum(self.terms.nodes);
        let votes = tally.votes;
        let count = |wanted: fn(&Vote) -> bool| votes.iter().filter(|vote| wanted(vote)).count();
        if count(Vote::is_misconfigured) >= quorum {
            return give_up(LatchFailureKind::Misconfigured, votes);
        }
        if self.terms.nodes - count(|vote| *vote == Vote::BornLater) < quorum {
            // No time mends this.
            return give_up(LatchFailureKind::NoQuorum, votes);
        }
        let patience = self.terms.wait.map_or(self.terms.no_quorum_after, |wait| {
            wait.min(self.terms.no_quorum_after)
        });
        if let Some(left) = grown_up_in(&votes, quorum).filter(|left| !left.is_zero()) {
            // A new cluster is no outage: waiting helps if the caller would wait that long.
            let covered = self.terms.wait.unwrap_or(patience).max(patience);
            if now + left > self.started + covered {
                return give_up(LatchFailureKind::Quarantined { left }, votes);
            }
            self.no_quorum_since = None;
            let at = now + left + Duration::from_millis(1);
            return LatchNext::Rest { at };
        }
        let since = *self.no_quorum_since.get_or_insert(round.t0());
        let mut end = since + patience;
        if let Some(wait) = self.terms.wait {
            end = end.min(self.started + wait);
        }
        if now >= end {
            return match self.arrived {
                // The last round of a wait may be cut short: that alone is no outage. But if enough
                // had arrived, the round was to write them to a majority, and none confirmed it.
                Some(arrived)
                    if self.no_quorum_in_a_row == 0
                        && self.party.is_none()
                        && arrived < self.terms.count =>
                {
                    give_up(LatchFailureKind::Shut { arrived }, votes)
                }
                _ => give_up(LatchFailureKind::NoQuorum, votes),
            };
        }
        self.no_quorum_in_a_row += 1;
        let times = self.no_quorum_in_a_row.clamp(1, 16) - 1;
        let grown = NO_QUORUM_POLL_MIN.saturating_mul(1 << times);
        let pause = self.jitter.spread(grown.min(NO_QUORUM_POLL_MAX));
        LatchNext::Rest {
            at: (now + pause).min(end),
        }
    }
}

fn give_up(kind: LatchFailureKind, votes: Vec<Vote>) -> LatchNext {
    LatchNext::GiveUp(LatchFailure { kind, votes })
}

/// When a majority may vote, if only its youth stands in the way of one.
fn grown_up_in(votes: &[Vote], quorum: usize) -> Option<Duration> {
    let left = votes.iter().filter_map(|vote| match vote {
        Vote::Granted => Some(Duration::ZERO),
        vote => vote.counts_in(),
    });
    let mut left: Vec<Duration> = left.collect();
    left.sort_unstable();
    left.get(quorum - 1).copied()
}
