//! One attempt: one ballot, proposed to all nodes at once. The module `remains` computes what it may
//! have left on the nodes, and `slot_reports` reads what they report of a semaphore.

mod remains;
mod slot_reports;

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Acquire, Answer, Ballot, Claim, Kind, Op, Reply, Request, Ticket};
use crate::node::CallError;
use crate::time::Timestamp;
use crate::token::Token;

use super::slots::{self, Asked, SlotReport};
use super::vote::count_once;
use super::{Discount, Drift, Vote, deadline, quorum};

pub use remains::Target;

/// One ballot, proposed to all nodes at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    token: Token,
    ballot: Ballot,
    ticket: Option<Ticket>,
    t0: Timestamp,
    deadline: Timestamp,
    /// The latest time at which a majority still leaves enough validity, and at which its replies
    /// still count.
    latest_grant: Timestamp,
    /// The latest time at which the only node of the group may execute the request, on its clock.
    not_after_us: Option<u64>,
    /// When to stop waiting for nodes that have not answered.
    timeout: Timestamp,
    nodes: Vec<AttemptNode>,
    inspects_only: bool,
    kind: Kind,
    /// The wanted slot of a semaphore; `None` for a lock.
    asked: Option<Asked>,
    verdict: Option<AttemptVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AttemptNode {
    vote: Vote,
    /// The server that answered; zero before the answer.
    server: u64,
    floor: Option<Ballot>,
    /// The last call to the node timed out, so a lost verdict does not wait for it.
    suspect: bool,
    /// The node granted our token, whether its vote counts or not.
    holds: bool,
    /// The node's report about the semaphore.
    report: Option<SlotReport>,
    /// The call was never sent, because the caller has given up.
    withdrawn: bool,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptVerdict {
    /// A majority granted in time.
    Won {
        /// The deadline of the grant.
        deadline: Timestamp,
    },
    /// No majority can grant any more, or a majority granted too late.
    Lost(Loss),
}

/// Why an attempt was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Another client holds the lock or is ahead in the queue.
    Held,
    /// Only the ballot was too low: a higher one may win at once.
    Stale,
    /// The ballot was too low on some nodes and too high on others. The next one is chosen with the
    /// clocks and floors of their replies.
    Skewed,
    /// Too few nodes answered.
    NoQuorum,
    /// A majority granted, but with too little remaining validity.
    Late,
}

/// The times of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) ttl: Duration,
    pub(super) drift: Drift,
    pub(super) min_validity: Duration,
    pub(super) timeout: Timestamp,
    /// Replies that are read later do not count, and the node must not execute the request later,
    /// on its own clock.
    pub(super) reply_by: Option<ReplyBy>,
}

/// The limits of an attempt on a node with a failover behind it. After them a former master must
/// not grant, and its grant must not count: the lease of a holder that a new master has carried on
/// may have ended there.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyBy {
    /// The latest time at which a reply is read.
    pub(super) read_by: Timestamp,
    /// The latest time at which the only node of the group executes the request, on its clock.
    pub(super) not_after_us: Option<u64>,
}

impl Attempt {
    /// An attempt that begins at `t0`, which must be read before anything is sent.
    pub(super) fn new(
        token: Token,
        ballot: Ballot,
        ticket: Option<Ticket>,
        t0: Timestamp,
        timing: Timing,
        suspects: impl Iterator<Item = bool>,
    ) -> Self {
        let deadline = deadline(t0, timing.ttl, timing.drift);
        let valid_enough = deadline - timing.min_validity;
        let read_by = timing.reply_by.map(|limit| limit.read_by);
        Self {
            token,
            ballot,
            ticket,
            t0,
            deadline,
            latest_grant: read_by.map_or(valid_enough, |at| at.min(valid_enough)),
            not_after_us: timing.reply_by.and_then(|limit| limit.not_after_us),
            timeout: timing.timeout,
            nodes: suspects
                .map(|suspect| AttemptNode {
                    vote: Vote::Pending,
                    server: 0,
                    floor: None,
                    suspect,
                    holds: false,
                    report: None,
                    withdrawn: false,
                })
                .collect(),
            inspects_only: false,
            kind: Kind::Exclusive,
            asked: None,
            verdict: None,
        }
    }

    /// The same attempt, but with `inspects_only` it only inspects the nodes and cannot be won.
    ///
    /// A new cluster is only inspected: the error recommends `ringfence init`, and `init` would
    /// refuse a cluster in which an attempt has left records.
    pub(super) fn inspecting_only(self, inspects_only: bool) -> Self {
        Self {
            inspects_only,
            ..self
        }
    }

    /// Whether the attempt only inspects the nodes.
    pub(super) fn inspects_only(&self) -> bool {
        self.inspects_only
    }

    /// The same attempt, for this `kind` of lock. `asked` is the wanted slot of a semaphore.
    pub(super) fn asking(self, kind: Kind, asked: Option<Asked>) -> Self {
        Self {
            kind,
            asked,
            ..self
        }
    }

    /// The wanted slot of a semaphore; `None` for a lock.
    #[inline]
    pub fn asked(&self) -> Option<Asked> {
        self.asked
    }

    /// The slot with most votes, for a semaphore.
    pub fn slot(&self) -> Option<u32> {
        match self.asked? {
            Asked::Slot(slot) => Some(slot),
            Asked::Any => slots::best(self.granted_slots()).map(|(slot, _)| slot),
        }
    }

    fn granted_slots(&self) -> impl Iterator<Item = u32> + Clone {
        let granted = self.nodes.iter().filter(|n| n.vote == Vote::Granted);
        granted.filter_map(|node| node.report.as_ref()?.slot)
    }

    /// The token of the attempt.
    #[inline]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The proposed ballot.
    #[inline]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The caller's ticket, if the attempt carries one.
    #[inline]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// When the attempt began, before the first send.
    #[inline]
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), unless there is a verdict.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.verdict.is_none().then_some(self.timeout)
    }

    /// The verdict, as soon as it cannot change.
    #[inline]
    pub fn verdict(&self) -> Option<AttemptVerdict> {
        self.verdict
    }

    /// Whether every node has answered, so that nothing changes any more.
    pub fn is_complete(&self) -> bool {
        let awaited = |vote: &Vote| matches!(vote, Vote::Pending | Vote::TimedOut);
        !self.votes().any(awaited)
    }

    /// Every node's vote so far, in node order.
    pub fn votes(&self) -> impl Iterator<Item = &Vote> + Clone {
        self.nodes.iter().map(|node| &node.vote)
    }

    /// Whether every node granted the lock and its vote counts. Never true for a slot: nodes may
    /// have granted different slots.
    pub(super) fn is_unanimous(&self) -> bool {
        let has_it = |node: &AttemptNode| node.holds && matches!(node.vote, Vote::Granted);
        self.asked.is_none() && self.nodes.iter().all(has_it)
    }

    /// The claims' floor on every node that reported it.
    pub(super) fn floors(&self) -> impl Iterator<Item = Option<Ballot>> {
        self.nodes.iter().map(|node| node.floor)
    }

    /// The request for `claims`, with the lease that each node grants.
    pub fn request(&self, claims: &Arc<[Claim]>, lease: Duration, label: &Arc<str>) -> Request {
        let slot = match self.asked {
            Some(Asked::Slot(slot)) => Some(slot),
            Some(Asked::Any) | None => None,
        };
        let acquire = Acquire {
            ballot: self.ballot,
            ttl_ms: lease.as_millis() as u64,
            label: Arc::clone(label),
            ticket: self.ticket.clone(),
            not_after_us: self.not_after_us,
        };
        Request {
            claims: Arc::clone(claims),
            token: self.token.clone(),
            op: match self.inspects_only {
                false => self.kind.acquire(slot, acquire),
                true => Op::Inspect,
            },
        }
    }

    /// Takes the outcome of the call to `node`. `discount`: why its answers do not count.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        let (outcome, report) = match self.asked {
            None => (outcome, None),
            Some(_) => slots::split_permit(outcome),
        };
        let state = &mut self.nodes[node];
        state.report = report;
        let server = outcome.as_ref().map_or(0, |reply| reply.standing.server);
        state.server = server;
        if let Ok(reply) = &outcome {
            state.floor = reply.stamp.map(|stamp| stamp.floor);
            state.holds = matches!(reply.answer, Answer::Granted);
        }
        state.vote = match &outcome {
            // The node may vote now. `Stale` leads to a real attempt at once.
            Ok(_) if self.inspects_only && discount.is_none() => Vote::Stale,
            _ => Vote::of(outcome, discount),
        };
        count_once(
            server,
            self.nodes.iter_mut().map(|s| (s.server, &mut s.vote)),
        );
        if self.verdict.is_none() {
            self.verdict = self.tally(now);
        }
    }

    /// The call to `node` was never sent, because the caller has given up.
    pub fn withdraw(&mut self, node: usize) {
        self.nodes[node].withdrawn = true;
    }

    /// Whether the call to `node` was withdrawn.
    pub fn was_withdrawn(&self, node: usize) -> bool {
        self.nodes[node].withdrawn
    }

    /// Time has passed. After the timeout, nodes that have not answered do not count.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.verdict.is_some() || now < self.timeout {
            return;
        }
        Vote::time_out(self.nodes.iter_mut().map(|node| &mut node.vote));
        self.verdict = self.tally(now);
    }

    /// When it may be our turn on a majority of the nodes: when the holder's lease has ended, and
    /// each waiter ahead has had the `grace` to acquire.
    pub(super) fn turn_in(&self, grace: Duration) -> Option<Duration> {
        let mut turns: Vec<Duration> = self
            .votes()
            .filter_map(|vote| match vote {
                Vote::Held(holder) => {
                    // Plus one, because a key still exists in its last millisecond.
                    let free = Duration::from_millis(holder.for_ms?.saturating_add(1));
                    let ahead = u32::try_from(holder.ahead).unwrap_or(u32::MAX);
                    Some(free.saturating_add(grace.saturating_mul(ahead)))
                }
                Vote::Behind { pass_in, .. } => *pass_in,
                Vote::Granted | Vote::Stale | Vote::Ahead => Some(Duration::ZERO),
                _ => None,
            })
            .collect();
        turns.sort_unstable();
        turns.get(quorum(self.nodes.len()) - 1).copied()
    }

    fn tally(&self, now: Timestamp) -> Option<AttemptVerdict> {
        let quorum = quorum(self.nodes.len());
        let count =
            |wanted: fn(&Vote) -> bool| self.nodes.iter().filter(|node| wanted(&node.vote)).count();
        let all_granted = count(|vote| *vote == Vote::Granted);
        let granted = match self.asked {
            None => all_granted,
            // Votes for different slots do not add up.
            Some(_) => {
                let wanted = self.slot();
                let granted = self.granted_slots();
                granted.filter(|slot| Some(*slot) == wanted).count()
            }
        };
        if granted >= quorum {
            // A clock that jumped past the deadline since the first send is handled here.
            return Some(if now <= self.latest_grant {
                AttemptVerdict::Won {
                    deadline: self.deadline,
                }
            } else {
                AttemptVerdict::Lost(Loss::Late)
            });
        }
        let awaited = self.awaited(quorum);
        let answers = count(Vote::is_answer);
        // The attempt may be lost already. But while fewer than a majority have answered, the
        // missing answers decide why: a holder, an outage, a quarantine or a wrong setting. A dead
        // node that fails at once must not turn a held lock into an outage.
        let undecided = answers < quorum && awaited > 0;
        if granted + awaited >= quorum || undecided {
            return None;
        }
        let stale = count(|vote| *vote == Vote::Stale);
        let ahead = count(|vote| matches!(vote, Vote::Ahead | Vote::TicketOld));
        Some(AttemptVerdict::Lost(if answers < quorum {
            Loss::NoQuorum
        } else if all_granted + stale >= quorum {
            Loss::Stale
        } else if all_granted + stale + ahead >= quorum {
            Loss::Skewed
        } else {
            Loss::Held
        }))
    }

    /// How many answers to wait for. A node whose last call timed out is left out, if enough of the
    /// others can still answer for a majority. Nodes that failed or do not count cannot.
    fn awaited(&self, quorum: usize) -> usize {
        let pending = |node: &&AttemptNode| node.vote == Vote::Pending;
        let trusted = self.nodes.iter().filter(|node| !node.suspect);
        let able = trusted.clone().filter(|n| pending(n) || n.vote.is_answer());
        if able.count() >= quorum {
            trusted.filter(pending).count()
        } else {
            self.nodes.iter().filter(pending).count()
        }
    }
}
