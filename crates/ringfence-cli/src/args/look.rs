//! The arguments of the commands of an operator: `status`, `break`, `bench`.

use std::time::Duration;

use clap::Args;

use super::{lock_names, name, permits};
use crate::{duration, help};

/// Show who holds a lock, or the state of the nodes
///
/// Shows all holders with their labels, since when they hold the lock, when their
/// leases end, their fences, the queue, and the vote of each node. A semaphore and
/// a latch of this name are shown too. Looking changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct StatusArgs {
    /// The name of the lock; without it, show the nodes
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: Option<String>,
    /// Exit with 0 if the lock is free, 75 if it is held, 69 if that is unknown
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
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Why, for the old holder; the nodes remember it for 7 days
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Break this slot of the semaphore NAME
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255))]
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

/// Measure locks on these nodes for a few seconds
///
/// Takes and releases locks as fast as one task can, then with 64 tasks, and shows
/// the rate and how long a lock takes. Asks first: other users of the servers may
/// notice the load.
#[derive(Debug, Args)]
#[command(after_help = help::BENCH)]
pub(crate) struct BenchArgs {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Measure for this long in all, at most 1m
    #[arg(long, value_name = "DUR", default_value = "6s", value_parser = bench_span)]
    pub(crate) duration: Duration,
    /// Send at most this many requests in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) requests: u64,
}

/// A measurement is bounded, so that a mistyped unit does no harm.
fn bench_span(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text)?;
    match (Duration::from_millis(200)..=Duration::from_secs(60)).contains(&span) {
        true => Ok(span),
        false => Err("measure for 200ms to 1m".to_owned()),
    }
}
