//! What the watchdog does, in its own process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::super::family::Family;
use super::super::killing::Killing;
use super::super::process::Identity;
use super::super::reap::{Change, reap};
use super::super::schedule::NEVER;
use super::super::shim;
use super::channel::{Channel, Event, Order, Start, recv_descriptor};
use crate::exit::Exit;
use crate::nodes;
use crate::report::Report;

/// What the watchdog is called in its argument list; no program of that name exists.
pub(in super::super) const NAME: &str = "ringfence: watching over a command";
const JSON: &str = "json";

/// The arguments that tell a watchdog how to report.
pub(super) fn flags(report: Report) -> Option<&'static str> {
    report.json.then_some(JSON)
}

/// Does the watchdog's work, in a process that was started for it.
pub(in super::super) fn run(mut args: impl Iterator<Item = OsString>) -> Exit {
    let report = Report {
        json: args.any(|arg| arg == JSON),
        quiet: false,
    };
    match watch(report) {
        Ok(()) => Exit::Success,
        Err(error) => {
            report.error(&format!("watching over a command: {error}"));
            Exit::Internal
        }
    }
}

fn watch(report: Report) -> io::Result<()> {
    let mask = block_signals()?;
    let stream = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Ok(stdin) = recv_descriptor(&stream) else {
        // ringfence ended before it had a command.
        return Ok(());
    };
    Family::adopt_orphans()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut deaths = signal(SignalKind::child())?;
        let mut watch = Watch::over(Channel::over(stream)?, stdin, mask, report);
        while !watch.is_over() {
            let wake_at = watch.wake_at();
            tokio::select! {
                order = watch.channel.recv(), if !watch.is_alone => match order {
                    Some(Order::Leave) => return Ok(()),
                    Some(Order::Start(start)) => watch.start(start),
                    Some(Order::KillAt(at)) => watch.kill_at = Timestamp::from_nanos(at),
                    None => watch.ringfence_died(),
                },
                _ = deaths.recv() => watch.look_after_children()?,
                () = until(wake_at) => watch.time_passed(),
            }
        }
        Ok(())
    })
}

/// Only KILL and STOP are left. The terminal, a service manager that sends TERM to every process of
/// a service: they mean the command, and ringfence decides. Returns the mask from before, which is
/// the command's.
fn block_signals() -> io::Result<SigSet> {
    let mut mask = SigSet::all();
    mask.remove(NixSignal::SIGCHLD);
    Ok(mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?)
}

async fn until(at: Timestamp) {
    if at == NEVER {
        std::future::pending::<()>().await;
    }
    Clock::System.sleep_until(at).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is no command yet.
    Idle,
    /// The command may run until `kill_at`.
    Watching,
    /// Everything gets KILL until nothing is left alive.
    Killing(Killing),
    /// Nothing is left alive.
    Done,
}

struct Watch {
    channel: Channel,
    report: Report,
    /// The command's standard input, until it is started.
    stdin: Option<OwnedFd>,
    /// The signals that the command starts with as blocked.
    mask: SigSet,
    family: Family,
    lock: String,
    command: Option<Pid>,
    kill_at: Timestamp,
    stage: Stage,
    /// Whether ringfence died.
    is_alone: bool,
}

impl Watch {
    fn over(channel: Channel, stdin: OwnedFd, mask: SigSet, report: Report) -> Self {
        Self {
            channel,
            report,
            stdin: Some(stdin),
            mask,
            family: Family::new(),
            lock: String::new(),
            command: None,
            kill_at: NEVER,
            stage: Stage::Idle,
            is_alone: false,
        }
    }

    fn start(&mut self, start: Start) {
        self.lock.clone_from(&start.lock);
        self.kill_at = Timestamp::from_nanos(start.kill_at);
        if Clock::System.now() >= self.kill_at {
            self.channel.send(&Event::Overdue);
            return;
        }
        let event = match self.spawn(start) {
            Ok(command) => Event::Started(command),
            Err(error) => Event::NotStarted(error.raw_os_error().unwrap_or_default()),
        };
        self.channel.send(&event);
    }

    fn spawn(&mut self, start: Start) -> io::Result<Identity> {
        let mut command = shim::command(&start.argv, start.foreground, self.mask)?;
        if let Some(stdin) = self.stdin.take() {
            command.stdin(stdin);
        }
        // The node list may contain a password. `start.env` names the nodes without passwords.
        let child = command
            .env_remove(nodes::NODES)
            .env_remove(nodes::NODES_FILE)
            .envs(start.env)
            .spawn()?;
        self.stage = Stage::Watching;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.command = pid;
        // Nobody but us reaps it, so the number is still its own.
        let command = pid
            .and_then(Identity::of)
            .ok_or_else(|| io::Error::other("the command has no process number"))?;
        self.family.led_by(command);
        Ok(command)
    }

    fn look_after_children(&mut self) -> io::Result<()> {
        let command = self.command;
        let mut others = false;
        for (pid, change) in reap()? {
            match change {
                Change::Stopped(signal) if Some(pid) == command => {
                    self.channel.send(&Event::Stopped(signal));
                }
                Change::Ended(ended) if Some(pid) == command => {
                    self.family.leader_reaped();
                    self.channel.send(&Event::Ended(ended));
                }
                Change::Ended(_) => others = true,
                Change::Stopped(_) => {}
            }
        }
        if others {
            self.channel.send(&Event::OtherEnded);
        }
        Ok(())
    }

    fn ringfence_died(&mut self) {
        self.is_alone = true;
        if self.stage == Stage::Watching {
            self.kill_all();
        }
    }

    fn kill_all(&mut self) {
        self.stage = Stage::Killing(Killing::start(&self.family));
    }

    fn wake_at(&self) -> Timestamp {
        match self.stage {
            Stage::Idle | Stage::Done => NEVER,
            Stage::Watching => self.kill_at,
            Stage::Killing(killing) => killing.again_at(),
        }
    }

    fn time_passed(&mut self) {
        match &mut self.stage {
            Stage::Watching if Clock::System.now() >= self.kill_at => {
                self.kill_all();
                self.channel.send(&Event::Overdue);
            }
            Stage::Killing(killing) => {
                let trouble = killing.again(&self.family);
                if !self.family.is_alive() {
                    self.stage = Stage::Done;
                    self.say_why();
                } else if let Some(trouble) = trouble {
                    self.say_why();
                    self.report.error(&trouble);
                }
            }
            Stage::Idle | Stage::Watching | Stage::Done => {}
        }
    }

    /// Said after the killing: nobody may read what we write, and then we hang.
    fn say_why(&self) {
        let why = if self.is_alone {
            "ringfence was killed"
        } else {
            "ringfence was stopped or stalled and did not renew it in time"
        };
        let lock = &self.lock;
        self.report.error(&format!(
            "lost the lock `{lock}`: {why}; killed the command"
        ));
    }

    fn is_over(&self) -> bool {
        let is_over = match self.stage {
            Stage::Idle | Stage::Done => true,
            Stage::Watching => false,
            Stage::Killing(killing) => killing.is_given_up(),
        };
        self.is_alone && is_over
    }
}
