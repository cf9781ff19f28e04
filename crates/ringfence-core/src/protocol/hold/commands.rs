//! What its caller does with a hold: begin, extend, renew, downgrade, release.

use std::sync::Arc;
use std::time::Duration;

use crate::message::Kind;
use crate::protocol::Extension;
use crate::time::Timestamp;

use super::round::{Round, RoundKind, Rounds};
use super::{ClockReading, FinalRelease, Hold, HoldPolicy, Lost, RoundId, Tally};

impl Hold {
    /// A hold that was left behind, and is to be extended by its receipt. It does not renew itself, and
    /// never puts the lock back on a node that lacks it.
    pub fn resume(policy: Arc<HoldPolicy>, nodes: usize, kind: Kind, now: Timestamp) -> Self {
        // Not known until the nodes have answered; no round takes longer than this.
        let deadline = now + policy.ttl;
        Self {
            policy,
            since: now,
            deadline,
            keep_until: None,
            leased_until: deadline,
            renew_at: None,
            tally: Tally::unknown(nodes),
            rounds: Rounds::default(),
            failures: 0,
            ended: None,
            end_untold: false,
            renewal_due: false,
            of_receipt: true,
            kind,
        }
    }

    /// Begins one round of extending to `ttl`. The caller reads its verdict and closes it
    /// ([`close_round`](Self::close_round)).
    pub fn extend(&mut self, ttl: Duration, now: Timestamp) -> RoundId {
        self.begin_round(RoundKind::Extend, ttl, now)
    }

    /// Begins the renewal that was due, unless it is no longer wanted. Whether it began.
    pub fn renew(&mut self, clock: ClockReading) -> bool {
        let is_held = self.check(clock).is_ok();
        let wanted = is_held && !self.is_renewing() && self.renew_at.is_none();
        if wanted {
            self.begin_round(RoundKind::Renew, self.policy.ttl, clock.now);
        }
        wanted
    }

    /// Renews no more, for a caller that is about to release or downgrade. The renewal under way, which
    /// the caller reads and closes.
    pub fn stop_renewing(&mut self) -> Option<RoundId> {
        self.renew_at = None;
        let renewing = |round: &mut Round| round.is_renewing().then_some(());
        let (renewal, ()) = self.rounds.find_map(renewing)?;
        renewal.awaited = true;
        Some(renewal.id)
    }

    /// The caller of `round` has read what it wanted, or is gone.
    pub fn close_round(&mut self, round: RoundId) {
        if let Some(round) = self.rounds.get_mut(round) {
            round.awaited = false;
        }
    }

    /// Ends this hold and begins a shared one in its place, with the round that tells the nodes. From
    /// the first send on the lock is shared, whatever is answered: with the replies lost, readers may
    /// hold it already.
    pub fn downgrade(&mut self, clock: ClockReading) -> (Self, RoundId) {
        let _ = self.check(clock);
        let policy = Arc::clone(&self.policy);
        let mut shared = Self {
            // A slow round must not keep the renewal from its work.
            renew_at: policy.renew.then(|| clock.now + policy.call_timeout),
            policy,
            since: self.since,
            deadline: self.deadline,
            // Others share it from now on: there is nothing to keep from them.
            keep_until: None,
            leased_until: self.leased_until,
            tally: self.tally.clone(),
            rounds: Rounds::default(),
            failures: 0,
            ended: self.ended,
            end_untold: false,
            renewal_due: false,
            of_receipt: self.of_receipt,
            kind: Kind::Shared,
        };
        self.stop(clock);
        let round = shared.begin_round(RoundKind::Downgrade, shared.policy.ttl, clock.now);
        (shared, round)
    }

    /// The holder is done: ends the hold, and says what the release has to know. `None` if it is too
    /// late for a release: with a lock delay, a holder that comes after its deadline is one from whom
    /// the delay protects the others.
    pub fn release(&mut self, clock: ClockReading) -> Option<FinalRelease> {
        self.stop(clock);
        let late = self.why_over(clock).is_some();
        if !self.policy.lock_delay.is_zero() && late {
            return None;
        }
        // A lease that is on its way counts from when it arrives, which is what the TTL is for. One
        // that was extended further lasts longer.
        let left = self.leased_until.since(clock.now);
        Some(FinalRelease {
            targets: self.tally.targets(),
            lease_left: left.max(self.policy.lease(self.policy.ttl)),
            call_timeout: self.policy.call_timeout,
            keep_until: self.keep_until,
            keeps_on: !late,
        })
    }

    /// Ends the hold without a release.
    pub fn stop(&mut self, clock: ClockReading) {
        let _ = self.check(clock);
        self.end(Lost::Released);
    }

    fn begin_round(&mut self, kind: RoundKind, ttl: Duration, t0: Timestamp) -> RoundId {
        let policy = &self.policy;
        let (drift, call_timeout) = (policy.drift, policy.call_timeout);
        // The node may carry it out as late as its call expires.
        let leased_until = t0 + call_timeout + policy.lease(ttl);
        self.leased_until = self.leased_until.max(leased_until);
        let extension = Extension::new(self.tally.nodes(), t0, ttl, drift, call_timeout);
        self.rounds.begin(kind, ttl, extension)
    }
}
