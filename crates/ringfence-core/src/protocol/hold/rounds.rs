//! What a hold makes of the replies to its rounds, and of rounds that were not answered in time.

use crate::message::Reply;
use crate::node::CallError;
use crate::protocol::{Attempt, Cluster, Discount, ExtensionVerdict, Vote};
use crate::time::Timestamp;

use super::round::{Round, Rounds};
use super::{ClockReading, Hold, HoldAction, Lost, RoundId, Transmit};

impl Hold {
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

    /// The next request of the rounds. Those that are over are forgotten.
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

    /// When the next round is over at the latest.
    pub(super) fn rounds_timeout(&self, is_held: bool) -> Option<Timestamp> {
        // If it has ended, a round matters only to a caller that waits for it.
        let open = self.rounds.iter().filter(|one| is_held || one.awaited);
        open.filter_map(|one| one.extension.poll_timeout()).min()
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
}
