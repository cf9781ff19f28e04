//! The life of a hold, from the grant to the release: renewal, failed and late rounds, restore,
//! downgrade, `max_hold`, the deadline and loss.
//!
//! After every command and every `handle_*`, poll until nothing is left: [`Hold::poll_transmit`] says
//! what to send, then [`Hold::poll_event`] what happened, and last [`Hold::poll_timeout`] when to call
//! [`Hold::handle_timeout`]. Who holds (names, token, ballot) is not known here. The release is a
//! machine of its own ([`Withdrawal`](super::Withdrawal)); [`Hold::release`] says what it has to know.

mod commands;
mod lost;
mod round;
mod rounds;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use crate::message::Kind;
use crate::time::Timestamp;

use super::{Attempt, Drift, ExtensionVerdict, Target, Vote};

pub use lost::Lost;
pub use round::{HoldAction, RoundId, Transmit};
use round::{Round, RoundKind, Rounds};
use tally::Tally;

/// What the client's clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// The time.
    pub now: Timestamp,
    /// When the clock was last found to have stood still: what was held then may have expired since.
    pub froze: Option<Timestamp>,
}

/// What happened to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldEvent {
    /// A round has its verdict. Told once for each round.
    Concluded {
        /// Which round.
        round: RoundId,
        /// What it came to.
        verdict: ExtensionVerdict,
        /// Whether the hold renewed itself with it.
        renewal: bool,
        /// How many rounds in a row brought no majority.
        failures: u16,
        /// Whether a caller waits for it.
        awaited: bool,
    },
    /// The lock is no longer held. Told once.
    Ended(Lost),
    /// The lock is to be renewed: [`Hold::renew`] begins the round, as soon as the client has capacity.
    RenewalDue,
}

/// What the final release of a hold has to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FinalRelease {
    /// What each node may have of the lock.
    pub targets: Vec<Target>,
    /// After this long the last lease is over that was ever asked for.
    pub lease_left: Duration,
    /// How long a node may take to answer.
    pub call_timeout: Duration,
    /// Until when the lock is kept from others.
    pub keep_until: Option<Timestamp>,
    /// Whether nodes are to be told until then, also after the lease has ended, as long as no majority
    /// has been told. Not after the deadline: others may hold the lock.
    pub keeps_on: bool,
}

/// How a hold is looked after. Most holds of one client have the same policy, so they share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HoldPolicy {
    /// How long one round of extending is good for.
    pub ttl: Duration,
    /// For how much longer than the TTL the nodes keep the lock from others.
    pub lock_delay: Duration,
    /// If the lock is released sooner than this, it is kept from others until then.
    pub hold_at_least: Duration,
    /// How long a node may take to answer.
    pub call_timeout: Duration,
    /// What is taken off a TTL because clocks do not run alike.
    pub drift: Drift,
    /// Whether the hold renews itself, or is extended by its caller alone.
    pub renew: bool,
    /// For how long the lock may be held in all.
    pub max_hold: Option<Duration>,
    /// Who holds, for people. A node that gets the lock back needs it.
    pub label: Arc<str>,
}

impl HoldPolicy {
    /// How long the nodes keep a lock that is asked for `ttl`.
    #[inline]
    pub fn lease(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.lock_delay)
    }

    /// When to renew after a round that began at `t0`: at a third of the TTL. The lease counts from
    /// `t0`: after a slow round, a third of the TTL from its end may lie behind the deadline.
    fn renewal_after(&self, t0: Timestamp) -> Timestamp {
        t0 + self.ttl / 3
    }

    /// The pause before a renewal is tried again: longer after each failure, but shorter the less time
    /// is `left`, so that a majority which comes back in time is asked in time.
    fn pause(&self, failures: u16, left: Duration) -> Duration {
        let unit = self.call_timeout / 8;
        (unit * 2 * u32::from(failures.min(8)))
            .min(left / 3)
            .max(unit)
    }
}

/// A lock that is held. There may be a hundred thousand of these: what is the same for many is
/// shared, and what few have is kept elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    policy: Arc<HoldPolicy>,
    /// When the round began that won the lock.
    since: Timestamp,
    /// Never moves back.
    deadline: Timestamp,
    /// Until when a release keeps the lock from others.
    keep_until: Option<Timestamp>,
    /// When the last lease is over that was ever asked for. Until then a release may have something to
    /// take back.
    leased_until: Timestamp,
    /// When to renew next; `None` while a renewal waits for its turn or is under way.
    renew_at: Option<Timestamp>,
    tally: Tally,
    rounds: Rounds,
    /// How many rounds in a row brought no majority.
    failures: u16,
    ended: Option<Lost>,
    /// The end has not been told by [`poll_event`](Self::poll_event).
    end_untold: bool,
    renewal_due: bool,
    /// Made from a receipt: whether the lock is still inside its validity is not known here.
    of_receipt: bool,
    /// What is held.
    kind: Kind,
}

impl Hold {
    /// Takes over an attempt that was won at `now`, with a grant until `deadline`. Later answers to the
    /// attempt go to [`handle_acquired`](Self::handle_acquired).
    pub fn new(
        attempt: &Attempt,
        deadline: Timestamp,
        policy: Arc<HoldPolicy>,
        kind: Kind,
        now: Timestamp,
    ) -> Self {
        let since = attempt.t0();
        // The nodes' leases began after t0, at the latest now.
        let leased_until = now + policy.lease(policy.ttl);
        let keep = policy.hold_at_least;
        let max_hold = policy.max_hold.map(|span| since + span);
        Self {
            since,
            deadline: max_hold.map_or(deadline, |end| end.min(deadline)),
            keep_until: (!keep.is_zero()).then(|| now + keep),
            leased_until,
            renew_at: policy.renew.then(|| policy.renewal_after(since)),
            tally: match attempt.is_unanimous() {
                true => Tally::Unanimous {
                    nodes: attempt.votes().count(),
                },
                false => Tally::of(attempt),
            },
            rounds: Rounds(None),
            failures: 0,
            ended: None,
            end_untold: false,
            renewal_due: false,
            of_receipt: false,
            kind,
            policy,
        }
    }

    /// How it is looked after.
    #[inline]
    pub fn policy(&self) -> &Arc<HoldPolicy> {
        &self.policy
    }

    /// When the round began that won it.
    #[inline]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Until when it is surely held, unless it is extended. Never moves back.
    #[inline]
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Whether it is still held. If its deadline has passed, it is lost from this moment on.
    pub fn check(&mut self, clock: ClockReading) -> Result<(), Lost> {
        if self.ended.is_none()
            && let Some(why) = self.why_over(clock)
        {
            self.end(why);
        }
        self.ended.map_or(Ok(()), Err)
    }

    /// How long until the deadline; zero once it is lost.
    pub fn remaining(&mut self, clock: ClockReading) -> Duration {
        match self.check(clock) {
            Ok(()) => self.deadline.since(clock.now),
            Err(_) => Duration::ZERO,
        }
    }

    /// Why it is no longer held, as far as it was noticed.
    #[inline]
    pub fn lost(&self) -> Option<Lost> {
        self.ended
    }

    /// Every node's vote in the latest round, in node order.
    pub fn votes(&self) -> Vec<Vote> {
        self.tally.votes()
    }

    /// Whether some nodes have not answered the attempt that won it.
    /// [`handle_acquired`](Self::handle_acquired) wants their answers.
    #[inline]
    pub fn awaits_acquire(&self) -> bool {
        matches!(&self.tally, Tally::Divided(divided) if divided.acquiring)
    }

    /// What `round` came to; `None` while it is open, or once it was closed.
    pub fn verdict(&self, round: RoundId) -> Option<ExtensionVerdict> {
        self.rounds.get(round)?.extension.verdict()
    }

    /// Every node's vote in `round`, which its caller has not closed.
    pub fn votes_in(&self, round: RoundId) -> Vec<Vote> {
        let votes = self.rounds.get(round).map(|round| round.extension.votes());
        votes.into_iter().flatten().cloned().collect()
    }

    /// When `round` is over at the latest, while it is open.
    pub fn timeout_of(&self, round: RoundId) -> Option<Timestamp> {
        self.rounds.get(round)?.extension.poll_timeout()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<HoldEvent> {
        if self.rounds.0.is_some()
            && let Some((round, verdict)) = self.rounds.find_map(Round::take_verdict)
        {
            return Some(HoldEvent::Concluded {
                round: round.id,
                verdict,
                renewal: round.kind == RoundKind::Renew,
                failures: self.failures,
                awaited: round.awaited,
            });
        }
        if std::mem::take(&mut self.end_untold) {
            return self.ended.map(HoldEvent::Ended);
        }
        std::mem::take(&mut self.renewal_due).then_some(HoldEvent::RenewalDue)
    }

    /// The next request to send. A restore is decided here, at the last moment: from then on a
    /// release counts on it being under way. Only this decision needs the `clock`.
    pub fn poll_transmit(&mut self, clock: impl FnOnce() -> ClockReading) -> Option<Transmit> {
        match self.rounds.0.is_some() {
            true => self.poll_rounds(clock),
            false => None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let is_held = self.ended.is_none();
        let next = match self.rounds.0.is_some() {
            true => self.rounds_timeout(is_held),
            false => None,
        };
        if !is_held || self.of_receipt {
            return next;
        }
        let renew_at = self.renew_at.filter(|_| !self.is_renewing());
        let mut at = self.deadline;
        for earlier in [next, renew_at].into_iter().flatten() {
            at = at.min(earlier);
        }
        Some(at)
    }

    fn is_renewing(&self) -> bool {
        self.rounds.0.is_some() && self.rounds.iter().any(Round::is_renewing)
    }

    /// When `max_hold` ends it.
    fn max_hold(&self) -> Option<Timestamp> {
        self.policy.max_hold.map(|span| self.since + span)
    }

    /// Why it is over, if it is.
    fn why_over(&self, clock: ClockReading) -> Option<Lost> {
        // If our clock stood still since it was won, how much of its time is left is not known.
        if clock.froze.is_some_and(|froze| froze >= self.since) {
            return Some(Lost::ClockStoodStill);
        }
        match self.max_hold() {
            _ if clock.now < self.deadline => None,
            Some(end) if end <= clock.now && end <= self.deadline => Some(Lost::MaxHold),
            _ => Some(Lost::Expired),
        }
    }

    /// Ends the hold, unless it has ended for another reason.
    fn end(&mut self, why: Lost) {
        if self.ended.is_none() {
            self.ended = Some(why);
            self.end_untold = true;
        }
    }
}
