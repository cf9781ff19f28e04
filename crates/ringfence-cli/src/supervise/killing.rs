//! Sends KILL to every process of a command, repeatedly, until none is left.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::Signal;

use super::family::Family;

/// A process that survives KILL for this long hangs in the kernel or belongs to another user.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Killing {
    since: Timestamp,
    /// Whether the surviving processes were reported.
    reported: bool,
}

impl Killing {
    /// Sends KILL to all of `family` for the first time.
    pub(super) fn start(family: &Family) -> Self {
        family.signal_all(Signal::KILL);
        Self {
            since: Clock::System.now(),
            reported: false,
        }
    }

    /// When to send KILL again: a process may have been forked while KILL was sent. The interval
    /// grows with time, because that becomes less likely.
    pub(super) fn again_at(self) -> Timestamp {
        const SOON: Duration = Duration::from_millis(5);
        const LATE: Duration = Duration::from_secs(1);
        let now = Clock::System.now();
        now + (now.since(self.since) / 4).clamp(SOON, LATE)
    }

    /// Sends KILL to all remaining processes of `family`. Returns, once, an error that names the
    /// processes that survive it.
    pub(super) fn again(&mut self, family: &Family) -> Option<String> {
        family.signal_all(Signal::KILL);
        if self.reported || Clock::System.now().since(self.since) < PATIENCE {
            return None;
        }
        self.reported = true;
        let alive = family.living_pids();
        Some(format!("KILL does not end these processes: {alive}"))
    }

    /// Whether processes survive KILL and waiting longer does not help.
    pub(super) fn is_given_up(self) -> bool {
        self.reported
    }
}
