//! What clocks were found to have done, and who is told of it: a node's clock that jumped, our own
//! that stood still. And nodes that turned out to be one server.

use std::sync::atomic::Ordering;

use crate::node::{Facts, Trouble};
use crate::protocol::{ClockEvent, Leap};
use crate::time::Timestamp;

use super::sender::Sender;
use super::wait_for;

impl Sender {
    /// Hears what came of a handshake that was asked for at `asked`.
    pub(crate) fn hear_facts(&self, node: usize, facts: &Facts, asked: Timestamp) {
        let now = self.clock.now();
        let mut facts = facts.clone();
        if facts.sent < asked || now < facts.received {
            // A node of another's making may measure on a clock of its own.
            (facts.sent, facts.received) = (asked, now);
        }
        let mut cluster = self.cluster();
        let event = cluster.observe_facts(node, &facts);
        if let Some(event) = &event {
            self.take_note(event, facts.received);
        }
        let duplicates = cluster.take_duplicates();
        drop(cluster);
        self.tell(event, duplicates);
    }

    /// Completes once our own clock is found to have stood still at `then` or since.
    pub(crate) async fn frozen_since(&self, then: Timestamp) {
        let found = || self.freeze.found.load(Ordering::SeqCst);
        let since = || found() != 0 && found() >= then.as_nanos();
        wait_for(&self.freeze.noticed, since).await;
    }

    /// How often our own clock was found to have stood still.
    pub(crate) fn freezes(&self) -> u64 {
        self.freeze.times.load(Ordering::Relaxed)
    }

    /// Notes at `now` that our own clock has stood still, if that is what happened.
    pub(super) fn take_note(&self, event: &ClockEvent, now: Timestamp) {
        if let ClockEvent::StoodStill { .. } = event {
            let found = now.as_nanos().max(1);
            self.freeze.found.fetch_max(found, Ordering::SeqCst);
            self.freeze.times.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells those who wait for it, and the log. No lock of the driver may be held.
    pub(super) fn tell(&self, event: Option<ClockEvent>, duplicates: Option<(usize, usize)>) {
        match event {
            None => {}
            Some(ClockEvent::Jumped { node, by_us }) => tracing::warn!(
                target: "ringfence",
                node = self.nodes[node].name(),
                by_us,
                "a node's clock jumped {}; its locks may have expired early, so it does not vote for a while",
                Leap(by_us)
            ),
            Some(ClockEvent::StoodStill { span }) => {
                tracing::warn!(
                    target: "ringfence",
                    ?span,
                    "a majority of the nodes' clocks leapt ahead alike: our own stood still, as in a virtual machine that is paused, or theirs were set forward; all locks are lost"
                );
                self.freeze.noticed.notify_waiters();
            }
            Some(ClockEvent::RanAhead { span }) => tracing::warn!(
                target: "ringfence",
                ?span,
                "our own clock ran ahead of a majority of the nodes, or they were all set back; nothing is lost"
            ),
        }
        if let Some((earlier, later)) = duplicates {
            let (earlier, later) = (self.nodes[earlier].name(), self.nodes[later].name());
            tracing::error!(target: "ringfence", "{}", Trouble::duplicate(later, earlier));
        }
    }
}
