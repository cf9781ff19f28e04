//! The command line as typed. What the values mean is the commands' business.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use ringfence::{Receipt, ReceiptError};

use crate::report::Failure;
use crate::supervise::{Leftovers, OnLost, Schedule};
use crate::{duration, exit, help};

/// Run commands under a lock that is held by one at a time: on this machine, or
/// across a fleet on the Redis or Valkey servers you already have.
#[derive(Debug, Parser)]
#[command(
    name = "ringfence",
    version,
    max_term_width = 80,
    after_help = help::TOP,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Lock servers, separated by commas: redis://HOST, rediss://, valkey://,
    /// redis+unix:///PATH, or one sqlite:PATH [default: a file of this user]
    /// [env: RINGFENCE_NODES]
    #[arg(long, global = true, value_name = "URLS")]
    pub(crate) nodes: Option<String>,
    /// The same in a file, which keeps passwords out of `ps`
    /// [env: RINGFENCE_NODES_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "nodes")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// The password of servers whose URL has none [env: RINGFENCE_PASSWORD_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Write results and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show what happens on stderr; -vv shows more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Leave out warnings
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Lock(LockCommand),
    /// Declare the nodes a new cluster, so that they vote at once
    Init(Init),
    /// Look at the nodes: what is wrong, and what to do
    Doctor(Doctor),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page
    Man,
}

/// The commands that need a client.
#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// Hold a lock while a command runs
    Run(Box<Run>),
    /// Run a command while this process is the leader
    Elect(Box<Elect>),
    /// Take a lock and print its token; nothing renews it
    Acquire(Acquire),
    /// Let a lock that `acquire` took last longer
    Extend(Extend),
    /// Free a lock that `acquire` took
    Release(Release),
    /// Show who holds a lock, or how the nodes are
    Status(Status),
}

impl LockCommand {
    /// What no argument can check alone.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Run(run) => run.job.check_grace(),
            Self::Elect(elect) => elect.job.check_grace(),
            Self::Extend(extend) => extend.token.get().map(drop),
            Self::Release(release) => release.token.get().map(drop),
            _ => Ok(()),
        }
    }
}

/// Hold a lock while a command runs
///
/// The command starts once the lock is held. Should the lock be lost, the command
/// and all it started are gone before anybody else can have it.
#[derive(Debug, Args)]
#[command(
    override_usage = "ringfence run [OPTIONS] NAME [--] COMMAND...",
    after_help = help::RUN
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) job: Job,
    /// Let this many run at once: NAME is a semaphore, apart from any lock NAME
    #[arg(long, value_name = "N", value_parser = permits())]
    #[arg(conflicts_with_all = ["hold_at_least", "shared"])]
    pub(crate) permits: Option<u32>,
    /// If the command ends sooner than this, keep the lock from others until then
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) hold_at_least: Option<Duration>,
    /// Share the lock with others that run --shared; only others are kept out
    #[arg(long, conflicts_with_all = ["lock_delay", "hold_at_least"])]
    pub(crate) shared: bool,
    /// When the lock is lost: term, kill or ignore
    #[arg(
        long,
        value_name = "HOW",
        default_value = "term",
        hide_possible_values = true
    )]
    pub(crate) on_lost: OnLost,
    /// Exit with this if the lock is lost
    #[arg(long, value_name = "CODE", default_value_t = exit::LOST)]
    pub(crate) lost_exit_code: u8,
}

/// Run a command while this process is the leader
///
/// Of all that stand for the election NAME one leads at a time. The leader runs
/// its command; the others wait. Should the lead be lost, the command and all it
/// started are gone before another leads, and this process stands again.
#[derive(Debug, Args)]
#[command(
    override_usage = "ringfence elect [OPTIONS] NAME [--] COMMAND...",
    after_help = help::ELECT,
    mut_args(help::of_election)
)]
pub(crate) struct Elect {
    #[command(flatten)]
    pub(crate) job: Job,
    /// Who stands, for people [default: host:pid]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// A command and the lock that it runs under. The help is that of `run`; `elect` has words of its own.
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// The command and its arguments; no shell is involved
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Hold the lock no longer than this; the command is ended before
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// After a lost lock nobody gets it for this much longer
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) lock_delay: Option<Duration>,
    /// When the lock is lost: from TERM to KILL, at most half of the TTL
    /// [default: a third of it]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) kill_grace: Option<Duration>,
    /// When asked to stop: from TERM, INT or QUIT to KILL
    #[arg(long, value_name = "DUR", default_value = "25s", value_parser = duration::parse)]
    pub(crate) stop_grace: Duration,
    /// What the command left running when it exits: leave, wait (hold the lock
    /// until it is gone) or term
    #[arg(
        long,
        value_name = "HOW",
        default_value = "leave",
        hide_possible_values = true
    )]
    pub(crate) leftovers: Leftovers,
    /// Exit with this if another holds the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
}

impl Job {
    /// When the command hears of a lost lock.
    pub(crate) fn schedule(&self, on_lost: OnLost) -> Schedule {
        let ttl = self.terms.ttl;
        let kill_grace = self.kill_grace.unwrap_or(ttl / 3);
        Schedule::new(on_lost, kill_grace, self.stop_grace, ttl)
    }

    fn check_grace(&self) -> Result<(), Failure> {
        let ttl = self.terms.ttl;
        match self.kill_grace {
            Some(grace) if grace > Schedule::longest_grace(ttl) => Err(Failure::usage(format!(
                "--kill-grace {} is more than half of --ttl {}, which leaves renewal no time: \
                 set --ttl to {} or more",
                duration::show(grace),
                duration::show(ttl),
                duration::show(grace * 2),
            ))),
            _ => Ok(()),
        }
    }
}

/// On which terms a lock is taken.
#[derive(Debug, Args)]
pub(crate) struct Terms {
    /// The lock ends this long after its holder was last heard of
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
    /// Wait this long for the lock [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: fail if another holds the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Try this many times at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with = "no_wait")]
    pub(crate) attempts: Option<u32>,
    /// Fail after this long without a majority of nodes
    /// [default: the wait, at most 15s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) no_quorum_after: Option<Duration>,
}

/// Take a lock and print its token; nothing renews it
///
/// The lock ends after its TTL unless `extend` or `release` is called with the
/// token before. Whoever has the token can do that: keep it out of logs.
#[derive(Debug, Args)]
#[command(after_help = help::ACQUIRE)]
pub(crate) struct Acquire {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) terms: Terms,
    /// Who holds it, for people [default: host:pid]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// Let a lock that `acquire` took last longer
#[derive(Debug, Args)]
pub(crate) struct Extend {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// What `acquire` printed
    #[arg(long, env = "RINGFENCE_TOKEN", hide_env_values = true)]
    #[arg(value_parser = Token::read)]
    pub(crate) token: Token,
    /// The lock ends this long from now
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,
}

/// Free a lock that `acquire` took
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// What `acquire` printed
    #[arg(long, env = "RINGFENCE_TOKEN", hide_env_values = true)]
    #[arg(value_parser = Token::read)]
    pub(crate) token: Token,
}

/// Show who holds a lock, or how the nodes are
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The lock; without it the nodes are shown
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
    /// Show the semaphore NAME, which has this many permits: who has which slot
    #[arg(long, value_name = "N", requires = "name", value_parser = permits())]
    pub(crate) permits: Option<u32>,
}

fn permits() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(ringfence::PERMITS_MAX))
}

/// Declare the nodes a new cluster, so that they vote at once
///
/// A node without memory of its past may have forgotten locks, so it does not vote
/// until they have expired. Only you can know that there were none.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// How long a restarted node does not vote; the longest TTL there can be
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) quarantine: Option<Duration>,
    /// Even if nodes hold locks or vote already; says which holders may then be doubled
    #[arg(long)]
    pub(crate) force: bool,
    /// Change the number of nodes of a cluster; all clients must have been stopped for the quarantine
    #[arg(long, conflicts_with = "force")]
    pub(crate) regroup: bool,
}

/// Look at the nodes: what is wrong, and what to do
///
/// Looks at every node and at what they are to each other, and changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct Doctor {
    /// A lock: our user's rights to it are looked at too
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
}

/// Print the completions of a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Refuses a bad name before anything is sent, with the library's own words.
fn name(text: &str) -> Result<String, ringfence_core::name::NameError> {
    ringfence_core::name::Name::new("", text)?;
    Ok(text.to_owned())
}

/// A token as it was given. What is wrong with it is told later, since clap would show the whole of
/// it, and a token with a slip in it is a secret all the same.
#[derive(Debug, Clone)]
pub(crate) struct Token(Result<Receipt, ReceiptError>);

impl Token {
    fn read(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Receipt::parse(text)))
    }

    /// The receipt that it is.
    pub(crate) fn get(&self) -> Result<&Receipt, Failure> {
        let told = |error: &ReceiptError| {
            Failure::usage(format!(
                "the value of --token (or RINGFENCE_TOKEN): {error}, as `ringfence acquire` prints it"
            ))
        };
        self.0.as_ref().map_err(told)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
