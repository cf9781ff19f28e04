//! Runs a command while a lock is held, and ends it and all its descendants before the lock ends.
//!
//! One loop handles signals, ended and stopped processes, the loss of the lock, and time. It moves
//! the command from stage to stage: working → ending (was asked to end) → killing. The caller takes
//! and releases the lock. A second process, the watchdog, starts the command, and kills it if this
//! process cannot.

mod ending;
mod family;
mod process;
mod schedule;
mod shim;
mod signals;
mod supervisor;
mod terminal;
mod watchdog;

use std::io;
use std::pin::pin;

use ringfence::clock::Clock;
use rustix::process::Signal;

use crate::exit::Exit;
use crate::lease::Lease;
use crate::report::Report;
use supervisor::Supervisor;
use watchdog::News;

pub(crate) use ending::Ended;
pub(crate) use schedule::{OnLost, StopSchedule};
pub(crate) use signals::{Signals, Typed, die_of};
pub(crate) use terminal::is_ours_to_type_at;
pub(crate) use watchdog::Watchdog;

/// What to do with processes that run on after the command has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Leftovers {
    /// Leave them running; the command may have started a service
    Leave,
    /// Hold the lock until they end
    Wait,
    /// End them before the lock is released
    Term,
}

/// A command, and how it is supervised.
pub(crate) struct SupervisedCommand {
    /// The name of the lock, for messages.
    pub(crate) lock: String,
    /// Variables that are added to its environment.
    pub(crate) env: Vec<(&'static str, String)>,
    /// When it gets which signal.
    pub(crate) schedule: StopSchedule,
    /// What to do with its leftovers.
    pub(crate) leftovers: Leftovers,
}

/// The result of supervising a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutcome {
    /// How the command ended; `None` if it could not be killed.
    pub(crate) ended: Option<Ended>,
    /// Whether the lock was lost before everything had ended.
    pub(crate) lost: bool,
    /// Whether a signal asked ringfence to end.
    pub(crate) told_to_end: bool,
    /// Set if a key pressed at the terminal, such as Ctrl-C, ended the command.
    pub(crate) typed: Option<Typed>,
}

/// Runs `work` under `lease` until every process that must end with it has ended.
pub(crate) async fn supervise(
    work: &SupervisedCommand,
    lease: &Lease,
    watchdog: &mut Watchdog,
    signals: &mut Signals,
    report: Report,
) -> io::Result<CommandOutcome> {
    let outcome = run_to_the_end(work, lease, watchdog, signals, report).await;
    if !matches!(outcome, Ok(Some(_))) {
        // Kill what it has started, before the lock is released.
        watchdog.end();
    }
    Ok(outcome?.unwrap_or(NOT_STARTED))
}

/// The result for a command that could not be started before its lock ended: it counts as killed.
const NOT_STARTED: CommandOutcome = CommandOutcome {
    ended: Some(Ended::Signal(Signal::KILL.as_raw())),
    lost: true,
    told_to_end: false,
    typed: None,
};

/// `None` if the command was not started in time.
async fn run_to_the_end(
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
        supervisor.reap_children()?;
        if let Some(outcome) = supervisor.outcome() {
            supervisor.leave();
            return Ok(Some(outcome));
        }
        supervisor.inform_watchdog();
        let wake_at = supervisor.wake_at();
        tokio::select! {
            signal = signals.recv() => supervisor.handle_signal(signal),
            news = supervisor.news() => match news {
                News::Event(event) => supervisor.handle_event(event),
                News::Died => supervisor.watchdog_died(),
                News::Child => {}
            },
            why = &mut lost, if !supervisor.is_lost() => supervisor.lose(&lease.describe(why)),
            () = Clock::System.sleep_until(wake_at) => supervisor.time_passed(),
        }
    }
}

/// Runs one of the internal helper programs if this process was started as one.
///
/// Some work cannot be done safely in a forked copy of this process. ringfence then executes itself
/// with a process name (`argv[0]`) that no other program has.
pub(crate) fn run_if_internal() -> Option<Exit> {
    let mut args = std::env::args_os();
    match args.next()?.to_str()? {
        shim::NAME => shim::run(args),
        watchdog::NAME => Some(watchdog::run(args)),
        signals::DYING => signals::die(args),
        _ => None,
    }
}
