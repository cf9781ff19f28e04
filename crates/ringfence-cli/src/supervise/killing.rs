//! KILL for every process of a command, again and again until none is left.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::Signal;

use super::family::Family;

/// A process that outlives KILL for this long hangs in the kernel or belongs to another user.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Killing {
    since: Timestamp,
    /// Whether it was reported that some processes outlive it.
    told: bool,
}

impl Killing {
    /// Sends KILL to all of `family` for the first time.
    pub(super) fn start(family: &Family) -> Self {
        family.signal_all(Signal::KILL);
        Self {
            since: Clock::System.now(),
            told: false,
        }
    }

    /// When KILL goes out again, for what was forked while it went out before. The longer ago that
    /// is, the less it helps.
    pub(super) fn again_at(self) -> Timestamp {
        const SOON: Duration = Duration::from_millis(5);
        const LATE: Duration = Duration::from_secs(1);
        let now = Clock::System.now();
        now + (now.since(self.since) / 4).clamp(SOON, LATE)
    }

    /// Sends KILL to all that are left of `family`. Returns once what to report: which processes
    /// outlive it.
    pub(super) fn again(&mut self, family: &Family) -> Option<String> {
        family.signal_all(Signal::KILL);
        if self.told || Clock::System.now().since(self.since) < PATIENCE {
            return None;
        }
        self.told = true;
        let alive = family.roll_call();
        Some(format!("KILL does not end these processes: {alive}"))
    }

    /// Whether there is nothing more to wait for.
    pub(super) fn is_given_up(self) -> bool {
        self.told
    }
}
