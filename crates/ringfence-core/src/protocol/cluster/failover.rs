//! A failover behind a node: which votes of a master count while another one may already have taken
//! its place, and how a holder is carried through a promotion.
//!
//! The rules, with X = [`Group::stale_master`](crate::group::Group) and D = `reply_within`:
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

use std::time::Duration;

use crate::message::{Answer, Reply, Standing};
use crate::time::Timestamp;

use super::{Cluster, Discount, Line, micros};

/// A majority of the Sentinels named a node's present server as the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Confirmation {
    /// The configuration epoch in their answers.
    pub epoch: u64,
    /// When the first of the questions was sent.
    pub asked_at: Timestamp,
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
    pub(super) fn is_confirmed(
        &self,
        line: Line,
        node: usize,
        standing: Standing,
        t0: Timestamp,
    ) -> bool {
        let view = &self.nodes[node];
        let stale_master = self.group.stale_master;
        let holds = |confirmation: Confirmation| {
            Some(confirmation.epoch) == standing.epoch && confirmation.asked_at + stale_master >= t0
        };
        !view.needs_confirmation || view.confirmations[line as usize].is_some_and(holds)
    }

    /// Whether a birth of `node` starts a quarantine.
    pub(super) fn quarantines(&self, node: usize, standing: Standing) -> bool {
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
    ) -> Option<Discount> {
        let discount = self.discount_on(line, node, reply.standing, t0, now);
        let quarantined = matches!(discount, Some(Discount::Quarantined { .. }));
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
            let step = crate::group::Group::CLOCK_STEP;
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
    pub(in crate::protocol) fn reply_by(&self, t0: Timestamp) -> Option<(Timestamp, Option<u64>)> {
        let lone = self.is_lone_failover();
        if !lone && !self.nodes.iter().any(|view| view.needs_confirmation) {
            return None;
        }
        let read_by = t0 + self.group.reply_within;
        let offset_us = self.nodes[0].offset_low_us.filter(|_| lone);
        let not_after_us = offset_us.map(|low| read_by.as_micros().saturating_add_signed(low));
        Some((read_by, not_after_us))
    }
}
