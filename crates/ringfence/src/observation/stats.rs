//! Counters of a client, for programs without a metrics exporter: [`Locks::stats`].
//!
//! [`Locks::stats`]: crate::Locks::stats

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::labels::{AcquireOutcome, LockKind, LossReason, NodeState, RenewalOutcome};

/// What a client has done since it was connected, and what it holds now.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// How many locks were granted.
    pub granted: u64,
    /// How many calls got no lock.
    pub refused: u64,
    /// How many calls were dropped by their callers before they had an outcome.
    pub dropped: u64,
    /// How many renewals succeeded.
    pub renewed: u64,
    /// How many renewals got no majority, or found the lock lost.
    pub renewals_failed: u64,
    /// How many locks were lost.
    pub lost: u64,
    /// How many locks were released before they were lost.
    pub released: u64,
    /// How many locks are held now.
    pub held: u64,
    /// How many callers wait now, after an attempt that was lost.
    pub waiting: u64,
    /// How many elections this client leads now.
    pub leading: u64,
    /// How many events were dropped because the listener was slow.
    pub events_dropped: u64,
    /// How many calls of the listener panicked.
    pub listener_panics: u64,
    /// Every node, in node order.
    pub nodes: Vec<NodeStats>,
}

/// What a client knows of one node.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeStats {
    /// The name of the node.
    pub node: String,
    /// Its state, as the last call to it showed it.
    pub state: NodeState,
    /// How many of its answers took or extended a lock.
    pub granted: u64,
    /// How many calls that take or extend a lock it answered otherwise.
    pub refused: u64,
    /// How many such calls it did not answer in time.
    pub timed_out: u64,
    /// How many such calls failed otherwise.
    pub failed: u64,
    /// A recent round trip; `None` before the first.
    pub round_trip: Option<Duration>,
    /// Its clock minus the clock of this machine, in microseconds; `None` before the first reply.
    pub clock_offset_us: Option<i64>,
}

/// The counters of a client, without those of its nodes.
#[derive(Debug, Default)]
pub(super) struct Counts {
    outcomes: [AtomicU64; AcquireOutcome::ALL.len()],
    renewals: [AtomicU64; RenewalOutcome::ALL.len()],
    losses: [AtomicU64; LossReason::ALL.len()],
    released: AtomicU64,
    held: [AtomicU64; LockKind::ALL.len()],
    waiting: AtomicU64,
}

impl Counts {
    pub(super) fn acquired(&self, outcome: AcquireOutcome) {
        count(&self.outcomes[outcome as usize]);
    }

    pub(super) fn held(&self, kind: LockKind) {
        count(&self.held[kind as usize]);
    }

    pub(super) fn not_held(&self, kind: LockKind) {
        self.held[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn released(&self) {
        count(&self.released);
    }

    pub(super) fn waits(&self) {
        count(&self.waiting);
    }

    pub(super) fn waits_no_more(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn renewed(&self, outcome: RenewalOutcome) {
        count(&self.renewals[outcome as usize]);
    }

    pub(super) fn lost(&self, reason: LossReason) {
        count(&self.losses[reason as usize]);
    }

    pub(super) fn stats(
        &self,
        (events_dropped, listener_panics): (u64, u64),
        nodes: Vec<NodeStats>,
    ) -> Stats {
        let outcome = |outcome: AcquireOutcome| get(&self.outcomes[outcome as usize]);
        let all = sum(&self.outcomes);
        let (granted, dropped) = (
            outcome(AcquireOutcome::Granted),
            outcome(AcquireOutcome::Dropped),
        );
        let renewed = get(&self.renewals[RenewalOutcome::Renewed as usize]);
        Stats {
            granted,
            // Other threads may count between two readings.
            refused: all.saturating_sub(granted + dropped),
            dropped,
            renewed,
            renewals_failed: sum(&self.renewals).saturating_sub(renewed),
            lost: sum(&self.losses),
            released: get(&self.released),
            held: sum(&self.held),
            waiting: get(&self.waiting),
            leading: get(&self.held[LockKind::Election as usize]),
            events_dropped,
            listener_panics,
            nodes,
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn sum(counters: &[AtomicU64]) -> u64 {
    counters.iter().map(get).sum()
}
