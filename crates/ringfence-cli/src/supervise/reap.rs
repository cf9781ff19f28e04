//! Reaps children: the command, the watchdog, and adopted orphans.

use std::io;

use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

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
