//! The arguments as the user typed them. `command/` decides what they mean.

pub(crate) mod ls;
pub(crate) mod token;
pub(crate) mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::report::CliFailure;
use crate::supervise::{Leftovers, OnLost, StopSchedule};
use crate::{duration, exit, help};
use ls::LsArgs;
use token::TokenArgs;
use watch::WatchArgs;

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

/// Hold a lock while a command runs
///
/// The command starts when the lock is held. If the lock is lost, the command and
/// all its descendants end before another client can take the lock.
#[derive(Debug, Args)]
#[command(
    override_usage = "ringfence run [OPTIONS] NAME [--] COMMAND...",
    after_help = help::RUN
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Let this many run at once; NAME is a semaphore, independent of a lock NAME
    #[arg(long, value_name = "N", value_parser = permits())]
    #[arg(conflicts_with_all = ["hold_at_least", "shared"])]
    pub(crate) permits: Option<u32>,
    /// If the command ends sooner than this, block other clients until then
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) hold_at_least: Option<Duration>,
    /// Share the lock with other --shared commands; block all others
    #[arg(long, conflicts_with_all = ["lock_delay", "hold_at_least"])]
    pub(crate) shared: bool,
    /// What to do when the lock is lost: term, kill or ignore
    #[arg(
        long,
        value_name = "HOW",
        default_value = "term",
        hide_possible_values = true
    )]
    pub(crate) on_lost: OnLost,
    /// Exit with this code if the lock is lost
    #[arg(long, value_name = "CODE", default_value_t = exit::LOST)]
    pub(crate) lost_exit_code: u8,
    /// The name of this holder, shown to people [default: host:pid:command]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// Run a command while this process is the leader
///
/// Of all candidates in the election NAME, one leads at a time. The leader runs
/// its command; the others wait. If the leadership is lost, the command and all
/// its descendants end before another candidate leads, and this process campaigns
/// again.
#[derive(Debug, Args)]
#[command(
    override_usage = "ringfence elect [OPTIONS] NAME [--] COMMAND...",
    after_help = help::ELECT,
    mut_args(help::of_election)
)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// The name of this candidate, shown to people [default: host:pid]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// A command and the lock that it runs under. The help texts are for `run`;
/// [`help::of_election`] replaces some of them for `elect`.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// The command and its arguments; no shell is involved
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) terms: LockArgs,
    /// Hold the lock no longer than this; the command is ended before that
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// After a lost lock, no client gets it for this much longer
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) lock_delay: Option<Duration>,
    /// Time from TERM to KILL when the lock is lost, at most half of the TTL
    /// [default: a third of the TTL]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) kill_grace: Option<Duration>,
    /// Time from TERM, INT or QUIT to KILL when ringfence is asked to stop
    #[arg(long, value_name = "DUR", default_value = "25s", value_parser = duration::parse)]
    pub(crate) stop_grace: Duration,
    /// Processes that run on after the command exits: leave, wait (hold the lock
    /// until they end) or term
    #[arg(
        long,
        value_name = "HOW",
        default_value = "leave",
        hide_possible_values = true
    )]
    pub(crate) leftovers: Leftovers,
    /// Write metrics to this file, for Prometheus' textfile collector
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Exit with this code if another client holds the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
}

impl JobArgs {
    /// When the command gets which signal after a lost lock or a request to stop.
    pub(crate) fn schedule(&self, on_lost: OnLost) -> StopSchedule {
        let ttl = self.terms.ttl;
        let kill_grace = self.kill_grace.unwrap_or(ttl / 3);
        StopSchedule::new(on_lost, kill_grace, self.stop_grace, ttl)
    }

    fn check_grace(&self) -> Result<(), CliFailure> {
        let ttl = self.terms.ttl;
        match self.kill_grace {
            Some(grace) if grace > StopSchedule::longest_grace(ttl) => {
                Err(CliFailure::usage(format!(
                    "--kill-grace {} is more than half of --ttl {}, so there is no time to renew: \
                     set --ttl to {} or more",
                    duration::typed(grace),
                    duration::typed(ttl),
                    duration::typed(grace * 2),
                )))
            }
            _ => self.check_max_hold(),
        }
    }

    /// The command is asked to end the grace before the lock must end.
    fn check_max_hold(&self) -> Result<(), CliFailure> {
        let grace = self.kill_grace.unwrap_or(self.terms.ttl / 3);
        match self.max_hold {
            Some(most) if most <= grace => Err(CliFailure::usage(format!(
                "--max-hold {} is not longer than --kill-grace {}, so the command would be ended as \
                 soon as it starts: set --max-hold higher or --kill-grace lower",
                duration::typed(most),
                duration::typed(grace),
            ))),
            _ => Ok(()),
        }
    }
}

/// The TTL of a lock if none is given.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How long a lock lasts, and how long to wait for it.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// The lock ends this long after its last renewal
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
    /// Wait this long for the lock; a number without a unit is in seconds
    /// [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse_wait)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: fail if another client holds the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Try at most this many times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) attempts: Option<u32>,
    /// Fail after this long without a majority of nodes
    /// [default: the wait, at most 15s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) no_quorum_after: Option<Duration>,
}

/// Take a lock and print its token; the lock is not renewed
///
/// The lock ends after its TTL, unless `extend` or `release` is called with the
/// token before. The token is a secret, because it is all that these commands
/// need: keep it out of logs.
#[derive(Debug, Args)]
#[command(after_help = help::ACQUIRE)]
pub(crate) struct AcquireArgs {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) terms: LockArgs,
    /// The name of this holder, shown to people [default: host:pid]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// Prolong a lock that `acquire` took
#[derive(Debug, Args)]
pub(crate) struct ExtendArgs {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// The token that `acquire` printed [env: RINGFENCE_TOKEN, if RINGFENCE_NAME is
    /// not another lock]
    #[arg(long, value_parser = TokenArgs::read)]
    pub(crate) token: Option<TokenArgs>,
    /// The lock ends this long from now, or later: it is never shortened
    /// [default: the --ttl of `acquire`]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
}

/// Release a lock that `acquire` took
#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// The token that `acquire` printed [env: RINGFENCE_TOKEN, if RINGFENCE_NAME is
    /// not another lock]
    #[arg(long, value_parser = TokenArgs::read)]
    pub(crate) token: Option<TokenArgs>,
}

/// Show who holds a lock, or the state of the nodes
///
/// Shows all holders with their labels, since when they hold the lock, when their
/// leases end, their fences, the queue, and the vote of each node. A semaphore and
/// a latch of this name are shown too. Looking changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct StatusArgs {
    /// The name of the lock; without it, show the nodes
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
    /// Exit with 0 if the lock is free, 75 if it is held, 69 without a majority
    #[arg(long, requires = "name")]
    pub(crate) exit_code: bool,
    /// Not needed: status finds the semaphore NAME and its permits by itself
    #[arg(long, value_name = "N", requires = "name", hide = true, value_parser = permits())]
    pub(crate) permits: Option<u32>,
}

/// End the hold of another client, which is known to be dead
///
/// Frees the lock on a majority of the nodes, raises its fence and prints it. The
/// old holder is not stopped: if it is alive, it learns of this at its next renewal.
#[derive(Debug, Args)]
#[command(after_help = help::BREAK)]
pub(crate) struct BreakArgs {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Why, for the old holder; the nodes remember it for 7 days
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Break this slot of the semaphore NAME
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..128))]
    pub(crate) slot: Option<u32>,
    /// Break only the reader with this id, as `status` shows it
    #[arg(long, value_name = "ID", conflicts_with_all = ["slot", "raise_mark"])]
    pub(crate) reader: Option<String>,
    /// Raise the mark of a fenced resource to the new fence, so that it refuses the
    /// old holder: redis://…, sqlite:PATH; for postgres://… the SQL is printed
    #[arg(long, value_name = "URL")]
    pub(crate) raise_mark: Option<String>,
    /// The resource whose mark is raised [default: NAME]
    #[arg(long, value_name = "KEY", requires = "raise_mark")]
    pub(crate) resource: Option<String>,
}

fn permits() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(ringfence::PERMITS_MAX))
}

/// Declare that the nodes are a new cluster, so that they vote at once
///
/// A node that has no record of its past may have forgotten locks. It does not vote
/// until those locks have expired. Only you can know that there were none.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// How long a restarted node does not vote; the longest TTL is 5s less
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) quarantine: Option<Duration>,
    /// Proceed even if nodes hold locks or already vote; prints the holders whose
    /// lock a second client may then hold too
    #[arg(long)]
    pub(crate) force: bool,
    /// Change the number of nodes of a cluster; all clients must have been stopped
    /// for at least the quarantine
    #[arg(long, conflicts_with = "force")]
    pub(crate) regroup: bool,
}

/// Check the nodes: what is wrong, and what to do
///
/// Checks every node, and whether the nodes fit together. Changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The name of a lock; also checks our user's rights to its keys
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
}

/// Print the completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
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
