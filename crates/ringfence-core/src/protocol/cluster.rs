//! What this client knows of its nodes: how their clocks stand to ours, who answers, who may have
//! forgotten. Learnt from every reply, shared by all rounds of one client.

mod ballots;
mod clocks;

use std::time::Duration;

use crate::group::Group;
use crate::message::{Ballot, Reply, Standing};
use crate::node::{CallError, Facts};
use crate::time::Timestamp;

use super::vote::is_same;
use super::{Discount, Drift, quorum};

pub use ballots::Choice;
pub use clocks::ClockEvent;
use clocks::{Clocks, Reading};

/// What this client knows of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cluster {
    group: Group,
    drift: Drift,
    nodes: Vec<NodeView>,
    clocks: Clocks,
    /// The highest ballot this client ever proposed, for any name.
    proposed: Ballot,
    /// Two nodes that were found to be one server, the earlier one first, until somebody is told.
    found: Option<(usize, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct NodeView {
    /// The node's clock less ours.
    offset_us: Option<i64>,
    /// Whether the last call to it was answered, even late.
    answers: bool,
    /// Whether the last call to it timed out or failed. Not the opposite of `answers`: of a node
    /// that was never called nobody knows either.
    silent: bool,
    /// Whether a forgetful node has to wait before it votes.
    quarantines: bool,
    standing: Option<Standing>,
    /// The server that answered the last call; zero if it brought no reply.
    speaks_for: u64,
    /// When this client saw the node born anew.
    reborn: Option<Timestamp>,
    /// When this client first heard of the server that the node is now.
    moved: Option<Timestamp>,
}

impl Cluster {
    /// Nodes of `group`; `quarantines[i]` says whether node `i` has to wait after it forgot.
    ///
    /// A single node has no quarantine: nobody else could vouch for what it forgot.
    pub fn new(group: &Group, drift: Drift, quarantines: &[bool]) -> Self {
        let several = quarantines.len() > 1;
        Self {
            group: *group,
            drift,
            nodes: quarantines
                .iter()
                .map(|&quarantines| NodeView {
                    quarantines: quarantines && several,
                    ..NodeView::default()
                })
                .collect(),
            clocks: Clocks::new(quarantines.len(), drift),
            proposed: Ballot::default(),
            found: None,
        }
    }

    /// Leases of `node` run on another clock than the one in its replies: no jump of that one
    /// shortens them.
    pub fn leases_run_elsewhere(&mut self, node: usize) {
        self.clocks.exempt(node);
    }

    /// Takes over the values that the group turned out to have.
    pub fn adopt(&mut self, group: &Group) {
        self.group = *group;
    }

    /// The values of the group.
    #[inline]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// `Q` as it is used: longer by the drift and a second, so that no clock is too quick.
    pub fn quarantine(&self) -> Duration {
        let quarantine = self.group.quarantine;
        quarantine + self.drift.fraction_of(quarantine) + Duration::from_secs(1)
    }

    /// Learns from a handshake. What it proves about clocks, if anything.
    pub fn observe_facts(&mut self, node: usize, facts: &Facts) -> Option<ClockEvent> {
        if let Some(standing) = facts.standing {
            self.observe_standing(node, standing, facts.received);
        }
        self.observe_clock(node, facts.clock_us, facts.sent, facts.received)
    }

    /// Learns from a call that was `sent` and answered, or not, by `now`. What it proves about
    /// clocks, if anything.
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
                self.nodes[node].speaks_for = 0;
            }
            Err(CallError::NotSent(_) | CallError::Unknown(_)) => self.silent(node),
        }
        None
    }

    /// Why nothing counts that `node` said under `standing` to a request of `sent`, if it is so.
    pub fn discount(
        &self,
        node: usize,
        standing: Standing,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Discount> {
        if self.stood_still_since(sent) {
            return Some(Discount::Outdated);
        }
        if let Some(of) = self.duplicate_of(node, standing.server) {
            return Some(Discount::Duplicate { of });
        }
        let young = self.quarantine_left(node, standing, now);
        match self.jump_left(node, now) {
            Some((left, by_us)) if young.is_none_or(|young| young < left) => {
                Some(Discount::ClockJumped { by_us, left })
            }
            _ => match young {
                Some(left) => Some(Discount::Quarantined { left }),
                None => {
                    let moved = self.moved_since(node, standing, sent);
                    moved.then_some(Discount::Moved)
                }
            },
        }
    }

    /// The earlier node that speaks for the same `server` as `node`, if there is one.
    ///
    /// A node whose last call brought no reply takes no other's vote. If it answers after all, the
    /// round that asked both counts one of them.
    pub fn duplicate_of(&self, node: usize, server: u64) -> Option<usize> {
        let mut earlier = self.nodes[..node].iter();
        earlier.position(|view| is_same(view.speaks_for, server))
    }

    /// Two nodes that were found to be one server since this was last asked: the earlier and the later
    /// one.
    #[inline]
    pub fn take_duplicates(&mut self) -> Option<(usize, usize)> {
        self.found.take()
    }

    /// Whether `node`, which has `standing` now, became another server after `then` and may be
    /// one that another node leads to as well. A durable server that is restarted keeps its locks
    /// and its incarnation under another run id. If two nodes lead to it, one of them may have
    /// answered before and the other after.
    fn moved_since(&self, node: usize, standing: Standing, then: Timestamp) -> bool {
        let moved = self.nodes[node].moved.is_some_and(|at| at > then);
        // Those with the same number are counted once anyway.
        let is_other_run = |known: Standing| {
            let (known_as, incarnation) = (known.server, known.incarnation);
            known_as != 0 && known_as != standing.server && incarnation == standing.incarnation
        };
        let others = self.nodes.iter().enumerate().filter(|(n, _)| *n != node);
        let mut known = others.filter_map(|(_, view)| view.standing);
        moved && known.any(is_other_run)
    }

    /// For how much longer `node` does not vote because its clock jumped, and by how many
    /// microseconds at least it did.
    pub fn jump_left(&self, node: usize, now: Timestamp) -> Option<(Duration, i64)> {
        let jumped = self.clocks.jumped(node, self.quarantine(), now);
        jumped.filter(|_| self.nodes[node].quarantines)
    }

    /// How often `node`'s clock was proved to have jumped.
    pub fn jumps(&self, node: usize) -> u64 {
        self.clocks.jumps(node)
    }

    /// Whether our own clock was found to have stood still at `then` or since.
    pub fn stood_still_since(&self, then: Timestamp) -> bool {
        self.clocks.stood_still().is_some_and(|found| found >= then)
    }

    /// The last call to `node` brought no answer in time. Until it answers again, even late,
    /// nobody waits for it to lose.
    pub fn silent(&mut self, node: usize) {
        self.nodes[node].answers = false;
        self.nodes[node].silent = true;
        self.nodes[node].speaks_for = 0;
    }

    /// Whether the last call to `node` brought no answer in time. Not so for one that has not been
    /// called: without its clock a first attempt may be lost for want of a good ballot.
    #[inline]
    pub fn is_silent(&self, node: usize) -> bool {
        self.nodes[node].silent
    }

    /// For how much longer nothing that `node` says under `standing` counts, if it is so.
    pub fn quarantine_left(
        &self,
        node: usize,
        standing: Standing,
        now: Timestamp,
    ) -> Option<Duration> {
        self.too_young_for(node, standing, Duration::ZERO, now)
    }

    /// For how much longer `node` under `standing` may have forgotten what a node was told `span` ago
    /// or later, if it is so: it must be older than that by a whole quarantine.
    ///
    /// Both clocks must agree that the time is over: the node's own, and ours if we saw it happen
    /// (the node's may have been set since). Only differences on one clock are compared, so that a
    /// node whose clock is wrong is not taken for older than it is.
    pub(super) fn too_young_for(
        &self,
        node: usize,
        standing: Standing,
        span: Duration,
        now: Timestamp,
    ) -> Option<Duration> {
        let view = &self.nodes[node];
        if !view.quarantines || standing.born_us == 0 {
            return None;
        }
        let needed = self.quarantine().saturating_add(span);
        let grown_us = standing.born_us.saturating_add(micros(needed));
        let by_node = Duration::from_micros(grown_us.saturating_sub(standing.clock_us));
        let by_us = view
            .reborn
            .map(|reborn| (reborn + needed).since(now))
            .unwrap_or_default();
        // A birth in the node's future is a clock that was set back; it must not count for ever.
        let left = by_node.min(needed).max(by_us);
        (!left.is_zero()).then_some(left)
    }

    /// Whether so many nodes are in quarantine or jumped, as far as is known, that no majority can vote.
    pub fn is_young(&self, now: Timestamp) -> bool {
        let is_young = |(node, view): &(usize, &NodeView)| {
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
        let young = self.nodes.iter().enumerate().filter(is_young).count();
        self.nodes.len() - young < quorum(self.nodes.len())
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
        // A hostile clock saturates; it costs this node's vote only.
        let offset = i128::from(clock_us) - i128::from(middle_us);
        view.offset_us = Some(offset.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
        let reading = Reading {
            clock_us,
            sent,
            received: now,
        };
        let quarantine = self.quarantine();
        let Self { clocks, nodes, .. } = self;
        // One server behind two nodes is one clock.
        let first = |node: usize| {
            let server = nodes[node].server();
            let mut earlier = nodes[..node].iter();
            !earlier.any(|view| is_same(view.server(), server))
        };
        clocks.hear(node, reading, quarantine, first)
    }

    fn observe_standing(&mut self, node: usize, standing: Standing, now: Timestamp) {
        let server = standing.server;
        let known = self.nodes[node].standing;
        let view = &mut self.nodes[node];
        let reborn = known.is_some_and(|k| k.born_us != standing.born_us);
        if reborn {
            view.reborn = Some(now);
        }
        view.standing = Some(standing);
        view.speaks_for = server;
        let before = known.map_or(0, |known| known.server);
        if before == server || server == 0 {
            return;
        }
        let others = self.nodes.iter().enumerate();
        let mut others = others.filter(|(n, view)| *n != node && is_same(view.server(), server));
        let twin = others.next().map(|(other, _)| other);
        let pair = twin.map(|twin| (twin.min(node), twin.max(node)));
        self.found = pair.or(self.found);
        self.nodes[node].moved = Some(now);
        let Some(known) = known.filter(|_| before != 0) else {
            return;
        };
        // Another run of the same store keeps its clock, and what is known of it.
        if known.incarnation != standing.incarnation {
            self.clocks.moved(node, (before, server), twin);
        }
    }
}

impl NodeView {
    /// Which server it was when it last answered.
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
