//! The life of a hold, from the grant to the release: renewal, failed and late rounds, restore,
//! downgrade, `max_hold`, the deadline and loss.
//!
//! After every command and every `handle_*`, poll until nothing is left: [`Hold::poll_transmit`] says
//! what to send, then [`Hold::poll_event`] what happened, and last [`Hold::poll_timeout`] when to call
//! [`Hold::handle_timeout`]. Who holds (names, token, ballot) is not known here. The release is a
//! machine of its own ([`Withdrawal`](super::Withdrawal)); [`Hold::release`] says what it has to know.

mod commands;
mod lost;
mod policy;
mod round;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Kind, Reply};
use crate::node::CallError;
use crate::time::Timestamp;

use super::{Attempt, Cluster, Discount, ExtensionVerdict, Target, Vote};

pub use lost::Lost;
pub use policy::HoldPolicy;
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
    kind: Kind,
}

impl Hold {
    /// How it is looked after.
    pub fn policy(&self) -> &Arc<HoldPolicy> {
        &self.policy
    }

    /// When the round began that won it.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Until when it is surely held, unless it is extended. Never moves back.
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
    pub fn lost(&self) -> Option<Lost> {
        self.ended
    }

    /// Every node's vote in the latest round, in node order.
    pub fn votes(&self) -> Vec<Vote> {
        self.tally.votes()
    }

    /// Whether some nodes have not answered the attempt that won it.
    /// [`handle_acquired`](Self::handle_acquired) wants their answers.
    pub fn awaits_acquire(&self) -> bool {
        self.tally.awaits_acquire()
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

    /// A node has answered the attempt that won the lock, after the verdict.
    pub fn handle_acquired(&mut self, attempt: &Attempt) {
        self.tally.take_acquire(attempt);
    }

    /// Takes `node`'s outcome in `round`. `discount`: why nothing that it says counts, if so.
    pub fn handle_reply(
        &mut self,
        round: RoundId,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        clock: ClockReading,
    ) {
        self.with_rounds(|hold, rounds| {
            let Some(round) = rounds.get_mut(round) else {
                return;
            };
            let extension = &mut round.extension;
            let was_open = extension.verdict().is_none();
            extension.handle_reply(node, outcome, discount, clock.now);
            if was_open {
                return hold.conclude(round, clock);
            }
            hold.tally.take_late(node, extension.vote(node).clone());
            if let Some(deadline) = extension.late_deadline() {
                hold.conclude_late(deadline, extension.t0(), clock);
            }
        });
    }

    /// `node` has answered a restore, or the call has failed.
    pub fn handle_restored(&mut self, node: usize, outcome: &Result<Reply, CallError>) {
        match outcome {
            // It may still be carried out.
            Err(error) if error.may_have_been_applied() => {}
            _ => self.tally.restore_answered(node),
        }
    }

    /// Time has passed: the hold has reached its deadline, a renewal is due, or nodes have not answered
    /// in time. The `cluster` is told which did not.
    pub fn handle_timeout(&mut self, clock: ClockReading, cluster: &mut Cluster) {
        self.with_rounds(|hold, rounds| {
            rounds.for_each(|round| {
                if round.extension.verdict().is_some() {
                    return;
                }
                round.extension.handle_timeout(clock.now);
                let votes = round.extension.votes().enumerate();
                for (node, _) in votes.filter(|(_, vote)| **vote == Vote::Silent) {
                    cluster.silent(node);
                }
                hold.conclude(round, clock);
            });
        });
        let is_due = self.renew_at.is_some_and(|at| at <= clock.now);
        if self.check(clock).is_ok() && is_due && !self.is_renewing() {
            self.renew_at = None;
            self.renewal_due = true;
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<HoldEvent> {
        if let Some((round, verdict)) = self.rounds.find_map(Round::take_verdict) {
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
        let policy = &self.policy;
        let next = self.rounds.find_map(|round| {
            let request = round.poll_transmit(policy).map(Some);
            request.or_else(|| round.wants_restore().then_some(None))
        });
        let next = next.map(|(_, request)| request);
        let next = next.and_then(|request| request.or_else(|| self.poll_restore(clock())));
        if next.is_none() {
            self.rounds.prune();
        }
        next
    }

    fn poll_restore(&mut self, clock: ClockReading) -> Option<Transmit> {
        self.with_rounds(|hold, rounds| {
            let next = rounds.find_map(|round| {
                let asks = round.poll_transmit(&hold.policy);
                asks.or_else(|| hold.begin_restore(round, clock))
            });
            next.map(|(_, transmit)| transmit)
        })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let is_held = self.ended.is_none();
        // If it has ended, a round matters only to a caller that waits for it.
        let open = self.rounds.iter().filter(|one| is_held || one.awaited);
        let next = open.filter_map(|one| one.extension.poll_timeout()).min();
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
        self.rounds.iter().any(Round::is_renewing)
    }

    /// Has `then` look at the rounds and change the rest of the hold, which must not begin a round.
    fn with_rounds<T>(&mut self, then: impl FnOnce(&mut Self, &mut Rounds) -> T) -> T {
        let mut rounds = std::mem::take(&mut self.rounds);
        let made = then(self, &mut rounds);
        self.rounds = rounds;
        made
    }

    /// Takes the verdict of a round, if there is one now. Applied only if the deadline has not passed:
    /// a caller that was told of the loss, or should have been, must not find the lock held again. If
    /// the deadline moved all the same, another holder may have come in between; and a release would
    /// come in time again, and cut the lock delay that protects others from just such a holder.
    fn conclude(&mut self, round: &mut Round, clock: ClockReading) {
        let Some(verdict) = round.extension.verdict() else {
            return;
        };
        let t0 = round.extension.t0();
        round.untold = true;
        self.tally.take(round.extension.votes());
        if self.check(clock).is_err() {
            return;
        }
        match verdict {
            ExtensionVerdict::Extended { deadline } => self.move_deadline(deadline),
            ExtensionVerdict::Lost => return self.end(Lost::Gone),
            // A failed extend never releases.
            ExtensionVerdict::Unsure => {}
        }
        if self.policy.renew {
            self.plan_renewal(verdict, t0, clock.now);
        }
    }

    fn plan_renewal(&mut self, verdict: ExtensionVerdict, t0: Timestamp, now: Timestamp) {
        self.renew_at = Some(if verdict == ExtensionVerdict::Unsure {
            self.failures = self.failures.saturating_add(1);
            now + self.policy.pause(self.failures, self.deadline.since(now))
        } else {
            self.failures = 0;
            self.policy.renewal_after(t0).max(now)
        });
    }

    /// A round that had been given up was confirmed late. On a busy machine every round may be: if
    /// they did not count, a lock that all nodes hold would be lost.
    fn conclude_late(&mut self, deadline: Timestamp, t0: Timestamp, clock: ClockReading) {
        if self.check(clock).is_err() {
            return;
        }
        self.move_deadline(deadline);
        if self.renew_at.is_some() {
            self.failures = 0;
            self.renew_at = Some(self.policy.renewal_after(t0).max(clock.now));
        }
    }

    /// Never back: an earlier, longer extension still stands on the nodes.
    fn move_deadline(&mut self, deadline: Timestamp) {
        let deadline = self.max_hold().map_or(deadline, |end| end.min(deadline));
        self.deadline = self.deadline.max(deadline);
    }

    /// When `max_hold` ends it.
    fn max_hold(&self) -> Option<Timestamp> {
        self.policy.max_hold.map(|span| self.since + span)
    }

    /// Puts the lock back on the next node that lost it, unless it may not be put back.
    fn begin_restore(&mut self, round: &mut Round, clock: ClockReading) -> Option<Transmit> {
        // Without a record on the node there is nothing that it can be put back into.
        let refused = self.check(clock).is_err() || self.of_receipt || !self.kind.has_record();
        while let Some(node) = round.extension.take_restore() {
            if !refused {
                self.tally.put_back_on(node);
                let (restore, deadline) = (HoldAction::Restore, self.deadline);
                return Some(round.transmit(node, restore, &self.policy, deadline));
            }
        }
        None
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
