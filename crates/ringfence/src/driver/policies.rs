//! Holds that are looked after alike share one policy.

use std::sync::{Arc, Mutex, Weak};

use crate::protocol::HoldPolicy;

use super::lock;

/// The policy that holds of one client have in common. Most are looked after alike, and there may be a
/// hundred thousand: one for them all.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    last: Mutex<Weak<HoldPolicy>>,
}

impl Policies {
    /// `policy`, shared with the holds before if it is equal to theirs.
    pub(super) fn share(&self, policy: HoldPolicy) -> Arc<HoldPolicy> {
        let mut last = lock(&self.last);
        match last.upgrade() {
            Some(known) if *known == policy => known,
            _ => {
                let policy = Arc::new(policy);
                *last = Arc::downgrade(&policy);
                policy
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::Drift;

    fn policy(label: &str) -> HoldPolicy {
        HoldPolicy {
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            call_timeout: Duration::from_secs(1),
            drift: Drift::default(),
            renew: true,
            max_hold: None,
            label: Arc::from(label),
        }
    }

    #[test]
    fn holds_that_are_looked_after_alike_share_their_policy() {
        let policies = Policies::default();
        let one = policies.share(policy("a"));
        assert!(Arc::ptr_eq(&one, &policies.share(policy("a"))));
        let other = policies.share(policy("b"));
        assert_eq!(*other.label, *"b");
        drop((one, other));
        assert_eq!(
            policies.last.lock().unwrap().strong_count(),
            0,
            "no hold has it any more"
        );
    }
}
