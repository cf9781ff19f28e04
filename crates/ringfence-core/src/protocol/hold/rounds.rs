//! How a hold handles the replies and timeouts of its rounds.

use crate::message::Reply;
use crate::node::CallError;
use crate::protocol::{Cluster, Discount, ExtensionVerdict, Vote};
use crate::time::Timestamp;

use super::round::{Round, Rounds};
use super::{ClockReading, Hold, HoldAction, Lost, RoundId, Transmit};

impl Hold {
    /// Takes the outcome of the call to `node` in `round`. `discount`: why its answers do not
    /// count.
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
            if let Err(error) = &outcome
                && error.may_have_been_applied()
            {
                hold.tally.extend_lost(node);
            }
            let extension = &mut round.extension;
            let was_open = extension.verdict().is_none();
            extension.handle_reply(node, outcome, discount, clock.now);
            if was_open {
                return hold.conclude(round, clock);
            }
            hold.tally
                .record_late_vote(node, extension.vote(node).clone());
            if let Some(deadline) = extension.late_deadline() {
                hold.conclude_late(deadline, extension.t0(), clock);
            }
        });
    }

    /// The outcome of a restore on `node`.
    pub fn handle_restored(&mut self, node: usize, outcome: &Result<Reply, CallError>) {
        match outcome {
            // The node may still execute it.
            Err(error) if error.may_have_been_applied() => {}
            _ => self.tally.restore_answered(node),
        }
    }

    /// Time has passed: the deadline was reached, a renewal is due, or nodes have not answered in
    /// time. Reports the nodes that did not answer to the `cluster`.
    pub fn handle_timeout(&mut self, clock: ClockReading, cluster: &mut Cluster) {
        self.with_rounds(|hold, rounds| {
            rounds.for_each(|round| {
                if round.extension.verdict().is_some() {
                    return;
                }
                round.extension.handle_timeout(clock.now);
                let votes = round.extension.votes().enumerate();
                for (node, _) in votes.filter(|(_, vote)| **vote == Vote::TimedOut) {
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

    /// The next request of the rounds. Removes the rounds that are over.
    pub(super) fn poll_rounds(&mut self, clock: impl FnOnce() -> ClockReading) -> Option<Transmit> {
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

    /// The earliest timeout of the rounds.
    pub(super) fn rounds_timeout(&self, is_held: bool) -> Option<Timestamp> {
        // After the end of the hold, a round matters only to a caller that waits for its verdict.
        let open = self.rounds.iter().filter(|one| is_held || one.awaited);
        open.filter_map(|one| one.extension.poll_timeout()).min()
    }

    /// Calls `then` with the rounds and the rest of the hold. `then` must not begin a round.
    fn with_rounds<T>(&mut self, then: impl FnOnce(&mut Self, &mut Rounds) -> T) -> T {
        let mut rounds = std::mem::take(&mut self.rounds);
        let made = then(self, &mut rounds);
        self.rounds = rounds;
        made
    }

    /// Applies the verdict of a round, if there is one now and the deadline has not passed. After
    /// the deadline the caller knows of the loss, or should, and must not find the lock held again:
    /// another client may have held it in between. Also, a release would then count as in time and
    /// cut the lock delay, which protects other clients from exactly such a holder.
    fn conclude(&mut self, round: &mut Round, clock: ClockReading) {
        let Some(verdict) = round.extension.verdict() else {
            return;
        };
        let t0 = round.extension.t0();
        round.unreported = true;
        self.tally.record_round(round.extension.votes());
        if self.check(clock).is_err() {
            return;
        }
        match verdict {
            ExtensionVerdict::Extended { deadline } => self.move_deadline(deadline),
            ExtensionVerdict::Lost => {
                let is_broken = |vote: &Vote| matches!(vote, Vote::Broken(_));
                let broken = round.extension.votes().any(is_broken);
                return self.end(if broken { Lost::Broken } else { Lost::Gone });
            }
            // A failed extension never releases the lock.
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

    /// A majority confirmed a round after it had failed. On a busy machine this may happen to every
    /// round. If these rounds did not count, a lock would be lost although all nodes hold it.
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

    /// Moves the deadline, never back: an earlier, longer extension is still valid on the nodes.
    fn move_deadline(&mut self, deadline: Timestamp) {
        let deadline = self.max_hold().map_or(deadline, |end| end.min(deadline));
        self.deadline = self.deadline.max(deadline);
    }

    /// Restores the lock on the next node that lost it, if that is allowed.
    fn begin_restore(&mut self, round: &mut Round, clock: ClockReading) -> Option<Transmit> {
        // A plain lock has no record on the nodes, so it cannot be restored.
        let refused = self.check(clock).is_err() || self.of_receipt || !self.kind.has_record();
        while let Some(node) = round.extension.take_restore() {
            if !refused {
                self.tally.restore_sent(node);
                let (restore, deadline) = (HoldAction::Restore, self.deadline);
                return Some(round.transmit(node, restore, &self.policy, deadline));
            }
        }
        None
    }
}
