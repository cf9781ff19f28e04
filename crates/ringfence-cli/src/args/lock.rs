//! The arguments of `acquire`, `extend` and `release`, and those of every command that takes a lock.

use std::time::Duration;

use clap::Args;

use super::name;
use super::token::TokenArgs;
use crate::{duration, help};

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
