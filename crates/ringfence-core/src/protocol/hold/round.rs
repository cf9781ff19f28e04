//! One round that extends a hold, and the requests that it sends.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Downgrade, Extend, Op, Restore};
use crate::protocol::{Extension, ExtensionVerdict, GrantId, Vote};
use crate::time::Timestamp;

use super::HoldPolicy;

/// Identifies a round of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RoundId(pub(super) u32);

/// The rounds that are not over: a node has not answered, or the caller has not read the verdict.
/// Mostly there is none, which needs no memory, or one, which needs one allocation. So this is a
/// list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Rounds(pub(super) Option<Box<Round>>);

/// One round that extends a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Round {
    pub(super) id: RoundId,
    pub(super) kind: RoundKind,
    pub(super) line: Line,
    pub(super) ttl: Duration,
    pub(super) extension: Extension,
    /// How many nodes have got a request, in node order.
    pub(super) asked: usize,
    /// A caller waits for the verdict: the round is kept until the caller has closed it.
    pub(super) awaited: bool,
    /// There is a verdict that [`poll_event`](super::Hold::poll_event) has not returned yet.
    pub(super) unreported: bool,
    /// The rounds that began later.
    next: Rounds,
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
pub(super) enum RoundKind {
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

impl Rounds {
    /// The rounds in the order in which they began.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Round> {
        std::iter::successors(self.0.as_deref(), |round| round.next.0.as_deref())
    }

    pub(super) fn get(&self, id: RoundId) -> Option<&Round> {
        self.iter().find(|round| round.id == id)
    }

    pub(super) fn get_mut(&mut self, id: RoundId) -> Option<&mut Round> {
        self.find_map(|round| (round.id == id).then_some(()))
            .map(|(round, ())| round)
    }

    /// The first round for which `select` returns a value, and the value.
    pub(super) fn find_map<T>(
        &mut self,
        mut select: impl FnMut(&mut Round) -> Option<T>,
    ) -> Option<(&mut Round, T)> {
        let mut rounds = self;
        while let Some(round) = &mut rounds.0 {
            if let Some(found) = select(round) {
                return Some((round, found));
            }
            rounds = &mut round.next;
        }
        None
    }

    pub(super) fn for_each(&mut self, mut visit: impl FnMut(&mut Round)) {
        self.find_map(|round| -> Option<()> {
            visit(round);
            None
        });
    }

    /// Begins a round. An id is used again only when no older round is left.
    pub(super) fn begin(
        &mut self,
        kind: RoundKind,
        line: Line,
        ttl: Duration,
        extension: Extension,
    ) -> RoundId {
        let id = RoundId(
            self.iter()
                .last()
                .map_or(0, |last| last.id.0.wrapping_add(1)),
        );
        self.push(Round {
            id,
            kind,
            line,
            ttl,
            extension,
            asked: 0,
            awaited: kind != RoundKind::Renew,
            unreported: false,
            next: Self::default(),
        });
        id
    }

    fn push(&mut self, round: Round) {
        match &mut self.0 {
            Some(first) => first.next.push(round),
            None => self.0 = Some(Box::new(round)),
        }
    }

    /// Removes the rounds that are over.
    pub(super) fn prune(&mut self) {
        if !self.iter().any(Round::is_over) {
            return;
        }
        let mut rounds = self;
        while let Some(mut round) = rounds.0.take() {
            if round.is_over() {
                rounds.0 = round.next.0.take();
            } else {
                rounds = &mut rounds.0.insert(round).next;
            }
        }
    }
}

impl Round {
    /// Whether this is a renewal without a verdict.
    pub(super) fn is_renewing(&self) -> bool {
        self.kind == RoundKind::Renew && self.extension.verdict().is_none()
    }

    /// Whether `node` was sent a request of this round and has not answered it, over whichever
    /// connection.
    pub(super) fn awaits(&self, node: usize) -> bool {
        let vote = self.extension.vote(node);
        node < self.asked && matches!(vote, Vote::Pending | Vote::TimedOut)
    }

    /// Whether the round is over: every node has answered, and every output has been taken.
    pub(super) fn is_over(&self) -> bool {
        !self.awaited && !self.unreported && self.extension.is_complete()
    }

    /// The request for the next node.
    pub(super) fn poll_transmit(&mut self, policy: &HoldPolicy) -> Option<Transmit> {
        if self.asked == self.extension.nodes() {
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

    pub(super) fn transmit(
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

    /// Whether a node did not answer in time. It may be that it was never asked, because the
    /// connections are stuck.
    pub(super) fn is_silent(&self) -> bool {
        let mut votes = self.extension.votes();
        votes.any(|vote| *vote == Vote::TimedOut)
    }

    /// Whether the lock has to be restored on a node.
    pub(super) fn wants_restore(&self) -> bool {
        self.extension.to_restore().next().is_some()
    }

    /// Takes the verdict, if it has not been taken yet.
    pub(super) fn take_verdict(&mut self) -> Option<ExtensionVerdict> {
        let verdict = self.extension.verdict().filter(|_| self.unreported);
        self.unreported = false;
        verdict
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
