//! The commands of a hold (resume, extend, renew, downgrade, release) and the rounds that they
//! begin: what each sends, and how the hold handles its replies and its timeout.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Downgrade, Extend, Kind, Op, Reply, Restore};
use crate::node::CallError;
use crate::protocol::{Cluster, Extension, ExtensionVerdict, GrantId, RoundMachine, Target, Vote};
use crate::time::Timestamp;

use super::{ClockReading, FinalRelease, Hold, HoldPolicy, Lost, Tally};

/// Identifies a round of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RoundId(u32);

/// One round that extends a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HoldRound {
    pub(super) id: RoundId,
    kind: RoundKind,
    line: Line,
    ttl: Duration,
    pub(super) extension: Extension,
    /// How many nodes have got a request, in node order.
    asked: usize,
    /// A caller waits for the verdict: the round is kept until the caller has closed it.
    pub(super) awaited: bool,
    /// There is a verdict that [`poll_event`](super::Hold::poll_event) has not returned yet.
    pub(super) unreported: bool,
}

/// Which connections carry the requests of a round.
///
/// A node executes what it gets over one connection in the order in which it was sent. Between two
/// connections there is no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// Those of the client.
    First,
    /// Others to the same nodes, for renewals while the first ones are stuck.
    Second,
}

/// The purpose of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RoundKind {
    /// The caller extends the lock.
    Extend,
    /// The hold renews the lock by itself.
    Renew,
    /// The first round of a shared hold that was exclusive before.
    Downgrade,
}

/// One request to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// The index of the node.
    pub node: usize,
    /// The action for the node.
    pub action: HoldAction,
    /// The connections to send it over.
    pub line: Line,
    /// The round of the request, or the round that found the lock missing.
    pub round: RoundId,
    /// When the round began, before its first send.
    pub t0: Timestamp,
    /// The lease for the node.
    pub lease: Duration,
    /// When the request becomes useless. It is not sent later.
    pub expires: Timestamp,
}

/// What a request during a hold does on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldAction {
    /// Extends the lease.
    Extend,
    /// Makes the lock shared.
    Downgrade,
    /// Restores the lock, which the node has lost.
    Restore,
}

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
            rounds: Vec::new(),
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
        let renewal = self.rounds.iter_mut().find(|round| round.is_renewing())?;
        renewal.awaited = true;
        Some(renewal.id)
    }

    /// The caller of `round` has read the verdict, or no longer waits for it.
    pub fn close_round(&mut self, round: RoundId) {
        if let Some(round) = self.rounds.iter_mut().find(|one| one.id == round) {
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
            rounds: Vec::new(),
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
        // An id is used again only when no older round is left.
        let last = self.rounds.last();
        let id = RoundId(last.map_or(0, |last| last.id.0.wrapping_add(1)));
        self.rounds.reserve_exact(1);
        self.rounds.push(HoldRound {
            id,
            kind,
            line,
            ttl,
            extension,
            asked: 0,
            awaited: kind != RoundKind::Renew,
            unreported: false,
        });
        id
    }

    /// Takes the outcome of the call to `node` in `round`. `discount`: why its answers do not
    /// count.
    pub fn handle_reply(
        &mut self,
        round: RoundId,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Vote>,
        clock: ClockReading,
    ) {
        let Some(at) = self.rounds.iter().position(|one| one.id == round) else {
            return;
        };
        if let Err(error) = &outcome
            && error.may_have_been_applied()
        {
            self.tally.extend_lost(node);
        }
        let extension = &mut self.rounds[at].extension;
        let was_open = extension.verdict().is_none();
        extension.handle_reply(node, outcome, discount, clock.now);
        if was_open {
            return self.conclude(at, clock);
        }
        let vote = extension.vote(node).clone();
        let (late, t0) = (extension.late_deadline(), extension.t0());
        self.tally.record_late_vote(node, vote);
        if let Some(deadline) = late {
            self.conclude_late(deadline, t0, clock);
        }
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
        for at in 0..self.rounds.len() {
            let extension = &mut self.rounds[at].extension;
            if extension.verdict().is_some() {
                continue;
            }
            extension.handle_timeout(clock.now);
            for node in extension.silent() {
                cluster.silent(node);
            }
            self.conclude(at, clock);
        }
        let is_due = self.renew_at.is_some_and(|at| at <= clock.now);
        if self.check(clock).is_ok() && is_due && !self.is_renewing() {
            self.renew_at = None;
            self.renewal_due = true;
        }
    }

    /// The next request to send. A restore is decided here, at the last moment: from then on a
    /// release assumes that it may arrive at the node. Only this decision needs the `clock`.
    /// Removes the rounds that are over.
    pub fn poll_transmit(&mut self, clock: impl FnOnce() -> ClockReading) -> Option<Transmit> {
        let (mut clock, mut may_restore) = (Some(clock), false);
        for at in 0..self.rounds.len() {
            if let Some(request) = self.rounds[at].poll_transmit(&self.policy) {
                return Some(request);
            }
            while let Some(node) = self.rounds[at].extension.take_restore() {
                if let Some(clock) = clock.take() {
                    may_restore = self.may_restore(clock());
                }
                if may_restore {
                    self.tally.restore_sent(node);
                    let (restore, deadline) = (HoldAction::Restore, self.deadline);
                    let round = &self.rounds[at];
                    return Some(round.transmit(node, restore, &self.policy, deadline));
                }
            }
        }
        self.rounds.retain(|round| !round.is_over());
        if self.rounds.is_empty() {
            // Frees the memory: there may be a hundred thousand holds.
            self.rounds = Vec::new();
        }
        None
    }

    /// Whether the lock is restored on a node that lost it. A plain lock has no record on the
    /// nodes, so it cannot be restored.
    fn may_restore(&mut self, clock: ClockReading) -> bool {
        let refused = self.check(clock).is_err() || self.of_receipt || !self.kind.has_record();
        !refused
    }

    /// Applies the verdict of the round `at` this index, if there is one now and the deadline has not passed. After
    /// the deadline the caller knows of the loss, or should, and must not find the lock held again:
    /// another client may have held it in between. Also, a release would then count as in time and
    /// cut the lock delay, which protects other clients from exactly such a holder.
    fn conclude(&mut self, at: usize, clock: ClockReading) {
        let round = &mut self.rounds[at];
        let Some(verdict) = round.extension.verdict() else {
            return;
        };
        let t0 = round.extension.t0();
        round.unreported = true;
        self.tally.record_round(round.extension.votes());
        let is_broken = |vote: &Vote| matches!(vote, Vote::Broken(_));
        let broken = round.extension.votes().any(is_broken);
        if self.check(clock).is_err() {
            return;
        }
        match verdict {
            ExtensionVerdict::Extended { deadline } => self.move_deadline(deadline),
            ExtensionVerdict::Lost => {
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
}

impl HoldRound {
    pub(super) fn is_renewal(&self) -> bool {
        self.kind == RoundKind::Renew
    }

    /// Whether this is a renewal without a verdict.
    pub(super) fn is_renewing(&self) -> bool {
        self.is_renewal() && self.extension.verdict().is_none()
    }

    /// Whether `node` was sent a request of this round and has not answered it, over whichever
    /// connection.
    fn awaits(&self, node: usize) -> bool {
        let vote = self.extension.vote(node);
        node < self.asked && matches!(vote, Vote::Pending | Vote::TimedOut)
    }

    /// Whether the round is over: every node has answered, and every output has been taken.
    fn is_over(&self) -> bool {
        !self.awaited && !self.unreported && self.extension.is_complete()
    }

    /// The request for the next node.
    fn poll_transmit(&mut self, policy: &HoldPolicy) -> Option<Transmit> {
        if self.asked == self.extension.votes().count() {
            return None;
        }
        let node = self.asked;
        self.asked += 1;
        let action = match self.kind {
            RoundKind::Extend | RoundKind::Renew => HoldAction::Extend,
            RoundKind::Downgrade => HoldAction::Downgrade,
        };
        let expires = self.extension.t0() + policy.call_timeout;
        Some(self.transmit(node, action, policy, expires))
    }

    fn transmit(
        &self,
        node: usize,
        action: HoldAction,
        policy: &HoldPolicy,
        expires: Timestamp,
    ) -> Transmit {
        Transmit {
            node,
            action,
            line: self.line,
            round: self.id,
            t0: self.extension.t0(),
            lease: policy.lease(self.ttl),
            expires,
        }
    }
}

impl Transmit {
    /// The operation, for the lock `id`.
    pub fn op(&self, id: &GrantId, label: &Arc<str>) -> Op {
        let (ballot, ttl_ms) = (id.ballot, self.lease.as_millis() as u64);
        match self.action {
            HoldAction::Extend => id.kind.extend(Extend {
                ballot,
                ttl_ms,
                delay_ms: id.receipt_delay_ms.into(),
            }),
            HoldAction::Downgrade => Op::Downgrade(Downgrade { ballot, ttl_ms }),
            HoldAction::Restore => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label: Arc::clone(label),
            }),
        }
    }
}
