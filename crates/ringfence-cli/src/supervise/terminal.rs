//! The controlling terminal, and which process group has it.
//!
//! The command runs in its own process group. Without help it would be a background job: it would
//! be stopped at its first read, and Ctrl-C would not reach it. So ringfence lends it the terminal,
//! as a shell does.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use rustix::process::{Pid, getpgid, getpgrp, getppid, getsid, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal that this process was started from.
pub(super) struct Terminal {
    tty: File,
    /// The group that the terminal is lent to.
    borrower: Option<Pid>,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub(super) fn open() -> Option<Self> {
        let tty = open_tty().ok()?;
        Some(Self {
            tty,
            borrower: None,
        })
    }

    /// Whether our own group has the terminal, so that we may lend it.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == getpgrp())
    }

    /// Whether a key such as Ctrl-C sends its signal to `group`.
    pub(super) fn is_lent_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|foreground| foreground == group)
    }

    /// Whether the command should have the terminal from the start.
    ///
    /// In a pipeline another process may need the terminal (`ringfence run … | less`). There the
    /// command gets it only when the kernel stops the command for reading from it.
    pub(super) fn suits_command(&self) -> bool {
        self.is_ours() && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Records that `group` has taken the terminal itself (see [`claim`]).
    pub(super) fn lent_to(&mut self, group: Pid) {
        self.borrower = Some(group);
    }

    /// Lends the terminal to `group`.
    pub(super) fn lend(&mut self, group: Pid) {
        if hand_to(&self.tty, group).is_ok() {
            self.borrower = Some(group);
        }
    }

    /// Takes the terminal from the borrower. If another process group has it by now, such as the
    /// shell after `bg`, it stays there.
    pub(super) fn reclaim(&mut self) {
        let Some(borrower) = self.borrower.take() else {
            return;
        };
        let on_loan = tcgetpgrp(&self.tty)
            .is_ok_and(|group| group == borrower || test_kill_process_group(group).is_err());
        if on_loan {
            // If this fails, the shell takes the terminal when we exit.
            let _ = hand_to(&self.tty, getpgrp());
        }
    }
}

/// Whether INT or QUIT to this process may come from the keyboard: our group has the terminal, and
/// one of our standard streams is the terminal. A test or a service may have a controlling terminal
/// without using it.
pub(crate) fn is_ours_to_type_at() -> bool {
    let is_used =
        io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    is_used && Terminal::open().is_some_and(|terminal| terminal.is_ours())
}

/// Makes our own process group the foreground group of the terminal.
pub(super) fn claim() -> io::Result<()> {
    hand_to(open_tty()?, getpgrp())
}

/// Whether a shell controls our process group, and can continue us after a stop.
///
/// A group without such a shell is *orphaned*: the kernel ignores Ctrl-Z there, and so must we,
/// because no process would continue us.
pub(super) fn is_job_of_a_shell() -> bool {
    let group = getpgrp();
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        if getpgid(Some(pid)) != Ok(group) {
            return getsid(Some(pid)) == getsid(None);
        }
        ancestor = super::process::parent_of(pid);
    }
    false
}

fn open_tty() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

/// Makes `group` the foreground group. SIGTTOU is blocked meanwhile: otherwise the kernel stops a
/// background process that tries this.
fn hand_to(tty: impl AsFd, group: Pid) -> io::Result<()> {
    let mut mask = SigSet::empty();
    mask.add(NixSignal::SIGTTOU);
    let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let handed = tcsetpgrp(tty, group);
    before.thread_set_mask()?;
    Ok(handed?)
}
