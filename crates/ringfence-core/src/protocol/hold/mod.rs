//! The life of a hold, from the grant to the release: renewal, failed and late rounds, restore,
//! downgrade, `max_hold`, the deadline and loss.
//!
//! After every command and every `handle_*`, poll until nothing is left: [`Hold::poll_transmit`]
//! returns what to send, then [`Hold::poll_event`] what happened, and last [`Hold::poll_timeout`]
//! when to call [`Hold::handle_timeout`]. This machine does not know the names, the token and the
//! ballot. The release is a machine of its own ([`PendingRelease`](super::PendingRelease));
//! [`Hold::release`] returns its inputs.

mod rounds;

use std::sync::Arc;
use std::time::Duration;

use crate::message::Kind;
use crate::time::Timestamp;

use super::{Attempt, Drift, ExtensionVerdict, RoundMachine, Target, Vote};

use rounds::HoldRound;
pub use rounds::{HoldAction, Line, RoundId, Transmit};

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

/// Why a lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The deadline passed before the lock could be extended.
    #[error("the lock expired: it was not extended in time")]
    Expired,
    /// So many nodes lost the lock that no majority can hold it.
    #[error("the lock is gone: a majority of the nodes cannot hold it any more")]
    Gone,
    /// An operator broke the lock. The votes name the operator and the reason.
    #[error("the lock was broken by an operator")]
    Broken,
    /// The lock was held for the whole `max_hold`.
    #[error("the lock was held for as long as max_hold allows")]
    MaxHold,
    /// The lock was released.
    #[error("the lock was released")]
    Released,
    /// The clocks of a majority of the nodes jumped forward alike. Either this machine was paused
    /// and its clock froze, as in a paused virtual machine, or the nodes' clocks were set forward.
    /// In both cases the lock may have expired meanwhile.
    #[error(
        "this machine was paused, or the nodes' clocks were set forward, and the lock may have \
         expired meanwhile"
    )]
    ClockFroze,
    /// This is a forked child, and the lock belongs to its parent.
    #[error("the lock belongs to the process that took it, and this is a forked child of it")]
    ForkedProcess,
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
    /// The rounds that are not over, in the order in which they began. Mostly there is none.
    rounds: Vec<HoldRound>,
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
            rounds: Vec::new(),
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
        self.round(round)?.extension.verdict()
    }

    /// Every node's vote in `round`, before its caller closes it.
    pub fn votes_in(&self, round: RoundId) -> Vec<Vote> {
        let votes = self.round(round).map(|round| round.extension.votes());
        votes.into_iter().flatten().cloned().collect()
    }

    /// The timeout of `round`, while it has no verdict.
    pub fn timeout_of(&self, round: RoundId) -> Option<Timestamp> {
        self.round(round)?.extension.poll_timeout()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<HoldEvent> {
        if let Some(round) = self.rounds.iter_mut().find(|round| round.unreported) {
            round.unreported = false;
            return Some(HoldEvent::Concluded {
                round: round.id,
                verdict: round.extension.verdict()?,
                renewal: round.is_renewal(),
                failures: self.failures,
                awaited: round.awaited,
                silent: !round.extension.silent().is_empty(),
            });
        }
        if std::mem::take(&mut self.end_unreported) {
            return self.ended.map(HoldEvent::Ended);
        }
        std::mem::take(&mut self.renewal_due).then_some(HoldEvent::RenewalDue)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let is_held = self.ended.is_none();
        let watched = is_held && !self.of_receipt;
        let renew_at = self.renew_at.filter(|_| watched && !self.is_renewing());
        let deadline = watched.then_some(self.deadline);
        // After the end of the hold, a round matters only to a caller that waits for its verdict.
        let open = self.rounds.iter().filter(|one| is_held || one.awaited);
        let timeouts = open.filter_map(|one| one.extension.poll_timeout());
        timeouts.chain(renew_at).chain(deadline).min()
    }

    fn is_renewing(&self) -> bool {
        self.rounds.iter().any(HoldRound::is_renewing)
    }

    fn round(&self, id: RoundId) -> Option<&HoldRound> {
        self.rounds.iter().find(|round| round.id == id)
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

/// What the nodes have of a hold, according to their answers. There may be a hundred thousand of
/// these, and most are unanimous, which needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Tally {
    /// All nodes have the lock and confirmed it in the latest round.
    Unanimous {
        nodes: usize,
    },
    PerNode(Box<PerNode>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PerNode {
    /// In node order.
    nodes: Box<[NodeTally]>,
    /// Some nodes have not answered the attempt that won the lock, and no round has begun since.
    acquiring: bool,
}

/// What one node has of the hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeTally {
    /// What a release must handle on the node, without restores in progress.
    target: Target,
    /// The node's vote in the latest round.
    vote: Vote,
    /// How many restores the node may still execute: those without an answer.
    restores: u32,
    /// Something may still arrive at the node: an extend whose reply was lost, or a copy of a
    /// restore. The network may deliver a restore twice, and the second copy after the release.
    may_arrive: bool,
}

impl Tally {
    /// According to the answers to the attempt that won the lock.
    fn of(won: &Attempt) -> Self {
        let nodes = won.votes().count();
        let mut remains = won.remains_of_won();
        if remains.all(|(target, vote)| target == Target::Holds && *vote == Vote::Granted) {
            return Self::Unanimous { nodes };
        }
        let states = won.remains_of_won().map(|(target, vote)| NodeTally {
            target,
            vote: vote.clone(),
            restores: 0,
            may_arrive: false,
        });
        Self::PerNode(Box::new(PerNode {
            nodes: states.collect(),
            acquiring: !won.is_complete(),
        }))
    }

    /// No node has answered yet.
    fn unknown(nodes: usize) -> Self {
        let state = NodeTally {
            target: Target::Unknown,
            vote: Vote::Pending,
            restores: 0,
            may_arrive: false,
        };
        Self::PerNode(Box::new(PerNode {
            nodes: vec![state; nodes].into(),
            acquiring: false,
        }))
    }

    /// The number of nodes.
    fn nodes(&self) -> usize {
        match self {
            Self::Unanimous { nodes } => *nodes,
            Self::PerNode(per_node) => per_node.nodes.len(),
        }
    }

    /// A node answered `won` after the verdict. Ignored once a round of extending has begun.
    fn record_acquire(&mut self, won: &Attempt) {
        let Self::PerNode(per_node) = self else {
            return;
        };
        if !per_node.acquiring {
            return;
        }
        for (state, (target, vote)) in per_node.nodes.iter_mut().zip(won.remains_of_won()) {
            state.target = target;
            state.vote.clone_from(vote);
        }
        per_node.acquiring = !won.is_complete();
        self.settle();
    }

    /// What a release must handle on each node, apart from extends that are under way.
    fn targets(&self) -> Vec<Target> {
        match self {
            Self::Unanimous { nodes } => vec![Target::Holds; *nodes],
            Self::PerNode(per_node) => per_node.nodes.iter().map(NodeTally::remains).collect(),
        }
    }

    /// Whether something may still arrive at a node, apart from rounds in progress.
    fn may_arrive(&self) -> bool {
        matches!(self, Self::PerNode(per_node) if per_node.nodes.iter().any(|n| n.may_arrive))
    }

    /// Every node's vote in the latest round, in node order.
    fn votes(&self) -> Vec<Vote> {
        match self {
            Self::Unanimous { nodes } => vec![Vote::Granted; *nodes],
            Self::PerNode(per_node) => per_node
                .nodes
                .iter()
                .map(|state| state.vote.clone())
                .collect(),
        }
    }

    /// Takes the votes of a round of extending.
    fn record_round<'a>(&mut self, votes: impl Iterator<Item = &'a Vote> + Clone) {
        let granted = votes.clone().all(|vote| *vote == Vote::Granted);
        if granted && matches!(self, Self::Unanimous { .. }) {
            return;
        }
        for (state, vote) in self.per_node_mut().iter_mut().zip(votes) {
            state.target = match (vote, state.target) {
                // An acquire that is still under way does no harm: the node has its fence.
                (Vote::Granted, _) => Target::Holds,
                (vote, Target::Holds) if vote.proves_loss() => Target::Nothing,
                (_, target) => target,
            };
            state.vote.clone_from(vote);
        }
        self.settle();
    }

    /// The state of each node, as separate values.
    fn per_node_mut(&mut self) -> &mut [NodeTally] {
        if let Self::Unanimous { nodes } = self {
            let all = NodeTally {
                target: Target::Holds,
                vote: Vote::Granted,
                restores: 0,
                may_arrive: false,
            };
            let nodes = vec![all; *nodes].into();
            let acquiring = false;
            *self = Self::PerNode(Box::new(PerNode { nodes, acquiring }));
        }
        match self {
            Self::PerNode(per_node) => {
                per_node.acquiring = false;
                &mut per_node.nodes
            }
            // Not reachable: the value was converted above.
            Self::Unanimous { .. } => &mut [],
        }
    }

    /// Takes an answer that came after the verdict of its round. It replaces only a missing vote.
    fn record_late_vote(&mut self, node: usize, vote: Vote) {
        let Self::PerNode(per_node) = self else {
            return;
        };
        let state = &mut per_node.nodes[node];
        if !matches!(state.vote, Vote::Pending | Vote::TimedOut) {
            return;
        }
        state.vote = vote;
        self.settle();
    }

    /// The reply to an extend on `node` was lost.
    fn extend_lost(&mut self, node: usize) {
        self.per_node_mut()[node].may_arrive = true;
    }

    /// A restore is being sent to `node`. That says nothing about an acquire that may still arrive
    /// there: if its fate was unknown, it stays unknown.
    fn restore_sent(&mut self, node: usize) {
        let state = &mut self.per_node_mut()[node];
        state.restores += 1;
        state.may_arrive = true;
        if state.target == Target::Nothing {
            state.target = Target::Holds;
        }
    }

    /// A restore to `node` was answered.
    fn restore_answered(&mut self, node: usize) {
        let Self::PerNode(per_node) = self else {
            return;
        };
        let restores = &mut per_node.nodes[node].restores;
        *restores = restores.saturating_sub(1);
        self.settle();
    }

    /// Frees the memory once all nodes have the lock.
    fn settle(&mut self) {
        if let Self::PerNode(per_node) = self
            && per_node.nodes.iter().all(NodeTally::is_confirmed)
        {
            *self = Self::Unanimous {
                nodes: per_node.nodes.len(),
            };
        }
    }
}

impl NodeTally {
    /// What a release must handle on this node.
    fn remains(&self) -> Target {
        match self.restores > 0 {
            true => Target::Unknown,
            false => self.target,
        }
    }

    /// Whether the node has our token and confirmed it.
    fn is_confirmed(&self) -> bool {
        let answered = self.restores == 0 && !self.may_arrive;
        self.target == Target::Holds && self.vote == Vote::Granted && answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Target::{Holds, Nothing, Unknown};
    use Vote::{Gone, Granted, Pending};

    /// A tally with these `targets`, after a round with these `votes`.
    fn per_node(targets: &[Target], votes: &[Vote]) -> Tally {
        let mut tally = Tally::unknown(targets.len());
        for (state, target) in tally.per_node_mut().iter_mut().zip(targets) {
            state.target = *target;
        }
        tally.record_round(votes.iter());
        tally
    }

    #[test]
    fn a_restored_lock_is_released_in_the_end() {
        let mut tally = per_node(&[Holds, Nothing, Unknown], &[Granted, Gone, Pending]);
        assert_eq!(tally.targets(), [Holds, Nothing, Unknown]);
        tally.restore_sent(1);
        assert_eq!(tally.targets(), [Holds, Unknown, Unknown]);
        tally.restore_answered(1);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.record_late_vote(2, Granted);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
    }

    /// The acquire may still arrive, and a restore says nothing about that.
    #[test]
    fn a_restore_does_not_make_an_unknown_acquire_known() {
        let mut tally = per_node(&[Holds, Holds, Unknown], &[Granted, Granted, Gone]);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.restore_sent(2);
        tally.restore_answered(2);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.record_round([Granted, Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3], "all nodes confirmed it");
    }

    #[test]
    fn a_restore_that_was_not_answered_may_arrive_at_any_time() {
        let mut tally = Tally::unknown(2);
        tally.record_round([Granted, Gone].iter());
        tally.restore_sent(1);
        tally.restore_sent(1);
        tally.restore_answered(1);
        tally.record_round([Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds, Unknown]);
        tally.restore_answered(1);
        assert_eq!(tally.targets(), [Holds; 2]);
        // The same, if all nodes were believed to have the lock.
        tally.restore_sent(0);
        assert_eq!(tally.targets(), [Unknown, Holds]);
        tally.restore_answered(0);
        assert_eq!(tally.targets(), [Holds; 2]);
        // A second copy of a restore may still arrive.
        assert!(tally.may_arrive());
    }

    #[test]
    fn a_unanimous_tally_needs_no_allocation() {
        let mut tally = Tally::unknown(3);
        tally.record_round([Granted, Granted, Granted].iter());
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
        tally.record_round([Granted, Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3]);
        assert_eq!(tally.votes(), [Granted, Granted, Granted]);
        tally.record_round([Granted, Pending, Gone].iter());
        assert_eq!(tally.targets(), [Holds, Holds, Nothing]);
        assert_eq!(tally.votes(), [Granted, Pending, Gone]);
        tally.record_late_vote(1, Granted);
        assert_eq!(tally.votes(), [Granted, Granted, Gone]);
        tally.record_round([Granted, Pending, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3]);
        tally.record_late_vote(1, Granted);
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
    }

    #[test]
    fn a_late_answer_changes_neither_an_earlier_vote_nor_a_release_target() {
        let mut tally = Tally::unknown(2);
        tally.record_round([Granted, Pending].iter());
        tally.record_late_vote(0, Gone);
        tally.record_late_vote(1, Granted);
        assert_eq!(tally.votes(), [Granted, Granted]);
        assert_eq!(tally.targets(), [Holds, Unknown]);
    }
}
