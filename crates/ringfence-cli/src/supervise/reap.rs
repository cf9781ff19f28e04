//! What became of a child: of the command, the watchdog, or an adopted orphan.

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
    /// Whether a signal ended the command, or a part of it that a shell then spoke for: Ctrl-C in
    /// the terminal reaches the command alone, and this is all we hear of it.
    pub(super) fn is_by_signal(self) -> bool {
        const SPOKEN_FOR: [u8; 4] = [129, 130, 131, 143];
        match self {
            Self::Signal(_) => true,
            Self::Code(code) => SPOKEN_FOR.contains(&code),
        }
    }
}

/// News of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It was stopped by this signal.
    Stopped(i32),
    /// It ended and was reaped.
    Ended(Ended),
}

/// Reaps every child that has ended, adopted orphans included, and returns the news of all.
pub(super) fn reap() -> io::Result<Vec<(Pid, Change)>> {
    let mut news = Vec::new();
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => news.extend(change(status).map(|change| (pid, change))),
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(news),
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
