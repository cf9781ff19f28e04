//! The way to a grant: attempt after attempt until one is won, or it is time to give up.

mod retry;

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Ballot, Kind, Place};
use crate::splitmix::SplitMix64;
use crate::time::Timestamp;
use crate::token::Token;

use super::attempt::{Attempt, Loss, Timing, Verdict};
use super::jitter::Jitter;
use super::slots::Asked;
use super::{Cluster, Drift, Vote};

pub use retry::majority_grows_up;

/// However short the wait, a round gets this long: less would lose to one slow packet.
const ROUND_MIN: Duration = Duration::from_millis(20);

/// What the caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How many nodes there are.
    pub nodes: usize,
    /// How long each node keeps the lock.
    pub ttl: Duration,
    /// What is taken off for clocks that do not run alike.
    pub drift: Drift,
    /// A grant with less than this left is not returned.
    pub min_validity: Duration,
    /// How long a node may take to answer.
    pub call_timeout: Duration,
    /// How long to wait while somebody else holds; `None` is for ever.
    pub wait: Option<Duration>,
    /// How many attempts at a held lock, at most.
    pub attempts: Option<u32>,
    /// How long to go on without a majority that answers.
    pub no_quorum_after: Duration,
    /// What is to be held. Without ballots (plain), every attempt has a token of its own.
    pub kind: Kind,
}

/// The way to one grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquisition {
    terms: Terms,
    started: Timestamp,
    jitter: Jitter,
    /// The token of the last attempt and the ballot that it proposed.
    last: Option<(Token, Ballot)>,
    floors: Vec<Option<Ballot>>,
    /// How many attempts lost to somebody or something else than a stale ballot.
    lost: u32,
    stale_in_a_row: u32,
    no_quorum_since: Option<Timestamp>,
    no_quorum_in_a_row: u32,
    /// The place in line, for a caller that waits.
    ticket: Option<Ticket>,
    /// Which slot of a semaphore comes next: first whichever each node picks; after a loss, while it
    /// is our turn, one that is free on a majority. `None` for a lock.
    asks: Option<Asked>,
    /// What the last attempt was told that a majority answered.
    held: Option<Failure>,
    /// A wake brought the present attempt about, or the one that it repeats with a higher ballot.
    woken: bool,
    /// How many wakes in a row brought nothing, and when the last of them was known to have.
    fruitless_wakes: u32,
    last_fruitless: Timestamp,
    /// How long the slowest round took: a pause must be longer, or clients meet again and again.
    round: Duration,
}

/// What a caller knows of the line beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// Nothing.
    Unknown,
    /// Others ask for the same: there is one, or soon will be. Entering it at once saves a round.
    Awaited,
}

/// A caller's ticket: the same through all its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ticket {
    /// Given before it is first shown.
    id: Option<Arc<str>>,
    /// Whether it is shown: unless others are known to wait, the first attempt goes without, since
    /// mostly nobody else is there and nodes need not keep what nobody asks for.
    shown: bool,
    /// Since when it waits, once it has been shown to the nodes.
    since_us: Option<u64>,
    /// Whether the nodes have it: from then on its age is patience.
    entered: bool,
}

/// What comes after an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Next {
    /// The lock is held until `deadline`.
    Granted {
        /// Until when it may be counted on.
        deadline: Timestamp,
    },
    /// Try again at `at`, or when woken.
    Retry {
        /// When.
        at: Timestamp,
        /// A wake brings it forward, but not to before this.
        wake_at: Timestamp,
        /// Whether the place in line is kept meanwhile.
        stays: bool,
    },
    /// Give up.
    GiveUp(Failure),
}

/// Why there is no grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failure {
    /// What stood in the way.
    pub kind: FailureKind,
    /// Every node's vote in the last attempt, in node order.
    pub votes: Vec<Vote>,
}

/// What stood in the way of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Another holder, for longer than the caller would wait.
    Held,
    /// Too few nodes answered.
    NoQuorum,
    /// Too few nodes may vote yet: the cluster is new or was restarted.
    Quarantined {
        /// When a majority may vote.
        left: Duration,
    },
    /// A majority needs somebody to change a setting.
    Misconfigured,
    /// Granted, but again and again with too little time left.
    Expired,
    /// The nodes' clocks are too far apart for any ballot to please a majority.
    ClocksApart,
}

impl Acquisition {
    /// Begins at `now`. `seed` decides the jitter.
    pub fn new(terms: Terms, now: Timestamp, seed: u64) -> Self {
        Self {
            terms,
            started: now,
            jitter: Jitter(SplitMix64(seed)),
            last: None,
            floors: vec![None; terms.nodes],
            lost: 0,
            stale_in_a_row: 0,
            no_quorum_since: None,
            no_quorum_in_a_row: 0,
            ticket: None,
            asks: (terms.kind == Kind::Slot).then_some(Asked::Any),
            held: None,
            woken: false,
            fruitless_wakes: 0,
            last_fruitless: now,
            round: Duration::ZERO,
        }
    }

    /// Waits in line instead of asking now and then. The ticket is asked for when it is to be shown
    /// ([`needs_ticket`](Self::needs_ticket)): mostly it never is.
    #[must_use]
    pub fn in_line(mut self, line: Line) -> Self {
        self.ticket = Some(Ticket {
            id: None,
            shown: line == Line::Awaited,
            since_us: None,
            entered: false,
        });
        self
    }

    /// Whether the next attempt shows a ticket that has not been given yet.
    #[inline]
    pub fn needs_ticket(&self) -> bool {
        let ticket = self.ticket.as_ref();
        ticket.is_some_and(|ticket| ticket.shown && ticket.id.is_none())
    }

    /// Gives it the ticket `id`, which no other caller has.
    #[must_use]
    pub fn with_ticket(mut self, id: Arc<str>) -> Self {
        if let Some(ticket) = &mut self.ticket {
            ticket.id = Some(id);
        }
        self
    }

    /// Begins the next attempt. `now` is its t0: nothing may have been sent yet. `fresh` is a
    /// token that was never used.
    ///
    /// The token stays the same as long as ballots rise, so that own partial votes never stand in
    /// the way. A client that must lower its ballot takes a fresh one, or late replies to the
    /// earlier ballot would count for it.
    pub fn begin(&mut self, cluster: &mut Cluster, now: Timestamp, fresh: Token) -> Attempt {
        let has_ballots = self.terms.kind.has_record();
        let choice = match has_ballots {
            true => cluster.choose(&self.floors, now),
            false => None,
        };
        let ballot = choice.map(|choice| choice.ballot).unwrap_or_default();
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
        };
        let suspects = (0..self.terms.nodes).map(|node| cluster.is_silent(node));
        // A new cluster is only looked at: there is no line to stand in yet.
        let young = cluster.is_young(now);
        let place = self.place(cluster, now).filter(|_| !young);
        let attempt = Attempt::new(token, ballot, place, now, timing, suspects);
        attempt
            .only_looking(young)
            .asking(self.terms.kind, self.asks)
    }

    /// The place in line, taken at the first attempt: the nodes' own median time, so that a wrong
    /// client clock gains and loses nothing.
    fn place(&mut self, cluster: &Cluster, now: Timestamp) -> Option<Place> {
        let ticket = self.ticket.as_mut()?;
        if ticket.since_us.is_none() {
            ticket.since_us = Some(cluster.place_time(now)?);
        }
        if !ticket.shown {
            return None;
        }
        Some(Place {
            since_us: ticket.since_us?,
            id: ticket.id.clone()?,
            first: !ticket.entered,
        })
    }

    /// Decides what comes after `attempt`, which has its verdict.
    pub fn conclude(&mut self, attempt: &Attempt, cluster: &Cluster, now: Timestamp) -> Next {
        // A round takes as long as a call may, at most; more than that the caller stood still
        // (suspended, say), which must not make it pause for as long again.
        let took = now.since(attempt.t0()).min(self.terms.call_timeout);
        self.round = self.round.max(took);
        for (known, told) in self.floors.iter_mut().zip(attempt.floors()) {
            *known = told.or(*known);
        }
        let loss = match attempt.verdict() {
            // Looked at again: the caller may have stood still since the verdict.
            Some(Verdict::Won { deadline })
                if now + self.min_validity() <= deadline
                    && !cluster.stood_still_since(attempt.t0()) =>
            {
                return Next::Granted { deadline };
            }
            Some(Verdict::Won { .. }) => Loss::Late,
            Some(Verdict::Lost(loss)) => loss,
            None => Loss::NoQuorum,
        };
        self.after(loss, attempt, cluster, now)
    }

    fn min_validity(&self) -> Duration {
        self.terms.min_validity
    }

    /// A round never outlasts what is left of the wait, so that the caller is told in time.
    fn round_timeout(&self, now: Timestamp) -> Timestamp {
        let full = now + self.terms.call_timeout;
        match self.terms.wait {
            Some(wait) if !wait.is_zero() => full.min((self.started + wait).max(now + ROUND_MIN)),
            _ => full,
        }
    }
}
