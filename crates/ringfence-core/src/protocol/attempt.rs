//! One attempt: one ballot, proposed to all nodes at once; and what it may have left on the nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Acquire, Answer, Ballot, Claim, Kind, Op, Request, Slots, Ticket};
use crate::time::Timestamp;
use crate::token::Token;

use super::cluster::ReplyBy;
use super::round::{Purpose, Round, RoundNode, RoundReply};
use super::slots::{self, Asked, SlotReport};
use super::{Drift, GrantId, Vote, deadline};

/// How long the undo of a lost attempt waits for the missing answers: as long as the other nodes
/// took, within these limits.
const ANSWER_WAIT_MIN: Duration = Duration::from_millis(2);
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(20);

/// One ballot, proposed to all nodes at once.
pub type Attempt = Round<Proposal>;

/// What an attempt proposes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Proposal {
    token: Token,
    ballot: Ballot,
    ticket: Option<Ticket>,
    deadline: Timestamp,
    /// The latest time at which a majority still leaves enough validity, and at which its replies
    /// still count.
    latest_grant: Timestamp,
    /// The latest time at which the only node of the group may execute the request, on its clock.
    not_after_us: Option<u64>,
    inspects_only: bool,
    kind: Kind,
    /// The wanted slot of a semaphore; `None` for a lock.
    asked: Option<Asked>,
}

/// What an attempt keeps of a node beside its vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttemptNote {
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

type AttemptNode = RoundNode<AttemptNote>;

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

/// What a node may have of our lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nothing.
    Nothing,
    /// Our token; the node confirmed it.
    Holds,
    /// Unknown: the acquire may still arrive.
    Unknown,
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
        let proposal = Proposal {
            token,
            ballot,
            ticket,
            deadline,
            latest_grant: read_by.map_or(valid_enough, |at| at.min(valid_enough)),
            not_after_us: timing.reply_by.and_then(|limit| limit.not_after_us),
            inspects_only: false,
            kind: Kind::Exclusive,
            asked: None,
        };
        let notes = suspects.map(|suspect| AttemptNote {
            floor: None,
            suspect,
            holds: false,
            report: None,
            withdrawn: false,
        });
        Self::begin(proposal, t0, timing.timeout, notes)
    }

    /// The same attempt, but with `inspects_only` it only inspects the nodes and cannot be won.
    ///
    /// A new cluster is only inspected: the error recommends `ringfence init`, and `init` would
    /// refuse a cluster in which an attempt has left records.
    pub(super) fn inspecting_only(mut self, inspects_only: bool) -> Self {
        self.purpose.inspects_only = inspects_only;
        self
    }

    /// Whether the attempt only inspects the nodes.
    pub(super) fn inspects_only(&self) -> bool {
        self.purpose.inspects_only
    }

    /// The same attempt, for this `kind` of lock. `asked` is the wanted slot of a semaphore.
    pub(super) fn asking(mut self, kind: Kind, asked: Option<Asked>) -> Self {
        (self.purpose.kind, self.purpose.asked) = (kind, asked);
        self
    }

    /// The wanted slot of a semaphore; `None` for a lock.
    #[inline]
    pub fn asked(&self) -> Option<Asked> {
        self.purpose.asked
    }

    /// The slot with most votes, for a semaphore.
    pub fn slot(&self) -> Option<u32> {
        match self.purpose.asked? {
            Asked::Slot(slot) => Some(slot),
            Asked::Any => slots::best(self.granted_slots()).map(|(slot, _)| slot),
        }
    }

    fn granted_slots(&self) -> impl Iterator<Item = u32> + Clone {
        let granted = self.nodes.iter().filter(|n| n.vote == Vote::Granted);
        granted.filter_map(|node| node.note.report.as_ref()?.slot)
    }

    /// The token of the attempt.
    #[inline]
    pub fn token(&self) -> &Token {
        &self.purpose.token
    }

    /// The proposed ballot.
    #[inline]
    pub fn ballot(&self) -> Ballot {
        self.purpose.ballot
    }

    /// The caller's ticket, if the attempt carries one.
    #[inline]
    pub fn ticket(&self) -> Option<&Ticket> {
        self.purpose.ticket.as_ref()
    }

    /// Whether every node granted the lock and its vote counts. Never true for a slot: nodes may
    /// have granted different slots.
    pub(super) fn is_unanimous(&self) -> bool {
        let has_it = |node: &AttemptNode| node.note.holds && matches!(node.vote, Vote::Granted);
        self.purpose.asked.is_none() && self.nodes.iter().all(has_it)
    }

    /// The claims' floor on every node that reported it.
    pub(super) fn floors(&self) -> impl Iterator<Item = Option<Ballot>> {
        self.nodes.iter().map(|node| node.note.floor)
    }

    /// The request for `claims`, with the lease that each node grants.
    pub fn request(&self, claims: &Arc<[Claim]>, lease: Duration, label: &Arc<str>) -> Request {
        let slot = match self.purpose.asked {
            Some(Asked::Slot(slot)) => Some(slot),
            Some(Asked::Any) | None => None,
        };
        let acquire = Acquire {
            ballot: self.purpose.ballot,
            ttl_ms: lease.as_millis() as u64,
            label: Arc::clone(label),
            ticket: self.purpose.ticket.clone(),
            not_after_us: self.purpose.not_after_us,
        };
        Request {
            claims: Arc::clone(claims),
            token: self.purpose.token.clone(),
            op: match self.purpose.inspects_only {
                false => self.purpose.kind.acquire(slot, acquire),
                true => Op::Inspect,
            },
        }
    }

    /// The call to `node` was never sent, because the caller has given up.
    pub fn withdraw(&mut self, node: usize) {
        self.nodes[node].note.withdrawn = true;
    }

    /// Whether the call to `node` was withdrawn.
    pub fn was_withdrawn(&self, node: usize) -> bool {
        self.nodes[node].note.withdrawn
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
        turns.get(self.quorum() - 1).copied()
    }

    /// The identity of what this attempt may have left on the nodes.
    pub fn grant_id(&self, claims: &Arc<[Claim]>) -> GrantId {
        let slots = self.purpose.asked.map(|asked| match asked {
            Asked::Any => Slots::All,
            Asked::Slot(slot) => Slots::Only(slot),
        });
        GrantId {
            claims: Arc::clone(claims),
            token: self.purpose.token.clone(),
            ballot: self.purpose.ballot,
            kind: self.purpose.kind,
            ticket: self.purpose.ticket.clone().map(Box::new),
            slots: slots.map(|slots| Box::new((Arc::clone(claims), slots))),
            receipt_delay_ms: 0,
        }
    }

    /// Where this attempt may have left its ticket: on nodes that answered, and on nodes that it
    /// may have reached.
    pub fn remaining_tickets(&self) -> Vec<Target> {
        let remains = self.remains().into_iter().zip(self.votes());
        let ticket = |(target, vote): (Target, &Vote)| match target {
            Target::Nothing if vote.is_answer() => Target::Holds,
            target => target,
        };
        remains.map(ticket).collect()
    }

    /// Where this attempt may have left a grant, which must be undone if the attempt was lost.
    ///
    /// A node that answered held, stale or ahead has nothing of this ballot.
    pub fn remains(&self) -> Vec<Target> {
        let remains = self.nodes.iter().map(|state| self.remains_on(state));
        remains.collect()
    }

    fn remains_on(&self, state: &AttemptNode) -> Target {
        match &state.vote {
            _ if self.purpose.inspects_only || state.note.withdrawn => Target::Nothing,
            _ if state.note.holds => Target::Holds,
            Vote::Pending | Vote::TimedOut => Target::Unknown,
            Vote::Failed(error) if error.may_have_been_applied() => Target::Unknown,
            _ => Target::Nothing,
        }
    }

    /// Until when the undo of this attempt, which was lost at `now`, waits for the missing answers.
    /// Mostly these nodes answer like the others, and there is nothing to undo. `None` if the undo
    /// must be sent at once: a node that answered or failed may hold our token and block other
    /// clients.
    pub fn undo_waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        let mut remains = self.remains().into_iter().zip(self.votes());
        let left =
            |(target, vote): (Target, &Vote)| target != Target::Nothing && *vote != Vote::Pending;
        let pending = self.votes().any(|vote| *vote == Vote::Pending);
        let waits = pending && !remains.any(left);
        waits.then(|| now + now.since(self.t0()).clamp(ANSWER_WAIT_MIN, ANSWER_WAIT_MAX))
    }

    /// What each node has of the lock or slot that was won, and its vote. A different slot that a
    /// node granted is not part of it.
    pub(super) fn remains_of_won(&self) -> impl Iterator<Item = (Target, &Vote)> {
        let won = self.slot();
        self.nodes.iter().map(move |node| {
            let target = match (&node.note.report, self.remains_on(node)) {
                (Some(report), Target::Holds) if report.slot != won => Target::Nothing,
                (_, target) => target,
            };
            (target, &node.vote)
        })
    }

    /// The slot for the next attempt, if it is our turn.
    pub(super) fn next_slot(&self) -> Option<u32> {
        let nodes = self.nodes.iter();
        let votes = nodes.filter_map(|node| Some((&node.vote, node.note.report.as_ref()?)));
        slots::next(votes, self.nodes.len())
    }

    /// The largest number of permits that any client uses for the semaphore, as the nodes report
    /// it.
    pub fn most_permits(&self) -> Option<u64> {
        let reports = self
            .nodes
            .iter()
            .filter_map(|node| node.note.report.as_ref());
        reports.map(|report| report.most).max()
    }

    /// What the nodes have beside the slot that was won: a surplus slot, or the ticket where no
    /// slot was granted. For nodes that have not answered it is [`Target::Unknown`].
    pub fn surplus_slots(&self) -> Vec<Target> {
        let (won, named) = (self.slot(), self.purpose.asked != Some(Asked::Any));
        let waits = self.purpose.ticket.is_some();
        let remains = self.remains().into_iter().zip(&self.nodes);
        let stray = |(target, node): (Target, &AttemptNode)| match (&node.note.report, target) {
            (Some(report), Target::Holds) if report.slot == won => Target::Nothing,
            // A ticket that is no longer needed would block the waiters behind it.
            (Some(_), Target::Nothing) if waits => Target::Holds,
            // A node never replaces a slot that was asked for, so there is no surplus slot.
            (_, Target::Unknown) if named => match waits {
                true => Target::Holds,
                false => Target::Nothing,
            },
            (_, target) => target,
        };
        remains.map(stray).collect()
    }

    /// How many answers to wait for. A node whose last call timed out is left out, if enough of the
    /// others can still answer for a majority. Nodes that failed or do not count cannot.
    fn awaited(&self, quorum: usize) -> usize {
        let pending = |node: &&AttemptNode| node.vote == Vote::Pending;
        let trusted = self.nodes.iter().filter(|node| !node.note.suspect);
        let able = trusted.clone().filter(|n| pending(n) || n.vote.is_answer());
        if able.count() >= quorum {
            trusted.filter(pending).count()
        } else {
            self.nodes.iter().filter(pending).count()
        }
    }
}

impl Purpose for Proposal {
    type Note = AttemptNote;
    type Verdict = AttemptVerdict;
    const VOTES: bool = true;

    fn vote(&mut self, note: &mut AttemptNote, mut reply: RoundReply) -> Option<Vote> {
        if self.asked.is_some() {
            (reply.outcome, note.report) = slots::split_permit(reply.outcome);
        }
        if let Ok(reply) = &reply.outcome {
            note.floor = reply.stamp.map(|stamp| stamp.floor);
            note.holds = matches!(reply.answer, Answer::Granted);
        }
        Some(match &reply.outcome {
            // The node may vote now. `Stale` leads to a real attempt at once.
            Ok(_) if self.inspects_only && reply.discount.is_none() => Vote::Stale,
            _ => reply.vote(),
        })
    }

    fn tally(round: &Attempt, now: Timestamp) -> Option<AttemptVerdict> {
        let (proposal, quorum) = (&round.purpose, round.quorum());
        let all_granted = round.count(|vote| *vote == Vote::Granted);
        let granted = match proposal.asked {
            None => all_granted,
            // Votes for different slots do not add up.
            Some(_) => {
                let wanted = round.slot();
                let granted = round.granted_slots();
                granted.filter(|slot| Some(*slot) == wanted).count()
            }
        };
        if granted >= quorum {
            // A clock that jumped past the deadline since the first send is handled here.
            return Some(if now <= proposal.latest_grant {
                AttemptVerdict::Won {
                    deadline: proposal.deadline,
                }
            } else {
                AttemptVerdict::Lost(Loss::Late)
            });
        }
        let awaited = round.awaited(quorum);
        let answers = round.count(Vote::is_answer);
        // The attempt may be lost already. But while fewer than a majority have answered, the
        // missing answers decide why: a holder, an outage, a quarantine or a wrong setting. A dead
        // node that fails at once must not turn a held lock into an outage.
        let undecided = answers < quorum && awaited > 0;
        if granted + awaited >= quorum || undecided {
            return None;
        }
        let stale = round.count(|vote| *vote == Vote::Stale);
        let ahead = round.count(|vote| matches!(vote, Vote::Ahead | Vote::TicketOld));
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
}
