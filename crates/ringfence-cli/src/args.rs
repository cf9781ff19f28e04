//! The arguments as the user typed them. `command/` decides what they mean.

mod job;
mod lock;
mod operator;
mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use crate::report::CliFailure;
use crate::{completion, help};

pub(crate) use job::{DEFAULT_STOP_GRACE, ElectArgs, JobArgs, RunArgs};
pub(crate) use lock::{
    AcquireArgs, DEFAULT_TTL, ExtendArgs, KindArgs, LockArgs, ReleaseArgs, receipt,
};
pub(crate) use operator::{
    BenchArgs, BreakArgs, ConfigArgs, DashboardArgs, DoctorArgs, InitArgs, LsArgs, StatusArgs,
    WatchArgs,
};
pub(crate) use serve::ServeArgs;

/// Run commands under a lock that one client holds at a time: on this machine, or
/// across a fleet, on the Redis or Valkey servers that you already have.
#[derive(Debug, Parser)]
#[command(
    name = "ringfence",
    version,
    max_term_width = 80,
    after_help = help::TOP
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Lock servers, separated by commas: redis://HOST, rediss://, valkey://,
    /// redis+unix:///PATH, redis+sentinel://HOST,HOST/SERVICE, or one sqlite:PATH
    /// [default: a file of this user]
    /// [env: RINGFENCE_NODES]
    #[arg(long, global = true, value_name = "URLS")]
    pub(crate) nodes: Option<String>,
    /// A file with the lock servers, which keeps passwords out of `ps`
    /// [env: RINGFENCE_NODES_FILE]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "nodes")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// A file with the password for servers whose URL has none
    /// [env: RINGFENCE_PASSWORD_FILE]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// A file with settings, instead of the usual files (see `ringfence config -h`)
    /// [env: RINGFENCE_CONFIG]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Write results and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log to stderr; -vv logs more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Leave out warnings, and the line that says that another client holds the lock
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

// The text of each command is that of its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    #[command(flatten)]
    Lock(LockCommand),
    Init(InitArgs),
    Doctor(DoctorArgs),
    Config(ConfigArgs),
    Dashboard(DashboardArgs),
    Serve(ServeArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// The commands that connect to the nodes as a lock client.
#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    Run(Box<RunArgs>),
    Elect(Box<ElectArgs>),
    Acquire(AcquireArgs),
    Extend(ExtendArgs),
    Release(ReleaseArgs),
    Status(StatusArgs),
    Ls(LsArgs),
    Watch(WatchArgs),
    Break(BreakArgs),
    Bench(BenchArgs),
}

impl LockCommand {
    /// The command under a lock, if this is one.
    pub(crate) fn job(&self) -> Option<&JobArgs> {
        match self {
            Self::Run(run) => Some(&run.job),
            Self::Elect(elect) if elect.http.is_none() => Some(&elect.job),
            _ => None,
        }
    }

    /// Whether it only looks: then nothing is created or written.
    pub(crate) fn only_looks(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Ls(_) | Self::Watch(_))
    }

    /// Checks that span several arguments.
    pub(crate) fn check(&self) -> Result<(), CliFailure> {
        match self {
            Self::Run(run) => run.job.check_grace(),
            Self::Elect(elect) => elect.job.check_grace(),
            Self::Extend(extend) => receipt(&extend.name, extend.token.as_ref()).map(drop),
            Self::Release(release) => receipt(&release.name, release.token.as_ref()).map(drop),
            _ => Ok(()),
        }
    }
}

/// Print the completion script for a shell
///
/// The script calls ringfence at each TAB, which completes commands, options, the
/// names of locks that are held or waited for, and the command after `--`.
#[derive(Debug, Args)]
#[command(after_help = help::COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print a manual page, or write all of them into a folder
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command whose page is printed; without it, the page of ringfence
    pub(crate) command: Option<String>,
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    #[arg(value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Completes the names of locks.
fn lock_names() -> ArgValueCompleter {
    ArgValueCompleter::new(completion::lock_names)
}

/// Refuses a bad name before anything is sent, with the error of the library.
pub(crate) fn name(text: &str) -> Result<String, ringfence_core::name::NameError> {
    ringfence_core::name::Name::new("", text)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn clap_accepts_the_definition() {
        Cli::command().debug_assert();
    }
}
