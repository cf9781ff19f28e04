//! The values on which all clients of one set of nodes must agree, as each node keeps them.

use std::fmt;
use std::time::Duration;

/// The values that a node's `born` record carries for its whole group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// How many nodes there are (`N`).
    pub nodes: usize,
    /// How far a ballot may be from a node's clock (`w`).
    pub window: Duration,
    /// How long a node that may have forgotten does not vote (`Q`).
    pub quarantine: Duration,
    /// How long a head of the queue may stand still before the next may pass.
    pub grace: Duration,
}

impl Group {
    /// `w` unless the builder or the group says otherwise.
    pub const DEFAULT_WINDOW: Duration = Duration::from_secs(5);
    /// The least `w`: below it, clocks that agree would be taken to differ.
    pub const WINDOW_MIN: Duration = Duration::from_millis(100);
    /// The largest `w`.
    pub const WINDOW_MAX: Duration = Duration::from_secs(3600);
    /// `Q` unless the builder or the group says otherwise.
    pub const DEFAULT_QUARANTINE: Duration = Duration::from_secs(35);
    /// The grace unless the builder or the group says otherwise.
    pub const DEFAULT_GRACE: Duration = Duration::from_millis(1500);
    /// The largest backward step of a node's clock that is tolerated (`S`).
    pub const CLOCK_STEP: Duration = Duration::from_secs(5);
    /// How long a name's record is kept (`R`), at least.
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

    /// `R`: never below the threshold under which a forgotten fence can come back (one less breaks).
    pub fn retention(&self) -> Duration {
        Self::RETENTION.max(self.least_quarantine())
    }

    /// Whether these values are safe to use, whoever said them.
    ///
    /// # Errors
    /// What is wrong with them, in words.
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
            return Err(format!("the grace must be up to 1 h, not {:?}", self.grace));
        }
        Ok(())
    }

    /// The shortest quarantine that is safe with this window: `2w + S` (one less breaks).
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
