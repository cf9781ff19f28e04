//! Clock events and duplicate nodes: records that our own clock froze, wakes the tasks that wait
//! for it, and logs a node's clock jump or two nodes that are one server. The detection itself is
//! in `protocol::Cluster`.

use std::sync::atomic::Ordering;

use crate::node::{CallError, Facts, Trouble};
use crate::protocol::{ClockEvent, ClockJump, Line};
use crate::time::Timestamp;

use super::sender::Sender;
use super::wait_for;

impl Sender {
    /// Learns from a handshake that was requested at `asked`.
    pub(crate) fn observe_facts(&self, node: usize, facts: &Facts, asked: Timestamp) {
        let now = self.clock.now();
        let mut facts = facts.clone();
        if facts.sent < asked || now < facts.received {
            // A custom node may measure on a clock of its own.
            (facts.sent, facts.received) = (asked, now);
        }
        let confirmation = self.nodes[node].confirmation();
        let mut cluster = self.cluster();
        if let Some(confirmation) = confirmation {
            cluster.confirm(Line::First, node, confirmation);
        }
        let event = cluster.observe_facts(node, &facts);
        if let Some(event) = &event {
            self.record_freeze(event, facts.received);
        }
        let duplicates = cluster.take_duplicates();
        let discount = facts
            .standing
            .and_then(|standing| cluster.discount(node, standing, facts.sent, facts.received));
        drop(cluster);
        self.report(event, duplicates);
        self.observation
            .shook_hands(node, &facts, discount.as_ref());
    }

    /// Learns that a handshake of `node` failed.
    pub(crate) fn observe_failure(&self, node: usize, failed: &Result<Facts, CallError>) {
        let now = self.clock.now();
        self.observation.answered(node, failed, None, now);
    }

    /// Completes once a freeze of our own clock has been detected at `then` or later.
    pub(crate) async fn frozen_since(&self, then: Timestamp) {
        let found = || self.freeze.found.load(Ordering::SeqCst);
        let since = || found() != 0 && found() >= then.as_nanos();
        wait_for(&self.freeze.noticed, since).await;
    }

    /// How often a freeze of our own clock was detected.
    pub(crate) fn freezes(&self) -> u64 {
        self.freeze.times.load(Ordering::Relaxed)
    }

    /// Records at `now` that our own clock froze, if that is the event.
    pub(super) fn record_freeze(&self, event: &ClockEvent, now: Timestamp) {
        if let ClockEvent::Froze { .. } = event {
            let found = now.as_nanos().max(1);
            self.freeze.found.fetch_max(found, Ordering::SeqCst);
            self.freeze.times.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs the events and wakes the tasks that wait for a freeze. The caller holds no lock of the
    /// runtime.
    pub(super) fn report(&self, event: Option<ClockEvent>, duplicates: Option<(usize, usize)>) {
        match event {
            None => {}
            Some(ClockEvent::Jumped { node, by_us }) => tracing::warn!(
                target: "ringfence",
                node = self.nodes[node].name(),
                by_us,
                "a node's clock jumped {}; its locks may have expired early, so it does not vote \
                 until its quarantine is over",
                ClockJump(by_us)
            ),
            Some(ClockEvent::Froze { span }) => {
                tracing::warn!(
                    target: "ringfence",
                    ?span,
                    "the clocks of a majority of the nodes jumped forward by the same time: our \
                     own clock froze (a paused virtual machine) or theirs were set forward; all \
                     locks are lost"
                );
                self.freeze.noticed.notify_waiters();
            }
            Some(ClockEvent::RanAhead { span }) => tracing::warn!(
                target: "ringfence",
                ?span,
                "our own clock ran ahead of a majority of the nodes, or they were all set back; \
                 no lock is lost"
            ),
        }
        if let Some((earlier, later)) = duplicates {
            let (earlier, later) = (self.nodes[earlier].name(), self.nodes[later].name());
            tracing::error!(target: "ringfence", "{}", Trouble::duplicate(later, earlier));
        }
    }
}
