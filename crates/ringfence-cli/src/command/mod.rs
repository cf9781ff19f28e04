//! The commands, and what they share: a connected client, and the reaction to
//! signals.

mod bench;
mod break_lock;
mod config;
mod doctor;
mod failure;
mod init;
mod job;
pub(crate) mod json;
mod leader;
pub(crate) mod ls;
mod mark;
pub(crate) mod status;
pub(crate) mod take;
mod token;
mod waiting;
pub(crate) mod watch;

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use ringfence::{ConnectError, Locks};
use rustix::process::Signal;

use crate::args::{Cli, CliCommand, Global, LockCommand};
use crate::completion;
use crate::config::Config;
use crate::dashboard;
use crate::exit::Exit;
use crate::manual;
use crate::metrics_file::MetricsFile;
use crate::nodes::{self, Nodes};
use crate::report::{CliFailure, Report, print};
use crate::serve;
use crate::supervise::{Signals, Typed, Watchdog, is_ours_to_type_at};

/// How long to wait for releases at the end if nodes do not answer. A lock that is not released by
/// then ends with its TTL.
pub(crate) const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// Executes the command in the arguments.
pub(crate) async fn run(cli: Cli, report: Report) -> Result<Exit, CliFailure> {
    let given = &cli.global;
    let config = || Config::read(given.config.as_deref());
    match cli.command {
        CliCommand::Lock(command) => on_locks(command, given, &config()?, report).await,
        CliCommand::Init(args) => {
            let nodes = nodes::resolve(given, &config()?, report)?;
            init::init(args, nodes.urls(), report).await
        }
        CliCommand::Doctor(args) => {
            let nodes = nodes::locate(given, &config()?, report)?;
            doctor::doctor(args, nodes.urls(), report).await
        }
        CliCommand::Config(args) => config::config(&args, given, &config()?, report),
        CliCommand::Dashboard(args) => {
            let nodes = nodes::resolve(given, &config()?, report)?;
            dashboard::dashboard(args, nodes.urls(), report).await
        }
        CliCommand::Serve(args) => serve::serve(args, given, report).await,
        CliCommand::Completions(args) => {
            let script = completion::script(args.shell)?;
            print(String::from_utf8_lossy(&script).trim())?;
            Ok(Exit::Success)
        }
        CliCommand::Man(args) => manual::man(&args, report),
    }
}

/// What every command on locks needs.
struct CommandContext {
    locks: Locks,
    nodes: Nodes,
    report: Report,
    /// The watchdog of the first command, if the command line has one.
    watchdog: Cell<Option<Watchdog>>,
    metrics: Option<MetricsFile>,
}

async fn on_locks(
    mut command: LockCommand,
    given: &Global,
    config: &Config,
    report: Report,
) -> Result<Exit, CliFailure> {
    config.apply(&mut command);
    command.check()?;
    let nodes = nodes::resolve(given, config, report)?;
    let metrics = metrics_file(&command, report)?;
    let mut signals = Signals::terminating()?;
    if command.job().is_some() {
        job::check_processes()?;
    }
    // As early as possible, so that a command does not have to wait for it.
    let argv = command.job().map(|job| &job.command);
    let watchdog = argv.map(|argv| Watchdog::start(report, argv));
    let watchdog = Cell::new(watchdog.transpose()?);
    let locks = interruptible(&mut signals, async {
        match command.only_looks() {
            true => to_look(nodes.urls()).await,
            false => Ok(Locks::builder().nodes(nodes.urls()).connect().await?),
        }
    })
    .await?;
    let context = CommandContext {
        locks,
        nodes,
        report,
        watchdog,
        metrics,
    };
    let done = context.run(command, &mut signals).await;
    // Also after a failure: undo what unfinished attempts left on the nodes.
    let _ = tokio::time::timeout(LEAVE_PATIENCE, context.locks.close()).await;
    done
}

/// A client that only looks. If no majority of the nodes answers, it asks the others: to show what
/// they have needs no majority, as long as nothing is written to them.
async fn to_look(urls: &str) -> Result<Locks, CliFailure> {
    let builder = || Locks::builder().nodes(urls);
    let locks = match builder().look_only().connect().await {
        Err(ConnectError::Misconfigured { .. }) => None,
        locks => Some(locks?),
    };
    if let Some(locks) = locks {
        let nodes = locks.nodes().await;
        let answering = nodes.iter().filter(|node| node.facts.is_ok()).count();
        if answering == 0 || answering > nodes.len() / 2 {
            return Ok(locks);
        }
    }
    Ok(builder().without_joining().connect().await?)
}

/// Starts to write the metrics, if the command wants that. Before the client is connected.
fn metrics_file(command: &LockCommand, report: Report) -> Result<Option<MetricsFile>, CliFailure> {
    let Some((job, file)) = command
        .job()
        .and_then(|job| Some((job, job.metrics_file.as_deref()?)))
    else {
        return Ok(None);
    };
    MetricsFile::start(file, &job.name, report).map(Some)
}

impl CommandContext {
    async fn run(&self, command: LockCommand, signals: &mut Signals) -> Result<Exit, CliFailure> {
        match command {
            LockCommand::Run(args) => job::run(self, *args, signals).await,
            LockCommand::Elect(args) => job::elect(self, *args, signals).await,
            LockCommand::Acquire(args) => interruptible(signals, token::acquire(self, args)).await,
            LockCommand::Extend(args) => interruptible(signals, token::extend(self, args)).await,
            LockCommand::Release(args) => interruptible(signals, token::release(self, args)).await,
            LockCommand::Break(args) => {
                interruptible(signals, break_lock::break_lock(self, args)).await
            }
            LockCommand::Status(args) => interruptible(signals, status::status(self, args)).await,
            LockCommand::Bench(args) => interruptible(signals, bench::bench(self, args)).await,
            LockCommand::Ls(args) if args.watch => {
                until_signal(signals, ls::watch(self, args)).await
            }
            LockCommand::Ls(args) => interruptible(signals, ls::ls(self, args)).await,
            LockCommand::Watch(args) => until_signal(signals, watch::watch(self, args)).await,
        }
    }
}

/// Drops `work` when a signal asks ringfence to end. The library then undoes an unfinished attempt.
async fn interruptible<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T, CliFailure>>,
) -> Result<T, CliFailure> {
    tokio::select! {
        done = work => done,
        signal = signals.asked_to_end() => {
            let message = format!("interrupted by signal {}", signal.as_raw());
            Err(CliFailure::new(exit_of(signal), message))
        }
    }
}

/// Does `work` until a signal ends it, as a signal is the usual end of a command that goes on for
/// ever.
async fn until_signal(
    signals: &mut Signals,
    work: impl Future<Output = Result<Exit, CliFailure>>,
) -> Result<Exit, CliFailure> {
    tokio::select! {
        done = work => done,
        signal = signals.asked_to_end() => Ok(exit_of(signal)),
    }
}

/// How ringfence ends after `signal`.
fn exit_of(signal: Signal) -> Exit {
    let is_typed = [Signal::INT, Signal::QUIT].contains(&signal) && is_ours_to_type_at();
    match is_typed {
        true => Exit::Interrupted(signal.as_raw(), Typed::ForUs),
        false => Exit::Signal(signal.as_raw()),
    }
}
