//! A second process that ends the command if ringfence cannot.
//!
//! ringfence starts its watchdog, and the watchdog starts the command: three processes in a row.
//! ringfence renews the lock and tells the watchdog each new deadline.
//!
//! - If ringfence is stopped or stalls, no later deadline arrives. The watchdog kills the command
//!   and all its descendants before the deadline that it knows.
//! - If ringfence dies, the socket between them closes and the watchdog kills at once.
//! - If the watchdog is stopped, ringfence, its parent, continues it.
//! - If the watchdog dies, the kernel kills the command, and makes ringfence the parent of the
//!   command's descendants. ringfence kills them.
//!
//! The watchdog has its own process group, so that neither the terminal nor `kill -STOP` to the
//! group of a script reaches it. It cannot have its own session: the command, its child, would lose
//! the terminal. It starts while ringfence still waits for the lock, and so does the process that
//! will be the command (`shim.rs`), so that the command does not have to wait for them.

mod channel;
mod process;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ringfence_core::time::Timestamp;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::signal::unix::{self, SignalKind, signal};

use super::family::Family;
use super::shim::own_program;
use crate::nodes;
use crate::report::Report;
use channel::{Channel, Order};

pub(super) use channel::{Start, WatchdogEvent, recv_descriptor, send_descriptor};
pub(super) use process::{NAME, run};

/// The watchdog, seen from ringfence. Dropping it ends the watchdog and a command that still runs.
pub(crate) struct Watchdog {
    report: Report,
    /// The command that it will start: program and arguments.
    argv: Vec<OsString>,
    pid: Pid,
    /// `None` after it was closed.
    channel: Option<Channel>,
    deaths: unix::Signal,
    /// The processes below it. `start_command` moves this out.
    family: Option<Family>,
    /// Whether it was told to start a command.
    started: bool,
    reaped: bool,
}

/// An event from the watchdog or the system.
pub(super) enum News {
    /// A message from the watchdog.
    Event(WatchdogEvent),
    /// A child of ours was stopped or ended.
    Child,
    /// The watchdog died.
    Died,
}

impl Watchdog {
    /// Starts the watchdog of the command `argv`. It waits until it may start the command.
    pub(crate) fn start(report: Report, argv: &[OsString]) -> io::Result<Self> {
        // Before the watchdog starts: it must not inherit this signal as ignored.
        let deaths = signal(SignalKind::child())?;
        let mut family = Family::new();
        let (ours, theirs) = StdStream::pair()?;
        // The standard input of the watchdog itself is the socket, so send ours for the command.
        channel::send_descriptor(&ours, io::stdin())?;
        let child = Command::new(own_program()?)
            .arg0(NAME)
            .args(process::args(report, argv))
            // It may contain a password, and the command gets its own (`shim.rs`).
            .env_remove(nodes::NODES)
            .stdin(OwnedFd::from(theirs))
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the watchdog has no process number"))?;
        family.watched_by(pid);
        Ok(Self {
            report,
            argv: argv.to_vec(),
            pid,
            channel: Some(Channel::over(ours)?),
            deaths,
            family: Some(family),
            started: false,
            reaped: false,
        })
    }

    /// Starts a new watchdog if this one was killed before it had a command.
    pub(super) fn renew_if_dead(&mut self) -> io::Result<()> {
        if let Ok(Some((_, status))) = waitpid(Some(self.pid), WaitOptions::NOHANG)
            && !status.stopped()
        {
            self.reaped = true;
            *self = Self::start(self.report, &self.argv)?;
        }
        Ok(())
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether we have noticed that it died.
    pub(super) fn has_died(&self) -> bool {
        self.reaped || self.channel.is_none()
    }

    /// Tells it to start a command. Returns the processes of the command.
    pub(super) fn start_command(&mut self, start: Start) -> io::Result<Family> {
        Family::adopt_orphans()?;
        self.started = true;
        self.tell(&Order::Start(start));
        let family = self.family.take();
        family.ok_or_else(|| io::Error::other("the watchdog already has a command"))
    }

    /// Tells it to kill all processes at `at` and not before. Returns whether the message will
    /// arrive.
    pub(super) fn kill_at(&mut self, at: Timestamp) -> bool {
        self.tell(&Order::KillAt(at.as_nanos()))
    }

    /// Tells it to exit. Processes that the command left running stay.
    pub(super) fn leave(&mut self) {
        self.tell(&Order::Leave);
    }

    /// Continues a stopped watchdog.
    pub(super) fn resume(&self) {
        if !self.reaped {
            // It is our child and was not reaped, so the number is still its own.
            let _ = kill_process(self.pid, Signal::CONT);
        }
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.reaped
    }

    /// Records that it was reaped.
    pub(super) fn was_reaped(&mut self) {
        self.reaped = true;
    }

    /// The next event. Cancel safe.
    pub(super) async fn news(&mut self) -> News {
        let event = async {
            match &mut self.channel {
                Some(channel) => channel.recv().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = event => event,
            _ = self.deaths.recv() => return News::Child,
        };
        match event {
            Some(event) => News::Event(event),
            None => {
                self.channel = None;
                News::Died
            }
        }
    }

    /// Ends it and waits until it has ended. Unless it was told to leave, it first kills all
    /// processes below it.
    pub(super) fn end(&mut self) {
        self.channel = None;
        if !self.started && !self.reaped {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        while !self.reaped {
            self.resume();
            self.reaped = match waitpid(Some(self.pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => !status.stopped(),
                Ok(None) | Err(rustix::io::Errno::INTR) => false,
                Err(_) => true,
            };
        }
    }

    fn tell(&mut self, order: &Order) -> bool {
        match &mut self.channel {
            Some(channel) => channel.send(order),
            None => false,
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}
