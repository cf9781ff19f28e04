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
}

impl Group {
    /// `w`, if neither the builder nor the group sets it.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(5);
    /// The smallest `w`. A smaller window would take normal differences between clocks for faults.
    pub const WINDOW_MIN: Duration = Duration::from_millis(100);
    /// The largest `w`.
    pub const WINDOW_MAX: Duration = Duration::from_secs(3600);
    /// `Q`, if neither the builder nor the group sets it.
    pub const DEFAULT_QUARANTINE: Duration = Duration::from_secs(35);
    /// The grace, if neither the builder nor the group sets it.
    pub const DEFAULT_GRACE: Duration = Duration::from_millis(1500);
    /// The largest backward step of a node's clock that is tolerated (`S`).
    pub const CLOCK_STEP: Duration = Duration::from_secs(5);
    /// How long a node keeps the record of a name after the last write (`R`), at least.
    pub const RETENTION: Duration = Duration::from_secs(60);

    /// The defaults for `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            window: Self::DEFAULT_WINDOW,
            quarantine: Self::DEFAULT_QUARANTINE,
            grace: Self::DEFAULT_GRACE,
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
        // A single node has no quarantine.
        if self.nodes > 1 && self.quarantine < self.least_quarantine() {
            return Err(format!(
                "with a window of {:?} the quarantine must be at least {:?}, not {:?}",
                self.window,
                self.least_quarantine(),
                self.quarantine
            ));
        }
        if self.grace.is_zero() || self.grace > Self::WINDOW_MAX {
            return Err(format!(
                "the grace must be above zero and at most 1 h, not {:?}",
                self.grace
            ));
        }
        Ok(())
    }

    /// The shortest safe quarantine for this window: `2w + S`. The exhaustive search finds two
    /// grants with the same fence for one step less.
    pub fn least_quarantine(&self) -> Duration {
        self.window * 2 + Self::CLOCK_STEP
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} nodes, window {:?}, quarantine {:?}, grace {:?}",
            self.nodes, self.window, self.quarantine, self.grace
        )
    }
}
