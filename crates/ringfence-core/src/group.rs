//! The values on which all clients of one set of nodes must agree. Each node stores a copy.

use std::fmt;
use std::time::Duration;

/// The group values, as a node's birth record (`born`) stores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// The number of nodes (`N`).
    pub nodes: usize,
    /// The largest distance between a ballot and a node's clock (`w`).
    pub window: Duration,
    /// How long a node that may have lost its data may not vote (`Q`).
    pub quarantine: Duration,
    /// How long each ticket ahead in the wait queue has to acquire before the next waiter may pass
    /// it.
    pub grace: Duration,
    /// What a failover behind the only node of the group costs.
    pub failover: Failover,
    /// For how long after a promotion a client may still count answers of the former master (`X`).
    /// With Sentinels the clients keep to it: they count a vote only if the Sentinels confirmed it
    /// that recently. Without Sentinels it is an assumption about the service.
    pub stale_master: Duration,
    /// A grant whose reply is read later than this after the attempt began does not count (`D`), on
    /// a node with a failover behind it.
    pub reply_within: Duration,
}

/// What a failover behind the only node of a group costs. Several nodes always have the quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Failover {
    /// [`Quarantine`](Self::Quarantine) if the server is known to be replicated; otherwise a birth
    /// costs nothing.
    #[default]
    Auto,
    /// After a birth the node grants nothing for a whole quarantine. Holders are carried through.
    Quarantine,
    /// The operator's word that a promotion loses no write that was acknowledged: the service has a
    /// replicated log. A promotion costs nothing.
    Lossless,
    /// Best effort: a promotion may make two holders.
    Ignore,
}

impl Failover {
    /// All values, in the order of their documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Quarantine, Self::Lossless, Self::Ignore];

    /// Whether a birth of the only node starts a quarantine. `replicated`: the server has or had
    /// replicas, or Sentinels watch it.
    pub fn quarantines(self, replicated: bool) -> bool {
        match self {
            Self::Auto => replicated,
            Self::Quarantine => true,
            Self::Lossless | Self::Ignore => false,
        }
    }

    /// The word for people and in URLs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Quarantine => "quarantine",
            Self::Lossless => "lossless",
            Self::Ignore => "ignore",
        }
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Group {
    /// `w`, if neither the builder nor the group sets it.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(5);
    /// The smallest `w`. A smaller window would take normal differences between clocks for faults.
    pub const WINDOW_MIN: Duration = Duration::from_millis(100);
    /// The largest `w`.
    pub const WINDOW_MAX: Duration = Duration::from_secs(3600);
    /// The largest `Q`, `X` and `D`: as long as the longest lease.
    pub const QUARANTINE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
    /// `Q`, if neither the builder nor the group sets it.
    pub const DEFAULT_QUARANTINE: Duration = Duration::from_secs(35);
    /// The grace, if neither the builder nor the group sets it.
    pub const DEFAULT_GRACE: Duration = Duration::from_millis(1500);
    /// The largest backward step of a node's clock that is tolerated (`S`).
    pub const CLOCK_STEP: Duration = Duration::from_secs(5);
    /// How long a node keeps the record of a name after the last write (`R`), at least.
    pub const RETENTION: Duration = Duration::from_secs(60);
    /// `X` of a group without Sentinels: within this time after a promotion the former primary must
    /// have stopped serving.
    pub const STALE_MASTER_PLAIN: Duration = Duration::from_secs(5);
    /// `X` of a group with Sentinels.
    pub const STALE_MASTER_SENTINEL: Duration = Duration::from_secs(2);
    /// `D`, if neither the builder nor the group sets it.
    pub const DEFAULT_REPLY_WITHIN: Duration = Duration::from_secs(1);

    /// The defaults for `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            window: Self::DEFAULT_WINDOW,
            quarantine: Self::DEFAULT_QUARANTINE,
            grace: Self::DEFAULT_GRACE,
            failover: Failover::Auto,
            stale_master: Self::STALE_MASTER_PLAIN,
            reply_within: Self::DEFAULT_REPLY_WITHIN,
        }
    }

    /// `R`: at least `2w + S`. With less, a node may drop a record while its fence still matters,
    /// and two grants may get the same fence. The exhaustive search finds this for one step less.
    pub fn retention(&self) -> Duration {
        Self::RETENTION.max(self.least_quarantine())
    }

    /// Checks that these values are safe to use, wherever they come from.
    ///
    /// # Errors
    /// A sentence that says which value is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.window < Self::WINDOW_MIN || self.window > Self::WINDOW_MAX {
            return Err(format!(
                "the window must be between 100 ms and 1 h, not {:?}",
                self.window
            ));
        }
        // Whether a failover may replace a single node is not known here.
        let quarantines = self.nodes > 1 || self.failover == Failover::Quarantine;
        if quarantines && self.quarantine < self.least_quarantine() {
            return Err(format!(
                "with a window of {:?} the quarantine must be at least {:?}, not {:?}",
                self.window,
                self.least_quarantine(),
                self.quarantine
            ));
        }
        // A birth record may be hostile. Without a limit the arithmetic on these times overflows.
        if self.quarantine > Self::QUARANTINE_MAX {
            return Err(format!(
                "the quarantine must be at most 365 days, not {:?}",
                self.quarantine
            ));
        }
        if self.grace.is_zero() || self.grace > Self::WINDOW_MAX {
            return Err(format!(
                "the grace must be above zero and at most 1 h, not {:?}",
                self.grace
            ));
        }
        let overlap = self.stale_master.saturating_add(self.reply_within);
        let is_zero = self.stale_master.is_zero() || self.reply_within.is_zero();
        if overlap > Self::QUARANTINE_MAX {
            return Err(format!(
                "the time for which a former master may serve and the time for a reply must be at \
                 most 365 days together, not {overlap:?}"
            ));
        }
        // Only holders on a single node are carried through a quarantine.
        let carries = quarantines && self.nodes == 1;
        if is_zero || carries && overlap > self.quarantine {
            return Err(format!(
                "the time for which a former master may serve ({:?}) and the time for a reply \
                 ({:?}) must be above zero and fit into the quarantine of {:?}",
                self.stale_master, self.reply_within, self.quarantine
            ));
        }
        if self.nodes > 1 && self.failover != Failover::Auto {
            return Err(format!(
                "failover={} is for a single node; {} nodes always have the quarantine",
                self.failover, self.nodes
            ));
        }
        Ok(())
    }

    /// The shortest safe quarantine for this window: `2w + S`. The exhaustive search finds two
    /// grants with the same fence for one step less.
    pub fn least_quarantine(&self) -> Duration {
        self.window
            .saturating_mul(2)
            .saturating_add(Self::CLOCK_STEP)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes, window {:?}, quarantine {:?}, grace {:?}",
            self.nodes, self.window, self.quarantine, self.grace
        )?;
        if self.nodes == 1 {
            write!(
                f,
                ", failover {}, former master {:?}, reply within {:?}",
                self.failover, self.stale_master, self.reply_within
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A birth record of a hostile or broken program may have any value.
    #[test]
    fn values_beyond_their_limits_are_refused_and_those_at_the_limits_can_be_used() {
        let group = Group::new(3);
        let day = Duration::from_secs(24 * 3600);
        let beyond = Group::QUARANTINE_MAX + Duration::from_millis(1);
        let most = Duration::MAX;
        for quarantine in [beyond, most] {
            assert!(
                Group {
                    quarantine,
                    ..group
                }
                .check()
                .is_err()
            );
        }
        for window in [Group::WINDOW_MAX + Duration::from_micros(1), most] {
            // Long enough for this window, so that only the window is wrong.
            let quarantine = Group::QUARANTINE_MAX;
            let group = Group {
                window,
                quarantine,
                ..group
            };
            assert!(group.check().is_err());
            // Does not overflow, although the check comes first.
            assert!(group.retention() > day || group.window < most);
        }
        for (stale_master, reply_within) in [(beyond, day), (day, most), (most, most)] {
            let group = Group {
                stale_master,
                reply_within,
                ..group
            };
            assert!(group.check().is_err());
        }
        let largest = Group {
            window: Group::WINDOW_MAX,
            quarantine: Group::QUARANTINE_MAX,
            grace: Group::WINDOW_MAX,
            ..group
        };
        largest.check().unwrap();
        let cluster =
            crate::protocol::Cluster::new(&largest, crate::protocol::Drift::default(), &[true; 3]);
        assert!(cluster.quarantine() > Group::QUARANTINE_MAX);
    }
}
