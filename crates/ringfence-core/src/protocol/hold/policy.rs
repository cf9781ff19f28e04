//! How a hold is looked after: for how long, and when it is renewed.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Drift;
use crate::time::Timestamp;

/// How a hold is looked after. Most holds of one client have the same policy, so they share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HoldPolicy {
    /// How long one round of extending is good for.
    pub ttl: Duration,
    /// For how much longer than the TTL the nodes keep the lock from others.
    pub lock_delay: Duration,
    /// If the lock is released sooner than this, it is kept from others until then.
    pub hold_at_least: Duration,
    /// How long a node may take to answer.
    pub call_timeout: Duration,
    /// What is taken off a TTL because clocks do not run alike.
    pub drift: Drift,
    /// Whether the hold renews itself, or is extended by its caller alone.
    pub renew: bool,
    /// For how long the lock may be held in all.
    pub max_hold: Option<Duration>,
    /// Who holds, for people. A node that gets the lock back needs it.
    pub label: Arc<str>,
}

impl HoldPolicy {
    /// How long the nodes keep a lock that is asked for `ttl`.
    pub fn lease(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.lock_delay)
    }

    /// When to renew after a round that began at `t0`: at a third of the TTL. The lease counts from
    /// `t0`: after a slow round, a third of the TTL from its end may lie behind the deadline.
    pub(super) fn renewal_after(&self, t0: Timestamp) -> Timestamp {
        t0 + self.ttl / 3
    }

    /// The pause before a renewal is tried again: longer after each failure, but shorter the less time
    /// is `left`, so that a majority which comes back in time is asked in time.
    pub(super) fn pause(&self, failures: u16, left: Duration) -> Duration {
        let unit = self.call_timeout / 8;
        (unit * 2 * u32::from(failures.min(8)))
            .min(left / 3)
            .max(unit)
    }
}
