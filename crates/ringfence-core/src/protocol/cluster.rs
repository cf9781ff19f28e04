//! What this client knows about its nodes: the offsets of their clocks, which nodes answer, and
//! which may have lost their data. It learns from every reply. All rounds of one client share it.
//!
//! Both lines of renewal ([`Line`]) share it, too. A freeze of our own clock, a clock that jumped and
//! a node that lost its data are noticed by comparing with what was seen before, and a second line
//! that began without that would notice none of them. If the two lines lead to different servers, each
//! of their answers looks like another incarnation of the node, which costs votes and never grants one.
//! Only the confirmation by the Sentinels is kept for each line: it is about one connection's server.
//!
//! A failover behind a node: which votes of a master count while another one may already have taken
//! its place, and how a holder is carried through a promotion. The rules, with X =
//! [`Group::stale_master`](crate::group::Group) and D = `reply_within`:
//!
//! - A node with Sentinels counts only if a majority of them confirmed it at most X before the round
//!   began, under the configuration epoch under which it answered.
//! - A birth of the only node starts the quarantine, if a failover may replace it. So no lease may
//!   be longer than the quarantine less X: a former master may grant or extend until X after the
//!   promotion.
//! - A holder of this process keeps its lock in the quarantine: its extend counts there, if X + D of
//!   its validity is left, or the birth is X + D old. Until X + D after the promotion the former
//!   master may grant to a client that has not heard of it. In the first case the holder's key is
//!   still there then; in the second case that time is over.

mod clocks;

use std::time::Duration;

use crate::group::Group;
use crate::message::{Answer, Ballot, Reply, Standing};
use crate::node::{CallError, Facts};
use crate::time::Timestamp;

use super::round::is_same_server;
use super::{Drift, Line, Vote, quorum};

pub use clocks::{Choice, ClockEvent};
use clocks::{Clocks, Reading};

/// What this client knows about its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    group: Group,
    drift: Drift,
    nodes: Vec<NodeView>,
    clocks: Clocks,
    /// The highest ballot that this client ever proposed, for any name.
    proposed: Ballot,
    /// Two nodes that turned out to be one server, the earlier one first. Kept until the client
    /// takes it to report it.
    duplicates_found: Option<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct NodeView {
    /// The node's clock minus ours.
    offset_us: Option<i64>,
    /// Whether the last call to the node was answered, even late.
    answers: bool,
    /// Whether the last call to the node timed out or failed. This is not the opposite of
    /// `answers`: both are false for a node that was never called.
    silent: bool,
    /// Whether the node may not vote for a while after it lost its data.
    quarantines: bool,
    standing: Option<Standing>,
    /// The server that answered the last call; zero if there was no reply.
    last_server: u64,
    /// When this client noticed a new birth of the node.
    birth_seen: Option<Timestamp>,
    /// When this client first noticed the server that the node is now.
    moved: Option<Timestamp>,
    /// The least that the node's clock minus ours can be, by the last reply that showed its clock.
    offset_low_us: Option<i64>,
    /// Whether the node counts only while its Sentinels confirm it.
    needs_confirmation: bool,
    /// The last confirmation of its Sentinels for the server of each line. The two lines have
    /// connections of their own, which may lead to different servers for a while.
    confirmations: [Option<Confirmation>; 2],
}

/// A majority of the Sentinels named a node's present server as the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Confirmation {
    /// The configuration epoch in their answers.
    pub epoch: u64,
    /// When the first of the questions was sent.
    pub asked_at: Timestamp,
}

/// The limits of an attempt on a node with a failover behind it. After them a former master must
/// not grant, and its grant must not count: the lease of a holder that a new master has carried on
/// may have ended there.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplyBy {
    /// The latest time at which a reply is read.
    pub(super) read_by: Timestamp,
    /// The latest time at which the only node of the group executes the request, on its clock.
    pub(super) not_after_us: Option<u64>,
}

impl Cluster {
    /// The nodes of `group`. `quarantines[i]`: whether node `i` may have a quarantine after it lost
    /// its data.
    ///
    /// A single node has one only if a failover may replace it (see
    /// [`Failover`](crate::group::Failover)): no other node could vouch for what it lost.
    pub fn new(group: &Group, drift: Drift, quarantines: &[bool]) -> Self {
        Self {
            group: *group,
            drift,
            nodes: quarantines
                .iter()
                .map(|&quarantines| NodeView {
                    quarantines,
                    ..NodeView::default()
                })
                .collect(),
            clocks: Clocks::new(quarantines.len(), drift),
            proposed: Ballot::default(),
            duplicates_found: None,
        }
    }

    /// The leases of `node` run on another clock than the one in its replies, so a jump of that
    /// clock does not shorten them.
    pub fn leases_use_other_clock(&mut self, node: usize) {
        self.clocks.exempt(node);
    }

    /// Adopts the group values.
    pub fn adopt(&mut self, group: &Group) {
        self.group = *group;
    }

    /// The values of the group.
    #[inline]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// `Q` as it is used: plus the drift and one second, so that a fast clock does not shorten it.
    pub fn quarantine(&self) -> Duration {
        let quarantine = self.group.quarantine;
        quarantine + self.drift.fraction_of(quarantine) + Duration::from_secs(1)
    }

    /// Learns from a handshake. Returns what it proves about clocks.
    pub fn observe_facts(&mut self, node: usize, facts: &Facts) -> Option<ClockEvent> {
        if let Some(standing) = facts.standing {
            self.observe_standing(node, standing, facts.received);
        }
        self.observe_clock(node, facts.clock_us, facts.sent, facts.received)
    }

    /// Learns from the outcome of a call that was `sent` and ended at `now`. Returns what it proves
    /// about clocks.
    pub fn observe(
        &mut self,
        node: usize,
        outcome: &Result<Reply, CallError>,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<ClockEvent> {
        match outcome {
            Ok(reply) => {
                self.observe_standing(node, reply.standing, now);
                if let Some(stamp) = reply.stamp {
                    return self.observe_clock(node, stamp.clock_us, sent, now);
                }
                self.nodes[node].answered();
            }
            Err(CallError::Refused(_)) => {
                self.nodes[node].answered();
                self.nodes[node].last_server = 0;
            }
            Err(CallError::NotSent(_) | CallError::Unknown(_)) => self.silent(node),
        }
        None
    }

    /// Why an answer of `node` under `standing` to a request that was `sent` does not count; `None`
    /// if it counts.
    pub fn discount(
        &self,
        node: usize,
        standing: Standing,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Vote> {
        self.discount_on(Line::First, node, standing, sent, now)
    }

    /// The same, for an answer over the connections of `line`.
    fn discount_on(
        &self,
        line: Line,
        node: usize,
        standing: Standing,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Vote> {
        if self.froze_since(sent) {
            return Some(Vote::Outdated);
        }
        if let Some(of) = self.duplicate_of(node, standing.server) {
            return Some(Vote::Duplicate { of });
        }
        if !self.is_confirmed(line, node, standing, sent) {
            return Some(Vote::Unconfirmed);
        }
        let quarantine = self.quarantine_left(node, standing, now);
        match self.jump_left(node, now) {
            Some((left, by_us)) if quarantine.is_none_or(|quarantine| quarantine < left) => {
                Some(Vote::ClockJumped { by_us, left })
            }
            _ => match quarantine {
                Some(left) => Some(Vote::Quarantined { left }),
                None => {
                    let moved = self.moved_since(node, standing, sent);
                    moved.then_some(Vote::Moved)
                }
            },
        }
    }

    /// The earlier node that is the same `server` as `node`, if there is one.
    ///
    /// An earlier node whose last call brought no reply does not take the vote of the later one. If
    /// it answers after all, the round that asked both counts one of them.
    pub fn duplicate_of(&self, node: usize, server: u64) -> Option<usize> {
        let mut earlier = self.nodes[..node].iter();
        earlier.position(|view| is_same_server(view.last_server, server))
    }

    /// Takes the two nodes that were found to be one server: the earlier one and the later one.
    #[inline]
    pub fn take_duplicates(&mut self) -> Option<(usize, usize)> {
        self.duplicates_found.take()
    }

    /// Whether `node` became another server after `then`, and that server may also be the one
    /// behind another node. A durable server keeps its locks and its incarnation across a restart,
    /// but gets another run id. If two nodes lead to it, one may have answered before the restart
    /// and the other after it, and the server would vote twice.
    fn moved_since(&self, node: usize, standing: Standing, then: Timestamp) -> bool {
        let moved = self.nodes[node].moved.is_some_and(|at| at > then);
        // Nodes with the same server number are counted once anyway.
        let is_other_run = |known: Standing| {
            let (known_as, incarnation) = (known.server, known.incarnation);
            known_as != 0 && known_as != standing.server && incarnation == standing.incarnation
        };
        let others = self.nodes.iter().enumerate().filter(|(n, _)| *n != node);
        let mut known = others.filter_map(|(_, view)| view.standing);
        moved && known.any(is_other_run)
    }

    /// How much longer `node` may not vote because its clock jumped, and the size of the jump in
    /// microseconds, at least.
    pub fn jump_left(&self, node: usize, now: Timestamp) -> Option<(Duration, i64)> {
        let jumped = self.clocks.jumped(node, self.quarantine(), now);
        // The clock of a single node cannot be told from ours.
        jumped.filter(|_| self.nodes[node].quarantines && self.nodes.len() > 1)
    }

    /// How many jumps of `node`'s clock were proved.
    pub fn jumps(&self, node: usize) -> u64 {
        self.clocks.jumps(node)
    }

    /// Whether a freeze of our own clock was found at `then` or later.
    pub fn froze_since(&self, then: Timestamp) -> bool {
        self.clocks.froze_at().is_some_and(|found| found >= then)
    }

    /// The last call to `node` was not answered in time. Until the node answers again, even late, a
    /// lost verdict does not wait for it.
    pub fn silent(&mut self, node: usize) {
        self.nodes[node].answers = false;
        self.nodes[node].silent = true;
        self.nodes[node].last_server = 0;
    }

    /// Whether the last call to `node` was not answered in time. False for a node that was never
    /// called: the first attempt needs its clock for a good ballot, so it waits for it.
    #[inline]
    pub fn is_silent(&self, node: usize) -> bool {
        self.nodes[node].silent
    }

    /// How much longer the answers of `node` under `standing` do not count; `None` if they count.
    pub fn quarantine_left(
        &self,
        node: usize,
        standing: Standing,
        now: Timestamp,
    ) -> Option<Duration> {
        self.time_until_old_enough(node, standing, Duration::ZERO, now)
    }

    /// How much longer `node` under `standing` may lack something that a node stored `span` ago or
    /// later; `None` if it cannot. It must have been born a whole quarantine before that.
    ///
    /// Both clocks must agree that the time has passed: the node's own clock, and ours if we
    /// noticed the birth (the node's clock may have been set since). Only differences on the same
    /// clock are compared, so that a node with a wrong clock does not look older than it is.
    pub(super) fn time_until_old_enough(
        &self,
        node: usize,
        standing: Standing,
        span: Duration,
        now: Timestamp,
    ) -> Option<Duration> {
        let view = &self.nodes[node];
        if !self.quarantines(node, standing) || standing.born_us == 0 {
            return None;
        }
        let needed = self.quarantine().saturating_add(span);
        let votes_from_us = standing.born_us.saturating_add(micros(needed));
        let by_node = Duration::from_micros(votes_from_us.saturating_sub(standing.clock_us));
        let by_us = view
            .birth_seen
            .map(|seen| (seen + needed).since(now))
            .unwrap_or_default();
        // A birth in the node's future means that its clock was set back. Limit the time: the node
        // must not stay in quarantine for ever.
        let left = by_node.min(needed).max(by_us);
        (!left.is_zero()).then_some(left)
    }

    /// Whether so many nodes may not vote, because of a quarantine or a clock jump, that no
    /// majority is left.
    pub fn no_majority_may_vote(&self, now: Timestamp) -> bool {
        let may_not_vote = |(node, view): &(usize, &NodeView)| {
            let (Some(standing), Some(offset_us)) = (view.standing, view.offset_us) else {
                return false;
            };
            let clock_us = now.as_micros().saturating_add_signed(offset_us);
            let standing = Standing {
                clock_us,
                ..standing
            };
            self.quarantine_left(*node, standing, now).is_some()
                || self.jump_left(*node, now).is_some()
        };
        let excluded = self.nodes.iter().enumerate().filter(may_not_vote).count();
        self.nodes.len() - excluded < quorum(self.nodes.len())
    }

    fn observe_clock(
        &mut self,
        node: usize,
        clock_us: u64,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<ClockEvent> {
        let middle_us = sent.as_micros() + micros(now.since(sent)) / 2;
        let view = &mut self.nodes[node];
        view.answered();
        // An absurd clock saturates. It costs only this node's vote.
        let offset = i128::from(clock_us) - i128::from(middle_us);
        view.offset_us = Some(offset.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let low = i128::from(clock_us) - i128::from(now.as_micros()) - 1;
        view.offset_low_us = Some(low.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let reading = Reading {
            clock_us,
            sent,
            received: now,
        };
        let quarantine = self.quarantine();
        let Self { clocks, nodes, .. } = self;
        // Two nodes that are one server have one clock.
        let first = |node: usize| {
            let server = nodes[node].server();
            let mut earlier = nodes[..node].iter();
            !earlier.any(|view| is_same_server(view.server(), server))
        };
        clocks.observe(node, reading, quarantine, first)
    }

    fn observe_standing(&mut self, node: usize, standing: Standing, now: Timestamp) {
        let server = standing.server;
        let known = self.nodes[node].standing;
        let view = &mut self.nodes[node];
        let new_birth = known.is_some_and(|k| k.born_us != standing.born_us);
        if new_birth {
            view.birth_seen = Some(now);
        }
        let reborn = known.is_some_and(|k| k.incarnation != standing.incarnation);
        view.standing = Some(standing);
        view.last_server = server;
        let before = known.map_or(0, |known| known.server);
        if before == server || server == 0 {
            if reborn {
                self.clocks.begin_anew(node);
            }
            return;
        }
        let others = self.nodes.iter().enumerate();
        let mut others =
            others.filter(|(n, view)| *n != node && is_same_server(view.server(), server));
        let duplicate = others.next().map(|(other, _)| other);
        let pair = duplicate.map(|duplicate| (duplicate.min(node), duplicate.max(node)));
        self.duplicates_found = pair.or(self.duplicates_found);
        self.nodes[node].moved = Some(now);
        let Some(known) = known.filter(|_| before != 0) else {
            return;
        };
        // Another run of the same data keeps its clock and what is known about it. A replica that
        // was promoted without a loss has the same data, but another clock.
        if known.incarnation != standing.incarnation || standing.replicated {
            self.clocks.moved(node, (before, server), duplicate);
        }
    }
}

impl Cluster {
    /// From now on `node` counts only while its Sentinels confirm it ([`confirm`](Self::confirm)).
    pub fn require_confirmation(&mut self, node: usize) {
        self.nodes[node].needs_confirmation = true;
    }

    /// A majority of the Sentinels confirmed the present server of `node` on this line.
    pub fn confirm(&mut self, line: Line, node: usize, confirmation: Confirmation) {
        let known = &mut self.nodes[node].confirmations[line as usize];
        // An answer that was delayed must not replace a later one.
        if known.is_none_or(|known| known.asked_at <= confirmation.asked_at) {
            *known = Some(confirmation);
        }
    }

    /// Whether an answer of `node` under `standing` over the connections of `line`, in a round that
    /// began at `t0`, is that of a confirmed master.
    fn is_confirmed(&self, line: Line, node: usize, standing: Standing, t0: Timestamp) -> bool {
        let view = &self.nodes[node];
        let stale_master = self.group.stale_master;
        let holds = |confirmation: Confirmation| {
            Some(confirmation.epoch) == standing.epoch && confirmation.asked_at + stale_master >= t0
        };
        !view.needs_confirmation || view.confirmations[line as usize].is_some_and(holds)
    }

    /// Whether a birth of `node` starts a quarantine.
    fn quarantines(&self, node: usize, standing: Standing) -> bool {
        let alone = self.nodes.len() == 1;
        let replaceable = || self.group.failover.quarantines(standing.replicated);
        self.nodes[node].quarantines && (!alone || replaceable())
    }

    /// Whether a failover may replace the only node of the group, and its births cost a quarantine.
    pub fn is_lone_failover(&self) -> bool {
        let standing = self.nodes.first().and_then(|view| view.standing);
        self.nodes.len() == 1 && standing.is_some_and(|standing| self.quarantines(0, standing))
    }

    /// Why the answer of `node` to an extend does not count, in a round that began at `t0`; `None`
    /// if it counts. `deadline`: until when the lock is held, for a guard of this process; `None`
    /// for a receipt and for a plain lock.
    ///
    /// The validity that is left is taken when the answer is read, not when the request was sent: a
    /// request may wait for a new connection, and the promotion may be later than its beginning.
    /// This is the stricter of the two: what is left when the answer is read was left before.
    pub fn discount_extension(
        &self,
        line: Line,
        node: usize,
        reply: &Reply,
        t0: Timestamp,
        now: Timestamp,
        deadline: Option<Timestamp>,
    ) -> Option<Vote> {
        let discount = self.discount_on(line, node, reply.standing, t0, now);
        let quarantined = matches!(discount, Some(Vote::Quarantined { .. }));
        let confirms = matches!(reply.answer, Answer::Extended | Answer::Downgraded);
        let (Some(deadline), true, true) = (deadline, quarantined, confirms) else {
            return discount;
        };
        let carried = self.nodes.len() == 1 && self.is_carried(reply.standing, deadline, now);
        discount.filter(|_| !carried)
    }

    /// Whether no former master can have granted the lock of a holder that is valid until
    /// `deadline`, or can still do so.
    fn is_carried(&self, standing: Standing, deadline: Timestamp, now: Timestamp) -> bool {
        let overlap = self.overlap();
        let age_us = standing.clock_us.saturating_sub(standing.born_us);
        deadline.since(now) >= overlap || age_us >= micros(overlap)
    }

    /// For how long after a promotion a former master may grant, and the grant counts: X + D, plus
    /// the drift.
    fn overlap(&self) -> Duration {
        let overlap = self.group.stale_master + self.group.reply_within;
        overlap + self.drift.allowance(overlap)
    }

    /// The longest lease that the nodes may grant; `None` without a limit. A node that may have
    /// lost a lock must not grant it before the lease has ended, also if a former master extended
    /// it once more.
    pub fn longest_lease(&self) -> Option<Duration> {
        let quarantine = self.group.quarantine;
        if self.nodes.len() > 1 {
            let step = Group::CLOCK_STEP;
            return Some(quarantine.saturating_sub(step));
        }
        let drift = self.drift.allowance(quarantine);
        let in_use = self.quarantine().saturating_sub(drift);
        let longest = quarantine.min(in_use);
        self.is_lone_failover()
            .then(|| longest.saturating_sub(self.group.stale_master))
    }

    /// Until when the replies of an attempt that begins at `t0` count, and the latest time on the
    /// clock of the only node at which it may execute the request. `None` without a failover.
    pub(super) fn reply_by(&self, t0: Timestamp) -> Option<ReplyBy> {
        let lone = self.is_lone_failover();
        if !lone && !self.nodes.iter().any(|view| view.needs_confirmation) {
            return None;
        }
        let read_by = t0 + self.group.reply_within;
        let offset_us = self.nodes[0].offset_low_us.filter(|_| lone);
        let not_after_us = offset_us.map(|low| read_by.as_micros().saturating_add_signed(low));
        Some(ReplyBy {
            read_by,
            not_after_us,
        })
    }
}

impl NodeView {
    /// The server of the last reply.
    fn server(&self) -> u64 {
        self.standing.map_or(0, |standing| standing.server)
    }

    fn answered(&mut self) {
        self.answers = true;
        self.silent = false;
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
