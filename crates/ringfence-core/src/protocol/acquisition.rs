//! The way to one grant: attempts, until one is won or the caller gives up.

mod retry;

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Ballot, Kind, Ticket};
use crate::splitmix::SplitMix64;
use crate::time::Timestamp;
use crate::token::Token;

use super::attempt::{Attempt, AttemptVerdict, Loss, Timing};
use super::slots::Asked;
use super::{Cluster, Drift, Failure, RoundMachine};

pub use retry::majority_votes_in;

/// The shortest round, also if the remaining wait is shorter. With less, one slow packet would fail
/// the round.
const ROUND_MIN: Duration = Duration::from_millis(20);

/// A fence that is ahead of the clocks for a shorter time is not worth a word: clocks differ, and
/// clients outbid each other.
const FENCE_AHEAD_MIN: Duration = Duration::from_secs(1);

/// The terms of an acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AcquireTerms {
    /// The number of nodes.
    pub nodes: usize,
    /// The TTL of the lock.
    pub ttl: Duration,
    /// How much is subtracted from the TTL because clocks run at different rates.
    pub drift: Drift,
    /// A grant with less remaining validity is not returned.
    pub min_validity: Duration,
    /// The timeout of one call to a node.
    pub call_timeout: Duration,
    /// How long to wait while another client holds the lock; `None`: without limit.
    pub wait: Option<Duration>,
    /// The largest number of attempts while another client holds the lock.
    pub attempts: Option<u32>,
    /// How long to try while no majority answers.
    pub no_quorum_after: Duration,
    /// The kind of lock. A plain lock has no ballots, so every attempt has a fresh token.
    pub kind: Kind,
}

/// The way to one grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquisition {
    terms: AcquireTerms,
    started: Timestamp,
    jitter: SplitMix64,
    /// The token and the ballot of the last attempt.
    last: Option<(Token, Ballot)>,
    floors: Vec<Option<Ballot>>,
    /// How many attempts were lost for another reason than a stale ballot.
    lost: u32,
    stale_in_a_row: u32,
    no_quorum_since: Option<Timestamp>,
    no_quorum_in_a_row: u32,
    /// The ticket of a caller that waits.
    ticket: Option<TicketState>,
    /// The slot of a semaphore for the next attempt. The first attempt lets each node pick one.
    /// After a loss, if it is our turn, it is a slot that is free on a majority. `None` for a lock.
    next_slot: Option<Asked>,
    /// The failure of the last attempt that a majority answered.
    held: Option<AcquireFailure>,
    /// A wake caused the current attempt, or the one that it repeats with a higher ballot.
    woken: bool,
    /// How many wakes in a row led to no grant, and when the last of these attempts ended.
    fruitless_wakes: u32,
    last_fruitless: Timestamp,
    /// The duration of the slowest round. Pauses must be longer, or clients collide again and
    /// again.
    round: Duration,
    /// How long no majority of the nodes can grant anything: their fences are ahead of their clocks.
    fence_ahead: Option<Duration>,
    fence_ahead_told: bool,
}

/// What a caller knows about the wait queue before the first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueHint {
    /// Nothing.
    Unknown,
    /// Other callers of this client want the same lock, so there is a queue or soon will be. To
    /// enter it with the first attempt saves a round.
    Awaited,
}

/// The state of a caller's ticket, which stays the same for all its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TicketState {
    /// The id of the ticket and the label of its waiter. Set before the first attempt that carries
    /// the ticket.
    id: Option<(Arc<str>, Arc<str>)>,
    /// Whether attempts carry the ticket. The first attempt does not, unless other callers are
    /// known to wait: mostly the lock is free, and the nodes need not store a ticket.
    shown: bool,
    /// Since when the caller waits; set by the first attempt.
    since_us: Option<u64>,
    /// Whether a node has accepted it. From then on it may be old: it is not sent as `first` any
    /// more.
    entered: bool,
}

/// What follows an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next {
    /// The lock is held until `deadline`.
    Granted {
        /// The deadline of the grant.
        deadline: Timestamp,
    },
    /// Try again at `at`, or when woken.
    Retry {
        /// The time of the next attempt.
        at: Timestamp,
        /// A wake starts the next attempt earlier, but not before this.
        wake_at: Timestamp,
        /// Whether the ticket stays in the queue until then.
        stays: bool,
    },
    /// Give up.
    GiveUp(AcquireFailure),
}

/// Why there is no grant.
pub type AcquireFailure = Failure<FailureKind>;

impl AcquireFailure {
    /// Other callers of this client were in the way until the wait was over. No node was asked, so
    /// there are no votes.
    pub fn unasked() -> Self {
        Self {
            kind: FailureKind::Held,
            votes: Vec::new(),
        }
    }
}

/// The reason for a missing grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Another client held the lock for longer than the caller would wait.
    Held,
    /// Too few nodes answered.
    NoQuorum,
    /// Too few nodes may vote yet: the cluster is new or was restarted.
    Quarantined {
        /// The time until a majority may vote.
        left: Duration,
    },
    /// An operator has to change a setting before a majority can vote.
    Misconfigured,
    /// Granted, but each time with too little remaining validity.
    Expired,
    /// The nodes' clocks are too far apart: no majority accepts one ballot.
    ClocksApart,
    /// The lock is free, but its fence is ahead of the clocks of a majority: a clock was set back.
    FenceAhead {
        /// The time until a majority can grant it.
        left: Duration,
    },
}

impl Acquisition {
    /// Starts at `now`. `seed` is for the jitter.
    pub fn new(terms: AcquireTerms, now: Timestamp, seed: u64) -> Self {
        Self {
            terms,
            started: now,
            jitter: SplitMix64::new(seed),
            last: None,
            floors: vec![None; terms.nodes],
            lost: 0,
            stale_in_a_row: 0,
            no_quorum_since: None,
            no_quorum_in_a_row: 0,
            ticket: None,
            next_slot: (terms.kind == Kind::Slot).then_some(Asked::Any),
            held: None,
            woken: false,
            fruitless_wakes: 0,
            last_fruitless: now,
            round: Duration::ZERO,
            fence_ahead: None,
            fence_ahead_told: false,
        }
    }

    /// For how long the fence of the lock is ahead of the clocks of a majority, so that nobody can
    /// get it, as the last attempt found. Returned once, and only if it is worth a word.
    pub fn take_fence_ahead(&mut self) -> Option<Duration> {
        let left = self.fence_ahead.filter(|_| !self.fence_ahead_told)?;
        self.fence_ahead_told = true;
        Some(left)
    }

    /// Lets the caller wait in the queue instead of only polling. The ticket gets its id when it is
    /// needed ([`needs_ticket`](Self::needs_ticket)), which is rare.
    #[must_use]
    pub fn in_queue(mut self, hint: QueueHint) -> Self {
        self.ticket = Some(TicketState {
            id: None,
            shown: hint == QueueHint::Awaited,
            since_us: None,
            entered: false,
        });
        self
    }

    /// Whether the next attempt carries a ticket that has no id yet.
    #[inline]
    pub fn needs_ticket(&self) -> bool {
        let state = self.ticket.as_ref();
        state.is_some_and(|state| state.shown && state.id.is_none())
    }

    /// Sets the ticket id, which must be unique, and the label of its waiter.
    #[must_use]
    pub fn with_ticket(mut self, id: Arc<str>, label: Arc<str>) -> Self {
        if let Some(state) = &mut self.ticket {
            state.id = Some((id, label));
        }
        self
    }

    /// Begins the next attempt. `now` is its t0: nothing may have been sent yet. `fresh` is a token
    /// that was never used.
    ///
    /// The token stays the same while ballots rise, so that our own partial grants are never in the
    /// way. A client that must lower its ballot takes a fresh token. Otherwise late replies to an
    /// earlier attempt made two holders in a third of the simulated runs.
    pub fn begin(&mut self, cluster: &mut Cluster, now: Timestamp, fresh: Token) -> Attempt {
        let has_ballots = self.terms.kind.has_record();
        let choice = match has_ballots {
            true => cluster.choose(&self.floors, now),
            false => None,
        };
        let ballot = choice.map(|choice| choice.ballot).unwrap_or_default();
        let accepted_in = choice.and_then(|choice| choice.accepted_in);
        self.fence_ahead = accepted_in.filter(|wait| *wait >= FENCE_AHEAD_MIN);
        let token = match self.last.take() {
            Some((token, before)) if has_ballots && ballot > before => token,
            _ => fresh,
        };
        self.last = Some((token.clone(), ballot));
        let timing = Timing {
            ttl: self.terms.ttl,
            drift: self.terms.drift,
            min_validity: self.min_validity(),
            timeout: self.round_timeout(now),
            reply_by: cluster.reply_by(now),
        };
        let suspects = (0..self.terms.nodes).map(|node| cluster.is_silent(node));
        // While no majority may vote, only inspect the nodes. There is no queue to enter yet. A
        // single node refuses by itself, and lets the caller enter the queue.
        let refuses_itself = has_ballots && cluster.is_lone_failover();
        let inspects_only = cluster.no_majority_may_vote(now) && !refuses_itself;
        let ticket = self.ticket(cluster, now).filter(|_| !inspects_only);
        let attempt = Attempt::new(token, ballot, ticket, now, timing, suspects);
        attempt
            .inspecting_only(inspects_only)
            .asking(self.terms.kind, self.next_slot)
    }

    /// The ticket. Its time is the nodes' median clock at the first attempt, so a wrong client
    /// clock is neither an advantage nor a disadvantage.
    fn ticket(&mut self, cluster: &Cluster, now: Timestamp) -> Option<Ticket> {
        let state = self.ticket.as_mut()?;
        if state.since_us.is_none() {
            state.since_us = Some(cluster.ticket_time(now)?);
        }
        if !state.shown {
            return None;
        }
        let (id, label) = state.id.clone()?;
        Some(Ticket {
            since_us: state.since_us?,
            id,
            first: !state.entered,
            label,
        })
    }

    /// Decides what follows `attempt`, which has its verdict.
    pub fn conclude(&mut self, attempt: &Attempt, cluster: &Cluster, now: Timestamp) -> Next {
        // A round takes at most one call timeout. If more time has passed, this process was
        // suspended, and that must not make later pauses longer.
        let took = now.since(attempt.t0()).min(self.terms.call_timeout);
        self.round = self.round.max(took);
        for (known, told) in self.floors.iter_mut().zip(attempt.floors()) {
            *known = told.or(*known);
        }
        let loss = match attempt.verdict() {
            // Check the deadline again: this process may have been suspended since the verdict.
            Some(AttemptVerdict::Won { deadline })
                if now + self.min_validity() <= deadline && !cluster.froze_since(attempt.t0()) =>
            {
                return Next::Granted { deadline };
            }
            Some(AttemptVerdict::Won { .. }) => Loss::Late,
            Some(AttemptVerdict::Lost(loss)) => loss,
            None => Loss::NoQuorum,
        };
        self.after(loss, attempt, cluster, now)
    }

    fn min_validity(&self) -> Duration {
        self.terms.min_validity
    }

    /// The timeout of a round: at most the remaining wait, so that the caller gets its answer in
    /// time.
    fn round_timeout(&self, now: Timestamp) -> Timestamp {
        let full = now + self.terms.call_timeout;
        match self.terms.wait {
            Some(wait) if !wait.is_zero() => full.min((self.started + wait).max(now + ROUND_MIN)),
            _ => full,
        }
    }
}
