//! How a hold is looked after: for how long, and when it is renewed.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::time::Timestamp;

use super::lock;

/// How a hold is looked after.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Care {
    pub(crate) ttl: Duration,
    /// For how much longer than the TTL the nodes keep it from others.
    pub(crate) delay: Duration,
    /// Released sooner than this, it is kept from others until then.
    pub(crate) hold_at_least: Duration,
    pub(crate) call_timeout: Duration,
    /// Renewed by the keeper, or left to the caller.
    pub(crate) renew: bool,
    /// For how long it may be held in all.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: Arc<str>,
}

impl Care {
    /// How long the nodes keep what is asked for `ttl`.
    pub(super) fn lease(&self, ttl: Duration) -> Duration {
        ttl.saturating_add(self.delay)
    }

    /// When to renew after the round that began at `t0`. The lease counts from there: after a slow
    /// round a third of the TTL from its end may lie behind the deadline.
    pub(super) fn renewal_after(&self, t0: Timestamp, now: Timestamp) -> Timestamp {
        (t0 + self.ttl / 3).max(now)
    }

    /// The pause before a renewal is tried again: longer each time, but the less time is `left` the
    /// shorter, so that a majority which comes back in time is not slept through.
    pub(super) fn pause(&self, failures: u32, left: Duration) -> Duration {
        let unit = self.call_timeout / 8;
        (unit * 2 * failures.min(8)).min(left / 3).max(unit)
    }
}

/// The care that holds of one client have in common. Most are looked after alike, and there may be a
/// hundred thousand: one for them all.
#[derive(Debug, Default)]
pub(crate) struct Cares {
    last: Mutex<Weak<Care>>,
}

impl Cares {
    /// `care`, shared with the holds before if it is as theirs.
    pub(super) fn share(&self, care: Care) -> Arc<Care> {
        let mut last = lock(&self.last);
        match last.upgrade() {
            Some(known) if *known == care => known,
            _ => {
                let care = Arc::new(care);
                *last = Arc::downgrade(&care);
                care
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn care(label: &str) -> Care {
        Care {
            ttl: Duration::from_secs(30),
            delay: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            call_timeout: Duration::from_secs(1),
            renew: true,
            max_hold: None,
            label: Arc::from(label),
        }
    }

    #[test]
    fn holds_that_are_looked_after_alike_share_their_care() {
        let cares = Cares::default();
        let one = cares.share(care("a"));
        assert!(Arc::ptr_eq(&one, &cares.share(care("a"))));
        let other = cares.share(care("b"));
        assert_eq!(*other.label, *"b");
        drop((one, other));
        assert_eq!(
            cares.last.lock().unwrap().strong_count(),
            0,
            "nobody's any more"
        );
    }
}
