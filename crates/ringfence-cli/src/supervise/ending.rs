//! How processes end: KILL to every process of a command, repeatedly, until none is left; and reaping of
//! children, which are the command, the watchdog, and adopted orphans.

use std::io;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};

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

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Ended {
    /// It exited with a code.
    Code(u8),
    /// A signal ended it.
    Signal(i32),
}

impl Ended {
    /// Whether a signal ended the command, or a shell reported with its exit code that a signal
    /// ended a process in it. Ctrl-C at the terminal reaches only the command, so this is all we
    /// see of it.
    pub(super) fn is_by_signal(self) -> bool {
        const OF_SHELLS: [u8; 4] = [129, 130, 131, 143];
        match self {
            Self::Signal(_) => true,
            Self::Code(code) => OF_SHELLS.contains(&code),
        }
    }
}

/// A change in the state of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was stopped by this signal.
    Stopped(i32),
    /// It ended and was reaped.
    Ended(Ended),
}

/// Reaps every child that has ended, adopted orphans included, and returns all changes.
pub(super) fn reap() -> io::Result<Vec<(Pid, Change)>> {
    let mut changes = Vec::new();
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => changes.extend(change(status).map(|change| (pid, change))),
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(changes),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn change(status: WaitStatus) -> Option<Change> {
    let exited = || {
        let code = status.exit_status()?;
        Some(Ended::Code(u8::try_from(code).unwrap_or(u8::MAX)))
    };
    let killed = || status.terminating_signal().map(Ended::Signal);
    match exited().or_else(killed) {
        Some(ended) => Some(Change::Ended(ended)),
        None => status.stopping_signal().map(Change::Stopped),
    }
}
