//! One call about a latch: rounds, until the party has arrived, or the latch is open, or the caller
//! gives up.
//!
//! *Arrived* means that a majority of nodes that count has stored the party. *Open* means more: one
//! majority has stored all parties that have arrived. If none has yet, this call writes them to a
//! majority first. Otherwise another client that asks another majority could find the latch shut
//! again.

use std::sync::Arc;
use std::time::Duration;

use crate::splitmix::SplitMix64;
use crate::time::Timestamp;

use super::latch_round::{LatchRound, LatchTally, Question};
use super::{Cluster, Failure, Vote, quorum};

/// A waiter asks again after this time, even if it was not woken and no refresh showed a change.
const POLL: Duration = Duration::from_secs(30);
/// The shortest and the longest pause while no majority answers.
const NO_QUORUM_POLL_MIN: Duration = Duration::from_millis(20);
const NO_QUORUM_POLL_MAX: Duration = Duration::from_secs(1);
/// The shortest round, also if the remaining wait is shorter.
const ROUND_MIN: Duration = Duration::from_millis(20);

/// The terms of a call about a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatchTerms {
    /// The number of nodes.
    pub nodes: usize,
    /// How many parties have to arrive.
    pub count: u64,
    /// How long the nodes keep a latch without any call about it.
    pub ttl: Duration,
    /// The timeout of one call to a node.
    pub call_timeout: Duration,
    /// How long to wait until the latch opens; `None`: without limit.
    pub wait: Option<Duration>,
    /// How long to try while no majority counts.
    pub no_quorum_after: Duration,
}

/// One call about a latch.
#[derive(Debug)]
pub struct LatchCall {
    terms: LatchTerms,
    started: Timestamp,
    jitter: SplitMix64,
    /// The party that arrives; `None` for a caller that only waits.
    party: Option<Arc<str>>,
    question: Question,
    no_quorum_since: Option<Timestamp>,
    no_quorum_in_a_row: u32,
    /// How many parties had arrived when a majority last counted.
    arrived: Option<u64>,
}

/// What follows a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LatchNext {
    /// Begin the next round at once.
    Ask,
    /// Begin the next round at `at`, or when woken.
    Rest {
        /// The time of the next round.
        at: Timestamp,
    },
    /// Done: the party has arrived, or the latch is open.
    Done {
        /// How many parties have arrived. If they are enough, one majority has stored all of them.
        arrived: u64,
    },
    /// Give up.
    GiveUp(LatchFailure),
}

/// Why a call about a latch failed.
pub type LatchFailure = Failure<LatchFailureKind>;

/// The reason why a call about a latch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LatchFailureKind {
    /// Too few parties arrived for longer than the caller would wait.
    Shut {
        /// How many parties have arrived.
        arrived: u64,
    },
    /// Too few nodes answered, or too few are old enough to know every arrival.
    NoQuorum,
    /// Too few nodes may vote yet: the cluster is new or was restarted.
    Quarantined {
        /// The time until a majority may vote.
        left: Duration,
    },
    /// An operator has to change a setting before a majority can vote.
    Misconfigured,
}

impl LatchCall {
    /// `party` arrives. A repeated arrival of the same party counts once.
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
        question: Question,
        now: Timestamp,
        seed: u64,
    ) -> Self {
        Self {
            terms,
            started: now,
            jitter: SplitMix64::new(seed),
            party,
            question,
            no_quorum_since: None,
            no_quorum_in_a_row: 0,
            arrived: None,
        }
    }

    /// Begins the next round. `now` must be before its first send.
    pub fn begin(&self, cluster: &Cluster, now: Timestamp) -> LatchRound {
        let full = now + self.terms.call_timeout;
        let timeout = match self.terms.wait {
            Some(wait) if !wait.is_zero() => full.min((self.started + wait).max(now + ROUND_MIN)),
            _ => full,
        };
        LatchRound::new(
            self.question.clone(),
            cluster,
            self.terms.ttl,
            now,
            timeout,
            self.terms.nodes,
        )
    }

    /// Decides what follows `round`, which is over.
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
        // Enough parties have arrived, but no majority has stored all of them. Write them to a
        // majority before reporting that the latch is open.
        self.question = Question::Add {
            parties: tally.parties.into_iter().collect(),
            since_us: tally.since_us,
        };
        LatchNext::Ask
    }

    /// A majority counts, but has not stored the parties. Either it does not know the latch, which
    /// proves that there is none, and the latch is created now. Or some of its nodes know the latch
    /// and others do not.
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
            // The nodes got this creation time and did not accept it, for example because their
            // clocks are behind.
            return self.after_no_quorum(round, tally, now);
        }
        self.question = Question::Add {
            parties: Arc::clone(parties),
            since_us: made_us,
        };
        LatchNext::Ask
    }

    /// Too few parties have arrived: ask again when woken, as long as the caller waits.
    fn after_shut(&mut self, tally: LatchTally, arrived: u64, now: Timestamp) -> LatchNext {
        let give_up_at = self.terms.wait.map(|wait| self.started + wait);
        if give_up_at.is_some_and(|at| now >= at) {
            return LatchNext::GiveUp(LatchFailure {
                kind: LatchFailureKind::Shut { arrived },
                votes: tally.votes,
            });
        }
        self.question = Question::Look;
        let at = now + self.jitter.spread(POLL);
        LatchNext::Rest {
            at: give_up_at.map_or(at, |end| at.min(end)),
        }
    }

    /// No majority counts. The `wait` is meant for missing arrivals, so this gives up sooner.
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
            // These nodes will never count for this latch.
            return give_up(LatchFailureKind::NoQuorum, votes);
        }
        let limit = self.terms.wait.map_or(self.terms.no_quorum_after, |wait| {
            wait.min(self.terms.no_quorum_after)
        });
        if let Some(left) = majority_votes_in(&votes, quorum).filter(|left| !left.is_zero()) {
            // A new cluster is not an outage: waiting helps if the caller waits long enough.
            let covered = self.terms.wait.unwrap_or(limit).max(limit);
            if now + left > self.started + covered {
                return give_up(LatchFailureKind::Quarantined { left }, votes);
            }
            self.no_quorum_since = None;
            let at = now + left + Duration::from_millis(1);
            return LatchNext::Rest { at };
        }
        let since = *self.no_quorum_since.get_or_insert(round.t0());
        let mut end = since + limit;
        if let Some(wait) = self.terms.wait {
            end = end.min(self.started + wait);
        }
        if now >= end {
            return match self.arrived {
                // The end of the wait may cut the last round short. That alone is not an outage.
                // But if enough parties had arrived, the round had to write them to a majority, and
                // no majority confirmed it.
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

/// When a majority may vote, if only quarantines and clock jumps prevent it.
fn majority_votes_in(votes: &[Vote], quorum: usize) -> Option<Duration> {
    let left = votes.iter().filter_map(|vote| match vote {
        Vote::Granted => Some(Duration::ZERO),
        vote => vote.votes_in(),
    });
    let mut left: Vec<Duration> = left.collect();
    left.sort_unstable();
    left.get(quorum - 1).copied()
}
