//! How long a lease may be, and how long a node may take to answer about it.

use std::time::Duration;

use crate::protocol::Cluster;

use super::error::ConfigError;
use super::settings::Settings;

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

    /// Checks a TTL, where `most` is the longest: a node that forgot must stay out until every lock
    /// has ended.
    pub(super) fn check_ttl(&self, ttl: Duration, most: Duration) -> Result<(), ConfigError> {
        let least = TTL_MIN.max(self.drift.allowance(ttl).saturating_mul(2));
        if ttl < least {
            return Err(ConfigError::TtlTooShort { ttl, least });
        }
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
        most: Duration,
    ) -> Result<(), ConfigError> {
        self.check_ttl(ttl, most)?;
        match self.check_ttl(ttl.saturating_add(delay), most) {
            Err(ConfigError::TtlTooLong { most, .. }) => Err(ConfigError::LeaseTooLong {
                ttl,
                lock_delay: delay,
                most,
            }),
            _ => Ok(()),
        }
    }
}

/// The longest TTL that the nodes allow. A node that may have forgotten a lock must not vote before
/// that lock has ended. A single node that no failover replaces has no quarantine.
pub(super) fn longest_ttl(cluster: &Cluster) -> Duration {
    cluster.longest_lease().unwrap_or(TTL_MAX)
}

/// Nodes count leases in milliseconds; a fraction more would be ours alone.
pub(super) fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}
