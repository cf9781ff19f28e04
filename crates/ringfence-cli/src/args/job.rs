//! The arguments of `run` and `elect`: a command and the lock that it runs under.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::{KindArgs, LockArgs, lock_names, name};
use crate::completion::command_words;
use crate::report::CliFailure;
use crate::supervise::{Leftovers, OnLost, StopSchedule};
use crate::{duration, exit, help};

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
    #[command(flatten)]
    pub(crate) kind: KindArgs,
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
    override_usage = "ringfence elect [OPTIONS] NAME [--] COMMAND...\n       ringfence elect [OPTIONS] --http ADDR:PORT NAME",
    after_help = help::ELECT,
    mut_args(help::of_election)
)]
pub(crate) struct ElectArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// The name of this candidate, shown to people [default: host:pid]
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Run no command: answer on this loopback address whether this candidate leads
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["command", "metrics_file"])]
    pub(crate) http: Option<SocketAddr>,
}

/// A command and the lock that it runs under. The help texts are for `run`;
/// [`help::of_election`] replaces some of them for `elect`.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// The name of the lock
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: String,
    /// The command and its arguments; no shell is involved
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    #[arg(add = ArgValueCompleter::new(command_words))]
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
    /// [default: 25s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) stop_grace: Option<Duration>,
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
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) metrics_file: Option<PathBuf>,
    /// Exit with this code if another client holds the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::CONFLICT)]
    pub(crate) conflict_exit_code: u8,
}

/// The time from TERM to KILL when ringfence is asked to stop, if none is given.
pub(crate) const DEFAULT_STOP_GRACE: Duration = Duration::from_secs(25);

impl JobArgs {
    /// When the command gets which signal after a lost lock or a request to stop.
    pub(crate) fn schedule(&self, on_lost: OnLost) -> StopSchedule {
        let ttl = self.terms.ttl();
        let kill_grace = self.kill_grace.unwrap_or(ttl / 3);
        let stop_grace = self.stop_grace.unwrap_or(DEFAULT_STOP_GRACE);
        StopSchedule::new(on_lost, kill_grace, stop_grace, ttl)
    }

    /// Checks that span several arguments.
    pub(super) fn check_grace(&self) -> Result<(), CliFailure> {
        let ttl = self.terms.ttl();
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
        let grace = self.kill_grace.unwrap_or(self.terms.ttl() / 3);
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
