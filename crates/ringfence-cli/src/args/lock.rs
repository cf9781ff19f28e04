//! The arguments of `acquire`, `extend` and `release`, and those of every command that takes a lock.

use std::convert::Infallible;
use std::env;
use std::time::Duration;

use clap::Args;
use ringfence::receipt::{Receipt, ReceiptError};

use super::{lock_names, name};
use crate::report::{CliFailure, one_line};
use crate::{duration, help};

/// The TTL of a lock if none is given.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How long a lock lasts, and how long to wait for it.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// The lock ends this long after its last renewal [default: 10s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
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

impl LockArgs {
    /// The TTL that was given, or the usual one.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(DEFAULT_TTL)
    }
}

/// What of the lock is taken: all of it, a share, or a permit of a semaphore.
#[derive(Debug, Default, Args)]
pub(crate) struct KindArgs {
    /// Let this many hold it at once; NAME is a semaphore, independent of a lock NAME
    #[arg(long, value_name = "N", value_parser = permits())]
    #[arg(conflicts_with_all = ["hold_at_least", "shared"])]
    pub(crate) permits: Option<u32>,
    /// If the lock is released sooner than this, block other clients until then
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) hold_at_least: Option<Duration>,
    /// Share the lock with other --shared holders; block all others
    #[arg(long, conflicts_with_all = ["lock_delay", "hold_at_least"])]
    pub(crate) shared: bool,
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
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) terms: LockArgs,
    #[command(flatten)]
    pub(crate) kind: KindArgs,
    /// After a lost lock, no client gets it for this much longer
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) lock_delay: Option<Duration>,
    /// The name of this holder, shown to people [default: host:pid]
    #[arg(long)]
    pub(crate) label: Option<String>,
}

/// Prolong a lock that `acquire` took
#[derive(Debug, Args)]
pub(crate) struct ExtendArgs {
    /// The name of the lock
    #[arg(value_parser = name, add = lock_names())]
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
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: String,
    /// The token that `acquire` printed [env: RINGFENCE_TOKEN, if RINGFENCE_NAME is
    /// not another lock]
    #[arg(long, value_parser = TokenArgs::read)]
    pub(crate) token: Option<TokenArgs>,
}

/// The range of `--permits`.
fn permits() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(ringfence::Semaphore::PERMITS_MAX))
}

/// The environment variables that `run` sets for its command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";

/// A token as the user gave it. [`receipt`] reports a malformed token later: clap would print the
/// whole value, and a token with a typing mistake is still a secret.
#[derive(Debug, Clone)]
pub(crate) struct TokenArgs(Result<Receipt, ReceiptError>);

impl TokenArgs {
    fn read(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Receipt::parse(text)))
    }
}

/// The token for the lock `name`: the `given` one, or the one in the environment. Inside `run x` the
/// environment has the token of `x`, which is not that of another lock.
pub(crate) fn receipt(name: &str, given: Option<&TokenArgs>) -> Result<Receipt, CliFailure> {
    let malformed = |error: ReceiptError| {
        CliFailure::usage(format!(
            "the value of --token (or {TOKEN}): {error}, as `ringfence acquire` prints it"
        ))
    };
    if let Some(given) = given {
        return given.0.clone().map_err(malformed);
    }
    let missing = "--token is missing: give the token that `ringfence acquire` printed";
    let Ok(token) = env::var(TOKEN) else {
        return Err(CliFailure::usage(missing));
    };
    match env::var(NAME) {
        Ok(other) if other != name => Err(CliFailure::usage(format!(
            "{missing} ({TOKEN} is that of the lock `{}`)",
            one_line(&other)
        ))),
        _ => Receipt::parse(&token).map_err(malformed),
    }
}
