//! Runs a command while a lock is held, and sees to it that nothing of it outlives the lock.
//!
//! One loop hears of signals, deaths, stops, the lock and the clock, and moves one stage forward:
//! working → ending (asked to) → killing. Taking and freeing the lock is the caller's business.
//! The command is started by a second process, the watchdog, that kills it if this one cannot.

mod death;
mod family;
mod killing;
mod process;
mod reap;
mod schedule;
mod shim;
mod signals;
mod supervisor;
mod terminal;
mod watchdog;

use std::ffi::OsString;
use std::io;
use std::pin::pin;

use ringfence::clock::Clock;
use rustix::process::Signal;

use crate::exit::Exit;
use crate::lease::Lease;
use crate::report::Report;
use supervisor::Supervisor;
use watchdog::News;

pub(crate) use death::{Typed, die_of};
pub(crate) use reap::Ended;
pub(crate) use schedule::{OnLost, StopSchedule};
pub(crate) use signals::Signals;
pub(crate) use terminal::is_ours_to_type_at;
pub(crate) use watchdog::Watchdog;

/// What becomes of processes that the command left behind when it exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Leftovers {
    /// Let them be; the command may have started a service
    Leave,
    /// Hold the lock until they are gone
    Wait,
    /// End them before the lock is freed
    Term,
}

/// A command and the terms on which it runs.
pub(crate) struct SupervisedCommand {
    /// The lock's name, for people.
    pub(crate) lock: String,
    /// Program and arguments; never empty.
    pub(crate) argv: Vec<OsString>,
    /// What is added to its environment.
    pub(crate) env: Vec<(&'static str, String)>,
    /// When it hears of a lost lock.
    pub(crate) schedule: StopSchedule,
    /// What becomes of its leftovers.
    pub(crate) leftovers: Leftovers,
}

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutcome {
    /// How the command ended; `None` if it could not be killed.
    pub(crate) ended: Option<Ended>,
    /// Whether the lock was lost before everything had ended.
    pub(crate) lost: bool,
    /// Whether a signal of ours asked to end.
    pub(crate) told_to_end: bool,
    /// Set if a key pressed at the terminal, such as Ctrl-C, ended the command.
    pub(crate) typed: Option<Typed>,
}

/// Runs `work` under `lease` until nothing of it is left that must not be.
pub(crate) async fn supervise(
    work: &SupervisedCommand,
    lease: &Lease,
    watchdog: &mut Watchdog,
    signals: &mut Signals,
    report: Report,
) -> io::Result<CommandOutcome> {
    let outcome = until_nothing_is_left(work, lease, watchdog, signals, report).await;
    if !matches!(outcome, Ok(Some(_))) {
        // Whatever it has started ends now, before the lock is freed.
        watchdog.end();
    }
    Ok(outcome?.unwrap_or(NOT_STARTED))
}

/// A command that was not started before its lock ended counts as killed.
const NOT_STARTED: CommandOutcome = CommandOutcome {
    ended: Some(Ended::Signal(Signal::KILL.as_raw())),
    lost: true,
    told_to_end: false,
    typed: None,
};

/// `None` if the command was not started in time.
async fn until_nothing_is_left(
    work: &SupervisedCommand,
    lease: &Lease,
    watchdog: &mut Watchdog,
    signals: &mut Signals,
    report: Report,
) -> io::Result<Option<CommandOutcome>> {
    signals.listen_for_forwarded()?;
    let Some(mut supervisor) = Supervisor::start(work, lease, watchdog, report).await? else {
        return Ok(None);
    };
    let mut lost = pin!(lease.lost());
    loop {
        supervisor.look_after_children()?;
        if let Some(outcome) = supervisor.outcome() {
            supervisor.leave();
            return Ok(Some(outcome));
        }
        supervisor.tell_watchdog();
        let wake_at = supervisor.wake_at();
        tokio::select! {
            signal = signals.recv() => supervisor.forward(signal),
            news = supervisor.news() => match news {
                News::Event(event) => supervisor.heard(event),
                News::Died => supervisor.watchdog_died(),
                News::Child => {}
            },
            why = &mut lost, if !supervisor.is_lost() => supervisor.lose(&why.to_string()),
            () = Clock::System.sleep_until(wake_at) => supervisor.time_passed(),
        }
    }
}

/// Does the work of a process that ringfence started for itself, if this is one.
///
/// What cannot be done safely in a forked copy of this process is done in a program of its own.
/// ringfence starts itself again under a name that no program has.
pub(crate) fn run_if_started_for_it() -> Option<Exit> {
    let mut args = std::env::args_os();
    match args.next()?.to_str()? {
        shim::NAME => shim::run(args, Report::default()),
        watchdog::NAME => Some(watchdog::run(args)),
        death::NAME => death::run(args),
        _ => None,
    }
}
