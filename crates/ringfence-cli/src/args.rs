//! The arguments as the user typed them. `command/` decides what they mean.

mod cluster;
pub(crate) mod dashboard;
mod job;
mod lock;
mod look;
pub(crate) mod ls;
pub(crate) mod token;
pub(crate) mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::help;
use crate::report::CliFailure;

use dashboard::DashboardArgs;
use ls::LsArgs;
use watch::WatchArgs;

pub(crate) use cluster::{DoctorArgs, InitArgs};
pub(crate) use job::{ElectArgs, JobArgs, RunArgs};
pub(crate) use lock::{AcquireArgs, DEFAULT_TTL, ExtendArgs, LockArgs, ReleaseArgs};
pub(crate) use look::{BreakArgs, StatusArgs};

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
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "nodes")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// A file with the password for servers whose URL has none
    /// [env: RINGFENCE_PASSWORD_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    #[command(flatten)]
    Lock(LockCommand),
    /// Declare that the nodes are a new cluster, so that they vote at once
    Init(InitArgs),
    /// Check the nodes: what is wrong, and what to do
    Doctor(DoctorArgs),
    /// Show nodes, locks and a time line in the browser
    Dashboard(DashboardArgs),
    /// Print the completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man,
}

/// The commands that connect to the nodes as a lock client.
#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// Hold a lock while a command runs
    Run(Box<RunArgs>),
    /// Run a command while this process is the leader
    Elect(Box<ElectArgs>),
    /// Take a lock and print its token; the lock is not renewed
    Acquire(AcquireArgs),
    /// Prolong a lock that `acquire` took
    Extend(ExtendArgs),
    /// Release a lock that `acquire` took
    Release(ReleaseArgs),
    /// Show who holds a lock, or the state of the nodes
    Status(StatusArgs),
    /// List the locks that are held or queued for
    Ls(LsArgs),
    /// Print a line whenever a lock changes hands
    Watch(WatchArgs),
    /// End the hold of another client, which is known to be dead
    Break(BreakArgs),
}

impl LockCommand {
    /// The command under a lock, if this is one.
    pub(crate) fn job(&self) -> Option<&JobArgs> {
        match self {
            Self::Run(run) => Some(&run.job),
            Self::Elect(elect) => Some(&elect.job),
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
            Self::Extend(extend) => token::receipt(&extend.name, extend.token.as_ref()).map(drop),
            Self::Release(release) => {
                token::receipt(&release.name, release.token.as_ref()).map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Print the completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// The range of `--permits`.
fn permits() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(ringfence::PERMITS_MAX))
}

/// Refuses a bad name before anything is sent, with the error of the library.
fn name(text: &str) -> Result<String, ringfence_core::name::NameError> {
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
