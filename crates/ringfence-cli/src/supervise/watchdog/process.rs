//! The watchdog process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::Pid;
use tokio::signal::unix::{SignalKind, signal};

use super::super::ending::{Change, Killing, reap};
use super::super::family::Family;
use super::super::process::ProcessIdentity;
use super::super::schedule::NEVER;
use super::super::shim::{Go, Shim};
use super::channel::{Channel, Order, Start, WatchdogEvent, recv_descriptor};
use crate::exit::Exit;
use crate::report::Report;

/// The process name of the watchdog. No other program has it.
pub(in super::super) const NAME: &str = "ringfence: watching over a command";
/// The arguments of the watchdog: the format of its output, then the command.
pub(super) fn args(report: Report, argv: &[OsString]) -> impl Iterator<Item = OsString> {
    let format = OsString::from(report.format());
    [format].into_iter().chain(argv.to_vec())
}

/// The main function of the watchdog.
pub(in super::super) fn run(mut args: impl Iterator<Item = OsString>) -> Exit {
    let report = Report::of_format(&args.next().unwrap_or_default());
    match watch(report, args.collect()) {
        Ok(()) => Exit::Success,
        Err(error) => {
            report.error(&format!("the watchdog failed: {error}"));
            Exit::Internal
        }
    }
}

fn watch(report: Report, argv: Vec<OsString>) -> io::Result<()> {
    let mask = block_signals()?;
    let stream = StdStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let Ok(stdin) = recv_descriptor(&stream) else {
        // ringfence ended before it started a command.
        return Ok(());
    };
    Family::adopt_orphans()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut deaths = signal(SignalKind::child())?;
        let mut watch = CommandWatch::over(Channel::over(stream)?, stdin, mask, report);
        watch.argv = argv;
        // Without a shim that waits, the command starts a little later.
        watch.shim = watch.spawn_shim().ok();
        while !watch.is_over() {
            let wake_at = watch.wake_at();
            tokio::select! {
                order = watch.channel.recv(), if !watch.is_alone => match order {
                    Some(Order::Leave) => return Ok(()),
                    Some(Order::Start(start)) => watch.start(start),
                    Some(Order::KillAt(at)) => watch.kill_at = Timestamp::from_nanos(at),
                    None => watch.ringfence_died(),
                },
                _ = deaths.recv() => watch.reap_children()?,
                () = until(wake_at) => watch.time_passed(),
            }
        }
        Ok(())
    })
}

/// Blocks all signals except KILL, STOP and CHLD. A terminal, or a service manager that sends TERM
/// to every process of a service, wants to end the command: that is the decision of ringfence.
/// Returns the previous mask, for the command.
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
enum WatchStage {
    /// There is no command yet.
    Idle,
    /// The command may run until `kill_at`.
    Watching,
    /// All processes get KILL until none is alive.
    Killing(Killing),
    /// No process is alive.
    Done,
}

struct CommandWatch {
    channel: Channel,
    report: Report,
    /// Program and arguments of the command.
    argv: Vec<OsString>,
    /// The process that will be the command.
    shim: Option<Shim>,
    /// The command's standard input, until the command starts.
    stdin: Option<OwnedFd>,
    /// The signals that are blocked in the command.
    mask: SigSet,
    family: Family,
    lock: String,
    command: Option<Pid>,
    kill_at: Timestamp,
    stage: WatchStage,
    /// Whether ringfence died.
    is_alone: bool,
}

impl CommandWatch {
    fn over(channel: Channel, stdin: OwnedFd, mask: SigSet, report: Report) -> Self {
        Self {
            channel,
            report,
            argv: Vec::new(),
            shim: None,
            stdin: Some(stdin),
            mask,
            family: Family::new(),
            lock: String::new(),
            command: None,
            kill_at: NEVER,
            stage: WatchStage::Idle,
            is_alone: false,
        }
    }

    fn start(&mut self, start: Start) {
        self.lock.clone_from(&start.lock);
        self.kill_at = Timestamp::from_nanos(start.kill_at);
        if Clock::System.now() >= self.kill_at {
            self.channel.send(&WatchdogEvent::Overdue);
            return;
        }
        let event = match self.spawn(start) {
            Ok(command) => WatchdogEvent::Started(command),
            Err(error) => WatchdogEvent::NotStarted(error.raw_os_error().unwrap_or_default()),
        };
        self.channel.send(&event);
    }

    fn spawn_shim(&self) -> io::Result<Shim> {
        let stdin = self.stdin.as_ref();
        let stdin = stdin.ok_or_else(|| io::Error::other("the command was started already"))?;
        Shim::spawn(&self.argv, stdin, self.mask, self.report)
    }

    fn spawn(&mut self, start: Start) -> io::Result<ProcessIdentity> {
        let go = Go {
            foreground: start.foreground,
            env: start.env,
        };
        let command = match self.shim.take().map(|shim| release(shim, &go)) {
            // It was killed while it waited.
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => None,
            released => released.transpose()?,
        };
        let command = match command {
            Some(command) => command,
            None => release(self.spawn_shim()?, &go)?,
        };
        self.stdin = None;
        self.stage = WatchStage::Watching;
        self.command = Some(command.pid);
        self.family.led_by(command);
        Ok(command)
    }

    fn reap_children(&mut self) -> io::Result<()> {
        let command = self.command;
        let mut others = false;
        for (pid, change) in reap()? {
            match change {
                Change::Stopped(signal) if Some(pid) == command => {
                    self.channel.send(&WatchdogEvent::Stopped(signal));
                }
                Change::Ended(ended) if Some(pid) == command => {
                    self.family.leader_reaped();
                    self.channel.send(&WatchdogEvent::Ended(ended));
                }
                Change::Ended(_) if self.is_waiting_shim(pid) => self.shim = None,
                Change::Ended(_) => others = true,
                Change::Stopped(_) => {}
            }
        }
        if others {
            self.channel.send(&WatchdogEvent::OtherEnded);
        }
        Ok(())
    }

    fn is_waiting_shim(&self, pid: Pid) -> bool {
        self.shim.as_ref().is_some_and(|shim| shim.pid() == pid)
    }

    fn ringfence_died(&mut self) {
        self.is_alone = true;
        if self.stage == WatchStage::Watching {
            self.kill_all();
        }
    }

    fn kill_all(&mut self) {
        self.stage = WatchStage::Killing(Killing::start(&self.family));
    }

    fn wake_at(&self) -> Timestamp {
        match self.stage {
            WatchStage::Idle | WatchStage::Done => NEVER,
            WatchStage::Watching => self.kill_at,
            WatchStage::Killing(killing) => killing.again_at(),
        }
    }

    fn time_passed(&mut self) {
        match &mut self.stage {
            WatchStage::Watching if Clock::System.now() >= self.kill_at => {
                self.kill_all();
                self.channel.send(&WatchdogEvent::Overdue);
            }
            WatchStage::Killing(killing) => {
                let trouble = killing.again(&self.family);
                if !self.family.is_alive() {
                    self.stage = WatchStage::Done;
                    self.report_loss();
                } else if let Some(trouble) = trouble {
                    self.report_loss();
                    self.report.error(&trouble);
                }
            }
            WatchStage::Idle | WatchStage::Watching | WatchStage::Done => {}
        }
    }

    /// Called after the killing: if no process reads our stderr, this write blocks.
    fn report_loss(&self) {
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
            WatchStage::Idle | WatchStage::Done => true,
            WatchStage::Watching => false,
            WatchStage::Killing(killing) => killing.is_given_up(),
        };
        self.is_alone && is_over
    }
}

/// Lets `shim` execute its command.
fn release(shim: Shim, go: &Go) -> io::Result<ProcessIdentity> {
    // Only we reap it, so the number is still its own.
    let command = ProcessIdentity::of(shim.pid())
        .ok_or_else(|| io::Error::other("the command has no process number"))?;
    shim.go(go)?;
    Ok(command)
}
