//! The commands of a hold: resume, extend, renew, downgrade, release.

use std::sync::Arc;
use std::time::Duration;

use crate::message::Kind;
use crate::protocol::{Extension, Target};
use crate::time::Timestamp;

use super::round::{Round, RoundKind, Rounds};
use super::{ClockReading, FinalRelease, Hold, HoldPolicy, Line, Lost, RoundId, Tally};

impl Hold {
    /// A hold that another process left behind, to be extended with its receipt. It does not renew
    /// itself. It never restores the lock: this process does not know whether the lock is still
    /// valid.
    pub fn resume(policy: Arc<HoldPolicy>, nodes: usize, kind: Kind, now: Timestamp) -> Self {
        // Unknown until the nodes answer. No round takes longer than this.
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
            end_unreported: false,
            renewal_due: false,
            of_receipt: true,
            kind,
        }
    }

    /// Begins one round that extends the lock to `ttl`. The caller reads its verdict and closes it
    /// ([`close_round`](Self::close_round)).
    pub fn extend(&mut self, ttl: Duration, now: Timestamp) -> RoundId {
        self.begin_round(RoundKind::Extend, Line::First, ttl, now)
    }

    /// Begins the renewal that was due over these connections, unless it is no longer needed.
    /// Returns whether it began.
    pub fn renew(&mut self, clock: ClockReading, line: Line) -> bool {
        let is_held = self.check(clock).is_ok();
        let wanted = is_held && !self.is_renewing() && self.renew_at.is_none();
        if wanted {
            self.begin_round(RoundKind::Renew, line, self.policy.ttl, clock.now);
        }
        wanted
    }

    /// The connections for the next renewal, if both lines can be used. After a failure the lines take
    /// turns: one of them may be stuck.
    pub fn next_line(&self) -> Line {
        match self.failures % 2 {
            0 => Line::First,
            _ => Line::Second,
        }
    }

    /// Stops renewing, before a release or downgrade. Returns the renewal in progress, which the
    /// caller then reads and closes.
    pub fn stop_renewing(&mut self) -> Option<RoundId> {
        self.renew_at = None;
        let renewing = |round: &mut Round| round.is_renewing().then_some(());
        let (renewal, ()) = self.rounds.find_map(renewing)?;
        renewal.awaited = true;
        Some(renewal.id)
    }

    /// The caller of `round` has read the verdict, or no longer waits for it.
    pub fn close_round(&mut self, round: RoundId) {
        if let Some(round) = self.rounds.get_mut(round) {
            round.awaited = false;
        }
    }

    /// Ends this hold and begins a shared one, with the round that downgrades the lock on the
    /// nodes. The lock counts as shared from the first send on, whatever the nodes answer: if the
    /// replies are lost after a majority executed the downgrade, readers may hold the lock already.
    pub fn downgrade(&mut self, clock: ClockReading) -> (Self, RoundId) {
        let _ = self.check(clock);
        let policy = Arc::clone(&self.policy);
        let mut shared = Self {
            // A slow round must not delay the renewal.
            renew_at: policy.renew.then(|| clock.now + policy.call_timeout),
            policy,
            since: self.since,
            deadline: self.deadline,
            // Readers may hold it from now on, so it is not kept from others any more.
            keep_until: None,
            leased_until: self.leased_until,
            tally: self.tally.clone(),
            rounds: Rounds::default(),
            failures: 0,
            ended: self.ended,
            end_unreported: false,
            renewal_due: false,
            of_receipt: self.of_receipt,
            kind: Kind::Shared,
        };
        self.stop(clock);
        let (kind, ttl) = (RoundKind::Downgrade, shared.policy.ttl);
        let round = shared.begin_round(kind, Line::First, ttl, clock.now);
        (shared, round)
    }

    /// The holder is done: ends the hold and returns the inputs of the final release. `None` if
    /// there must be no release: the lock delay protects other clients from a holder that continues
    /// after its deadline, and a late release must not cut that delay.
    pub fn release(&mut self, clock: ClockReading) -> Option<FinalRelease> {
        self.stop(clock);
        let late = self.why_over(clock).is_some();
        if !self.policy.lock_delay.is_zero() && late {
            return None;
        }
        // A lease that is still on its way to a node starts when it arrives, so the whole TTL
        // counts. An earlier, longer extension may last longer.
        let left = self.leased_until.since(clock.now);
        Some(FinalRelease {
            targets: self.release_targets(),
            lease_left: left.max(self.policy.lease(self.policy.ttl)),
            call_timeout: self.policy.call_timeout,
            keep_until: self.keep_until,
            keeps_on: !late,
        })
    }

    /// What the final release must handle on each node. Where a request of this hold was not
    /// answered, the node may still execute it, and the release must close the ballot. That holds for
    /// the requests of both lines: the release goes over one connection, and what is under way on the
    /// other one may arrive after it. For shared
    /// holds that is so only for an acquire or a restore: a closed ballot would keep other readers
    /// with lower ballots from being restored.
    fn release_targets(&self) -> Vec<Target> {
        let mut targets = self.tally.targets();
        if self.kind == Kind::Shared {
            return targets;
        }
        // An address may have led to another server when the restore was sent. So a restore to one
        // node closes the ballot on all of them.
        let may_arrive = self.tally.may_arrive() || self.of_receipt;
        for (node, target) in targets.iter_mut().enumerate() {
            let extending = self.rounds.iter().any(|round| round.awaits(node));
            if extending || may_arrive {
                *target = Target::Unknown;
            }
        }
        targets
    }

    /// Ends the hold without a release.
    pub fn stop(&mut self, clock: ClockReading) {
        let _ = self.check(clock);
        self.end(Lost::Released);
    }

    fn begin_round(
        &mut self,
        kind: RoundKind,
        line: Line,
        ttl: Duration,
        t0: Timestamp,
    ) -> RoundId {
        let policy = &self.policy;
        let (drift, call_timeout) = (policy.drift, policy.call_timeout);
        // The node may execute the request until its call expires.
        let leased_until = t0 + call_timeout + policy.lease(ttl);
        self.leased_until = self.leased_until.max(leased_until);
        let extension = Extension::new(self.tally.nodes(), t0, ttl, drift, call_timeout);
        self.rounds.begin(kind, line, ttl, extension)
    }
}
