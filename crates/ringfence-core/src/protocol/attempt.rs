//! One attempt: one ballot, proposed to all nodes at once.

mod remains;

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Acquire, Answer, Ballot, Claim, Kind, Op, Place, Reply, Request, Slots};
use crate::node::CallError;
use crate::time::Timestamp;
use crate::token::Token;

use super::slots::{self, Asked, Sight};
use super::vote::count_once;
use super::{Discount, Drift, GrantId, Vote, deadline, quorum};

/// One ballot, proposed to all nodes at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt {
    token: Token,
    ballot: Ballot,
    place: Option<Place>,
    t0: Timestamp,
    deadline: Timestamp,
    /// The latest moment at which a majority still makes a grant worth having.
    latest_grant: Timestamp,
    /// When nodes that have not answered count as silent.
    timeout: Timestamp,
    nodes: Vec<NodeState>,
    only_looks: bool,
    kind: Kind,
    /// Which slot of a semaphore is wanted; `None` for a lock.
    asked: Option<Asked>,
    verdict: Option<Verdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeState {
    vote: Vote,
    /// Which server answered; zero before it did.
    server: u64,
    floor: Option<Ballot>,
    /// It did not answer last time: a lost verdict need not wait for it.
    suspect: bool,
    /// It said that our token holds, counted or not.
    holds: bool,
    /// What it told of the semaphore.
    sight: Option<Sight>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A majority granted in time.
    Won {
        /// Until when the grant may be counted on.
        deadline: Timestamp,
    },
    /// No majority can grant any more, or it came too late.
    Lost(Loss),
}

/// What stood in the way of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Another holder.
    Held,
    /// Only ballots that were too low: a higher one may win at once.
    Stale,
    /// Ballots too low here and too high there: the next one is chosen with what was learnt.
    Skewed,
    /// Too few nodes answered.
    NoQuorum,
    /// A majority granted, but too little was left of its time.
    Late,
}

/// What a round needs to know beforehand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) ttl: Duration,
    pub(super) drift: Drift,
    pub(super) min_validity: Duration,
    pub(super) timeout: Timestamp,
}

impl Attempt {
    /// An attempt that begins at `t0`, which must be read before anything is sent.
    pub(super) fn new(
        token: Token,
        ballot: Ballot,
        place: Option<Place>,
        t0: Timestamp,
        timing: Timing,
        suspects: impl Iterator<Item = bool>,
    ) -> Self {
        let deadline = deadline(t0, timing.ttl, timing.drift);
        Self {
            token,
            ballot,
            place,
            t0,
            deadline,
            latest_grant: deadline - timing.min_validity,
            timeout: timing.timeout,
            nodes: suspects
                .map(|suspect| NodeState {
                    vote: Vote::Pending,
                    server: 0,
                    floor: None,
                    suspect,
                    holds: false,
                    sight: None,
                })
                .collect(),
            only_looks: false,
            kind: Kind::Exclusive,
            asked: None,
            verdict: None,
        }
    }

    /// The same attempt, as a look at the nodes if `only_looks`. It cannot be won.
    ///
    /// A new cluster is only looked at: what an attempt leaves behind would be taken for a sign of
    /// use by the `init` that its error recommends.
    pub(super) fn only_looking(self, only_looks: bool) -> Self {
        Self { only_looks, ..self }
    }

    /// The same attempt, at a lock of this `kind`; at a slot, if it is a semaphore's.
    pub(super) fn asking(self, kind: Kind, asked: Option<Asked>) -> Self {
        Self {
            kind,
            asked,
            ..self
        }
    }

    /// Asks for `claims`. Each node keeps what it grants for `lease`.
    pub fn request(&self, claims: &Arc<[Claim]>, lease: Duration, label: &Arc<str>) -> Request {
        let slot = match self.asked {
            Some(Asked::Slot(slot)) => Some(slot),
            Some(Asked::Any) | None => None,
        };
        let acquire = Acquire {
            ballot: self.ballot,
            ttl_ms: lease.as_millis() as u64,
            label: Arc::clone(label),
            place: self.place.clone(),
        };
        Request {
            claims: Arc::clone(claims),
            token: self.token.clone(),
            op: match self.only_looks {
                false => self.kind.acquire(slot, acquire),
                true => Op::Inspect,
            },
        }
    }

    /// What it may have left of `claims` on the nodes.
    pub fn grant_id(&self, claims: &Arc<[Claim]>) -> GrantId {
        let slots = self.asked.map(|asked| match asked {
            Asked::Any => Slots::All,
            Asked::Slot(slot) => Slots::Only(slot),
        });
        GrantId {
            claims: Arc::clone(claims),
            token: self.token.clone(),
            ballot: self.ballot,
            kind: self.kind,
            place: self.place.clone().map(Box::new),
            slots: slots.map(|slots| Box::new((Arc::clone(claims), slots))),
        }
    }

    /// Which slot of a semaphore is wanted; `None` for a lock.
    #[inline]
    pub fn asked(&self) -> Option<Asked> {
        self.asked
    }

    /// The slot for which there are most votes, if it is a semaphore's.
    pub fn slot(&self) -> Option<u32> {
        match self.asked? {
            Asked::Slot(slot) => Some(slot),
            Asked::Any => slots::best(self.granted_slots()).map(|(slot, _)| slot),
        }
    }

    /// The slot to ask for next, if it is our turn at one.
    pub(super) fn next_slot(&self) -> Option<u32> {
        let nodes = self.nodes.iter();
        let votes = nodes.filter_map(|node| Some((&node.vote, node.sight.as_ref()?)));
        slots::next(votes, self.nodes.len())
    }

    /// The largest number of permits that anybody gives the semaphore, as far as the nodes told.
    pub fn most_permits(&self) -> Option<u64> {
        let sights = self.nodes.iter().filter_map(|node| node.sight.as_ref());
        sights.map(|sight| sight.most).max()
    }

    fn granted_slots(&self) -> impl Iterator<Item = u32> + Clone {
        let granted = self.nodes.iter().filter(|n| n.vote == Vote::Granted);
        granted.filter_map(|node| node.sight.as_ref()?.slot)
    }

    /// Who proposes.
    #[inline]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// What is proposed.
    #[inline]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// The caller's place in line, if it waits.
    #[inline]
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// When it began: before the first send.
    #[inline]
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, unless the attempt is over.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.verdict.is_none().then_some(self.timeout)
    }

    /// How it ended, once that cannot change.
    #[inline]
    pub fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Whether every node has answered: nothing changes any more.
    pub fn is_complete(&self) -> bool {
        let awaited = |vote: &Vote| matches!(vote, Vote::Pending | Vote::Silent);
        !self.votes().any(awaited)
    }

    /// Every node's vote so far, in node order.
    pub fn votes(&self) -> impl Iterator<Item = &Vote> + Clone {
        self.nodes.iter().map(|node| &node.vote)
    }

    /// Whether every node has granted the lock, and counts. Not known of a slot: nodes may have
    /// granted different ones.
    pub(super) fn is_unanimous(&self) -> bool {
        let has_it = |node: &NodeState| node.holds && matches!(node.vote, Vote::Granted);
        self.asked.is_none() && self.nodes.iter().all(has_it)
    }

    /// The claims' floor on every node that told it.
    pub(super) fn floors(&self) -> impl Iterator<Item = Option<Ballot>> {
        self.nodes.iter().map(|node| node.floor)
    }

    /// Takes `node`'s outcome at `now`. `discount`: why nothing it says counts, if so.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        let (outcome, sight) = match self.asked {
            None => (outcome, None),
            Some(_) => slots::look(outcome),
        };
        let state = &mut self.nodes[node];
        state.sight = sight;
        let server = outcome.as_ref().map_or(0, |reply| reply.standing.server);
        state.server = server;
        if let Ok(reply) = &outcome {
            state.floor = reply.stamp.map(|stamp| stamp.floor);
            state.holds = matches!(reply.answer, Answer::Granted);
        }
        state.vote = match &outcome {
            // It has grown up, or was declared to have: worth an attempt in earnest, at once.
            Ok(_) if self.only_looks && discount.is_none() => Vote::Stale,
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

    /// Time has passed: whoever has not answered by the timeout is silent.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.verdict.is_some() || now < self.timeout {
            return;
        }
        Vote::time_out(self.nodes.iter_mut().map(|node| &mut node.vote));
        self.verdict = self.tally(now);
    }

    /// When it may be our turn on a majority of the nodes, as far as they told: when the holder's
    /// lease ends, and everybody ahead has had the `grace` to come and has not.
    pub(super) fn turn_in(&self, grace: Duration) -> Option<Duration> {
        let mut turns: Vec<Duration> = self
            .votes()
            .filter_map(|vote| match vote {
                Vote::Held(holder) => {
                    // One more: a key still stands in its last millisecond.
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

    fn tally(&self, now: Timestamp) -> Option<Verdict> {
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
            // A clock that jumped over the whole validity between sending and now lands here.
            return Some(if now <= self.latest_grant {
                Verdict::Won {
                    deadline: self.deadline,
                }
            } else {
                Verdict::Lost(Loss::Late)
            });
        }
        let awaited = self.awaited(quorum);
        let answers = count(Vote::is_answer);
        // It may be lost already, but as long as a majority has not answered, those who will decide
        // what it was lost to: a holder, an outage, quarantine or a wrong setting. A dead node that
        // fails at once must not make an outage of a held lock.
        let unheard = answers < quorum && awaited > 0;
        if granted + awaited >= quorum || unheard {
            return None;
        }
        let stale = count(|vote| *vote == Vote::Stale);
        let ahead = count(|vote| matches!(vote, Vote::Ahead | Vote::TicketOld));
        Some(Verdict::Lost(if answers < quorum {
            Loss::NoQuorum
        } else if all_granted + stale >= quorum {
            Loss::Stale
        } else if all_granted + stale + ahead >= quorum {
            Loss::Skewed
        } else {
            Loss::Held
        }))
    }

    /// How many answers are worth waiting for. A node that was silent last time is not, as long as
    /// the others could make a majority without it: those that fail or do not count cannot.
    fn awaited(&self, quorum: usize) -> usize {
        let pending = |node: &&NodeState| node.vote == Vote::Pending;
        let trusted = self.nodes.iter().filter(|node| !node.suspect);
        let able = trusted.clone().filter(|n| pending(n) || n.vote.is_answer());
        if able.count() >= quorum {
            trusted.filter(pending).count()
        } else {
            self.nodes.iter().filter(pending).count()
        }
    }
}
