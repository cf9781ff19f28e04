//! The arguments of the commands of an operator: `status`, `ls`, `watch`, `break`, `bench`, `init`,
//! `doctor`, `config`, `dashboard`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{lock_names, name};
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
}

/// List the locks that are held or queued for
///
/// Shows kind, holder, the time left of the lease, fence, waiters, and how many nodes
/// have the holder. There is no index: the nodes are searched, at most one per cent
/// of their time. Looking changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::LS)]
pub(crate) struct LsArgs {
    /// Only names that match: `*` is any text, `?` is one character
    pub(crate) pattern: Option<String>,
    /// Show the list again and again, until Ctrl-C
    #[arg(long, conflicts_with = "broken")]
    pub(crate) watch: bool,
    /// Show the holds that operators broke: who, when, why
    #[arg(long)]
    pub(crate) broken: bool,
}

/// Print a line whenever a lock changes hands
///
/// Looks at the lock every 250 ms. What happens between two looks is not seen. Why a
/// client lost the lock or was refused is known to that client only. Looking changes
/// nothing.
#[derive(Debug, Args)]
#[command(after_help = help::WATCH)]
pub(crate) struct WatchArgs {
    /// The name of the lock
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: String,
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
/// Checks every node, and whether the nodes fit together. Changes nothing, unless
/// --try is given.
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The name of a lock; also checks our user's rights to its keys
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: Option<String>,
    /// Behind Sentinels: also log in to the replicas, and compare their clocks
    ///
    /// User and password are sent to every address that the master lists as a replica.
    #[arg(long)]
    pub(crate) replicas: bool,
    /// Also take a lock of the doctor's own on all nodes, and release it: finds what no
    /// node tells
    #[arg(long = "try")]
    pub(crate) try_lock: bool,
}

/// Show the settings in force, and where each comes from
///
/// Nodes, files and the defaults of locks: what is in force, and whether a flag, the
/// environment or a file says so, or nothing does (default). Passwords are not shown.
#[derive(Debug, Args)]
#[command(after_help = help::CONFIG)]
pub(crate) struct ConfigArgs {
    /// The name of a lock; shows the settings of the patterns that fit it
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: Option<String>,
}

/// Show nodes, locks and a time line in the browser
///
/// Serves one page and a JSON API, and shows who holds what, who waits, and which
/// node is sick, as it happens. It only looks, unless --allow-break is given.
#[derive(Debug, Args)]
#[command(after_help = help::DASHBOARD)]
pub(crate) struct DashboardArgs {
    /// Where to listen; an address that is not loopback needs --token-file
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7471")]
    pub(crate) listen: SocketAddr,
    /// A file with the token that viewers need, at least 16 characters
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Answer requests for this host name too, such as that of a proxy; repeatable
    #[arg(long, value_name = "HOST")]
    pub(crate) allowed_host: Vec<String>,
    /// Let viewers with the token break locks
    #[arg(long, requires = "token_file")]
    pub(crate) allow_break: bool,
}

/// A measurement is bounded, so that a mistyped unit does no harm.
fn bench_span(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text)?;
    match (Duration::from_millis(200)..=Duration::from_secs(60)).contains(&span) {
        true => Ok(span),
        false => Err("measure for 200ms to 1m".to_owned()),
    }
}
