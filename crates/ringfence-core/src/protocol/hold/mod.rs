//! The life of a hold, from the grant to the release: renewal, failed and late rounds, restore,
//! downgrade, `max_hold`, the deadline and loss.
//!
//! After every command and every `handle_*`, poll until nothing is left: [`Hold::poll_transmit`]
//! returns what to send, then [`Hold::poll_event`] what happened, and last [`Hold::poll_timeout`]
//! when to call [`Hold::handle_timeout`]. This machine does not know the names, the token and the
//! ballot. The release is a machine of its own ([`PendingRelease`](super::PendingRelease));
//! [`Hold::release`] returns its inputs.

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
pub use round::{HoldAction, Line, RoundId, Transmit};
use round::{Round, RoundKind, Rounds};
use tally::Tally;

/// A reading of the client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// The time.
    pub now: Timestamp,
    /// When the last freeze of the clock was found. A lock that was held then may have expired
    /// since.
    pub froze: Option<Timestamp>,
}

/// What happened to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldEvent {
    /// A round has its verdict. Returned once for each round.
    Concluded {
        /// The round.
        round: RoundId,
        /// Its verdict.
        verdict: ExtensionVerdict,
        /// Whether it was a renewal.
        renewal: bool,
        /// How many rounds in a row failed.
        failures: u16,
        /// Whether a caller waits for the verdict.
        awaited: bool,
        /// Whether a node did not answer in time.
        silent: bool,
    },
    /// The lock is no longer held. Returned once.
    Ended(Lost),
    /// The lock has to be renewed. [`Hold::renew`] begins the round as soon as the client has
    /// capacity.
    RenewalDue,
}

/// The inputs of the final release of a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FinalRelease {
    /// What each node may have of the lock.
    pub targets: Vec<Target>,
    /// The time until the longest lease that was ever requested has ended.
    pub lease_left: Duration,
    /// The timeout of one call to a node.
    pub call_timeout: Duration,
    /// Until when the lock is kept from others.
    pub keep_until: Option<Timestamp>,
    /// Whether to retry the release until then, also after the lease has ended, while no majority
    /// has acknowledged it. False after the deadline: another client may hold the lock.
    pub keeps_on: bool,
}

/// How a hold is maintained. Most holds of one client have the same policy, so they share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HoldPolicy {
    /// The TTL of one round.
    pub ttl: Duration,
    /// How much longer than the TTL the nodes keep the lock from others.
    pub lock_delay: Duration,
    /// If the lock is released earlier than this, it is kept from others until then.
    pub hold_at_least: Duration,
    /// The timeout of one call to a node.
    pub call_timeout: Duration,
    /// How much is subtracted from a TTL because clocks run at different rates.
    pub drift: Drift,
    /// Whether the hold renews itself, or only the caller extends it.
    pub renew: bool,
    /// The longest time for which the lock may be held.
    pub max_hold: Option<Duration>,
    /// The holder's name, shown to people. A restore needs it.
    pub label: Arc<str>,
}

impl HoldPolicy {
    /// The lease on the nodes for a lock with this `ttl`.
    #[inline]
    pub fn lease(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.lock_delay)
    }

    /// When to renew after a round that began at `t0`: after a third of the TTL. Counted from `t0`
    /// like the lease: a third of the TTL from the end of a slow round may be after the deadline.
    fn renewal_after(&self, t0: Timestamp) -> Timestamp {
        t0 + self.ttl / 3
    }

    /// The pause before a renewal is retried: longer after each failure, but shorter when little
    /// time is `left`, so that a majority that returns in time is asked in time.
    fn pause(&self, failures: u16, left: Duration) -> Duration {
        let unit = self.call_timeout / 8;
        (unit * 2 * u32::from(failures.min(8)))
            .min(left / 3)
            .max(unit)
    }
}

/// A held lock. There may be a hundred thousand of these, so values that many holds have in common
/// are shared, and rare values are boxed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hold {
    policy: Arc<HoldPolicy>,
    /// When the round that won the lock began.
    since: Timestamp,
    /// The end of the validity. It never moves back.
    deadline: Timestamp,
    /// Until when a release keeps the lock from others.
    keep_until: Option<Timestamp>,
    /// When the longest lease that was ever requested has ended. Until then a node may have
    /// something to release.
    leased_until: Timestamp,
    /// When to renew next; `None` while a renewal waits for capacity or is in progress.
    renew_at: Option<Timestamp>,
    tally: Tally,
    rounds: Rounds,
    /// How many rounds in a row failed.
    failures: u16,
    ended: Option<Lost>,
    /// [`poll_event`](Self::poll_event) has not returned the end yet.
    end_unreported: bool,
    renewal_due: bool,
    /// Made from a receipt: it is not known here whether the lock is still valid.
    of_receipt: bool,
    /// The kind of lock.
    kind: Kind,
}

impl Hold {
    /// The hold of an attempt that was won at `now`, with a grant until `deadline`. Later answers
    /// to the attempt go to [`handle_acquired`](Self::handle_acquired).
    pub fn new(
        attempt: &Attempt,
        deadline: Timestamp,
        policy: Arc<HoldPolicy>,
        kind: Kind,
        now: Timestamp,
    ) -> Self {
        let since = attempt.t0();
        // The nodes' leases began after t0 and not later than now.
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
            end_unreported: false,
            renewal_due: false,
            of_receipt: false,
            kind,
            policy,
        }
    }

    /// A node answered the attempt that won the lock, after the verdict.
    pub fn handle_acquired(&mut self, attempt: &Attempt) {
        self.tally.record_acquire(attempt);
    }

    /// How the hold is maintained.
    #[inline]
    pub fn policy(&self) -> &Arc<HoldPolicy> {
        &self.policy
    }

    /// When the round that won the lock began.
    #[inline]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Until when the lock is surely held, unless it is extended. It never moves back.
    #[inline]
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Until when the lock is surely held, if it may be carried through a failover: by a guard of
    /// this process. A receipt does not know whether its lock is still valid, and a plain lock has
    /// no ballot by which another holder could be told from an older one.
    #[inline]
    pub fn carried_until(&self) -> Option<Timestamp> {
        let carried = !self.of_receipt && self.kind.has_record();
        carried.then_some(self.deadline)
    }

    /// Whether the lock is still held. If the deadline has passed, the hold ends now.
    pub fn check(&mut self, clock: ClockReading) -> Result<(), Lost> {
        if self.ended.is_none()
            && let Some(why) = self.why_over(clock)
        {
            self.end(why);
        }
        self.ended.map_or(Ok(()), Err)
    }

    /// The remaining validity; zero after the end.
    pub fn remaining(&mut self, clock: ClockReading) -> Duration {
        match self.check(clock) {
            Ok(()) => self.deadline.since(clock.now),
            Err(_) => Duration::ZERO,
        }
    }

    /// Why the lock is no longer held, if the end was noticed.
    #[inline]
    pub fn lost(&self) -> Option<Lost> {
        self.ended
    }

    /// Every node's vote in the latest round, in node order.
    pub fn votes(&self) -> Vec<Vote> {
        self.tally.votes()
    }

    /// Whether some nodes have not answered the attempt that won the lock. Their answers go to
    /// [`handle_acquired`](Self::handle_acquired).
    #[inline]
    pub fn awaits_acquire(&self) -> bool {
        matches!(&self.tally, Tally::PerNode(per_node) if per_node.acquiring)
    }

    /// The verdict of `round`; `None` while it has none, and after it was closed.
    pub fn verdict(&self, round: RoundId) -> Option<ExtensionVerdict> {
        self.rounds.get(round)?.extension.verdict()
    }

    /// Every node's vote in `round`, before its caller closes it.
    pub fn votes_in(&self, round: RoundId) -> Vec<Vote> {
        let votes = self.rounds.get(round).map(|round| round.extension.votes());
        votes.into_iter().flatten().cloned().collect()
    }

    /// The timeout of `round`, while it has no verdict.
    pub fn timeout_of(&self, round: RoundId) -> Option<Timestamp> {
        self.rounds.get(round)?.extension.poll_timeout()
    }

    /// The next event.
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
                silent: round.is_silent(),
            });
        }
        if std::mem::take(&mut self.end_unreported) {
            return self.ended.map(HoldEvent::Ended);
        }
        std::mem::take(&mut self.renewal_due).then_some(HoldEvent::RenewalDue)
    }

    /// The next request to send. A restore is decided here, at the last moment: from then on a
    /// release assumes that it may arrive at the node. Only this decision needs the `clock`.
    pub fn poll_transmit(&mut self, clock: impl FnOnce() -> ClockReading) -> Option<Transmit> {
        match self.rounds.0.is_some() {
            true => self.poll_rounds(clock),
            false => None,
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
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

    /// When `max_hold` ends the hold.
    pub fn max_hold(&self) -> Option<Timestamp> {
        self.policy.max_hold.map(|span| self.since + span)
    }

    /// Why the hold is over, if it is.
    fn why_over(&self, clock: ClockReading) -> Option<Lost> {
        // If our clock froze since the lock was won, the remaining validity is unknown.
        if clock.froze.is_some_and(|froze| froze >= self.since) {
            return Some(Lost::ClockFroze);
        }
        match self.max_hold() {
            _ if clock.now < self.deadline => None,
            Some(end) if end <= clock.now && end <= self.deadline => Some(Lost::MaxHold),
            _ => Some(Lost::Expired),
        }
    }

    /// Ends the hold, unless it has ended already.
    fn end(&mut self, why: Lost) {
        if self.ended.is_none() {
            self.ended = Some(why);
            self.end_unreported = true;
        }
    }
}
