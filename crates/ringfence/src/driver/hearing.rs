//! What a reply tells beside its answer: how its node stands, whose clock jumped, and whether it
//! was our own that stood still. Everything that comes from a node is heard here first.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::message::Reply;
use crate::node::{CallError, Facts, Trouble};
use crate::protocol::{ClockEvent, ClockReading, Discount, Leap};
use crate::time::Timestamp;

use super::{Driver, wait_for};

/// When our own clock was last found to have stood still, for those who hold something.
///
/// Every hold compares it with its own beginning: no list of holds is kept, and none can be missed.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    /// In nanoseconds of the client's clock; zero for never.
    found: AtomicU64,
    times: AtomicU64,
    noticed: Notify,
}

impl Driver {
    /// Hears what came of a call; why its answer does not count, if it does not.
    pub(crate) fn hear(
        &self,
        node: usize,
        outcome: &Result<Reply, CallError>,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Discount> {
        let mut cluster = self.cluster();
        let event = cluster.observe(node, outcome, sent, now);
        // Before anybody else can count a reply that this one outdated.
        self.take_note(event.as_ref(), now);
        let reply = outcome.as_ref().ok();
        let discount = reply.and_then(|reply| cluster.discount(node, reply.standing, sent, now));
        let duplicates = cluster.take_duplicates();
        drop(cluster);
        self.tell(event);
        self.tell_duplicates(duplicates);
        discount
    }

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
        self.take_note(event.as_ref(), facts.received);
        let duplicates = cluster.take_duplicates();
        drop(cluster);
        self.tell(event);
        self.tell_duplicates(duplicates);
    }

    /// What the clock says, and when it was last found to have stood still.
    pub(crate) fn read_clock(&self) -> ClockReading {
        let found = self.standstill.found.load(Ordering::SeqCst);
        ClockReading {
            now: self.clock.now(),
            froze: (found != 0).then(|| Timestamp::from_nanos(found)),
        }
    }

    /// Completes once our own clock is found to have stood still at `then` or since.
    pub(crate) async fn standing_still_since(&self, then: Timestamp) {
        let found = || self.standstill.found.load(Ordering::SeqCst);
        let since = || found() != 0 && found() >= then.as_nanos();
        wait_for(&self.standstill.noticed, since).await;
    }

    /// How often our own clock was found to have stood still.
    pub(crate) fn standstills(&self) -> u64 {
        self.standstill.times.load(Ordering::Relaxed)
    }

    fn take_note(&self, event: Option<&ClockEvent>, now: Timestamp) {
        if let Some(ClockEvent::StoodStill { .. }) = event {
            let found = now.as_nanos().max(1);
            self.standstill.found.fetch_max(found, Ordering::SeqCst);
            self.standstill.times.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tell_duplicates(&self, nodes: Option<(usize, usize)>) {
        if let Some((earlier, later)) = nodes {
            let (earlier, later) = (self.nodes[earlier].name(), self.nodes[later].name());
            tracing::error!(target: "ringfence", "{}", Trouble::duplicate(later, earlier));
        }
    }

    fn tell(&self, event: Option<ClockEvent>) {
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
                self.standstill.noticed.notify_waiters();
            }
            Some(ClockEvent::RanAhead { span }) => tracing::warn!(
                target: "ringfence",
                ?span,
                "our own clock ran ahead of a majority of the nodes, or they were all set back; nothing is lost"
            ),
        }
    }
}
