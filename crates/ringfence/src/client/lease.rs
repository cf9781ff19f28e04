//! How long a lease may be, and how long a node may take to answer about it.

use std::time::Duration;

use crate::group::Group;

use super::builder::Settings;
use super::error::ConfigError;

/// The shortest TTL: below, the drift and one round trip leave nothing.
pub(super) const TTL_MIN: Duration = Duration::from_millis(50);
/// The longest TTL of a single node, which has no quarantine to outlive: a year.
pub(super) const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

impl Settings {
    /// How long a node may take to answer: unless it was set, a tenth of the TTL, within reason.
    pub(super) fn call_timeout(&self, ttl: Duration) -> Duration {
        let tenth = (ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        self.node_timeout.unwrap_or(tenth)
    }

    /// Checks a TTL for `group`: a node that forgot must stay out until every lock has ended.
    pub(super) fn check_ttl(&self, ttl: Duration, group: &Group) -> Result<(), ConfigError> {
        let least = TTL_MIN.max(self.drift.allowance(ttl).saturating_mul(2));
        if ttl < least {
            return Err(ConfigError::TtlTooShort { ttl, least });
        }
        let most = longest_ttl(group);
        if ttl > most {
            return Err(ConfigError::TtlTooLong { ttl, most });
        }
        Ok(())
    }

    /// The same with a lock delay on top, for which the nodes keep the lock longer.
    pub(super) fn check_lease(
        &self,
        ttl: Duration,
        delay: Duration,
        group: &Group,
    ) -> Result<(), ConfigError> {
        self.check_ttl(ttl, group)?;
        match self.check_ttl(ttl.saturating_add(delay), group) {
            Err(ConfigError::TtlTooLong { most, .. }) => Err(ConfigError::LeaseTooLong {
                ttl,
                lock_delay: delay,
                most,
            }),
            _ => Ok(()),
        }
    }
}

/// The longest TTL that `group` allows. A node that may have forgotten a lock must not vote before
/// that lock has ended; a single node has no quarantine.
pub(super) fn longest_ttl(group: &Group) -> Duration {
    if group.nodes > 1 {
        group.quarantine.saturating_sub(Group::CLOCK_STEP)
    } else {
        TTL_MAX
    }
}

/// Nodes count leases in milliseconds; a fraction more would be ours alone.
pub(super) fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}
