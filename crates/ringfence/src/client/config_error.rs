//! Settings and arguments that are not allowed, and why there is no client.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::group::Failover;
use crate::name::NameError;
use crate::url::UrlError;

use super::lock::TTL_MAX;
use super::votes::{Votes, not_fit, not_voting};

/// A setting or argument that is not allowed. Nothing was sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The URL of a node is not allowed.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No node was given.
    #[error("no node given; `redis://HOST:PORT` or `sqlite:PATH` is one")]
    NoNodes,
    /// More nodes than a client can have.
    #[error("a client may have {most} nodes, this one has {nodes}")]
    TooManyNodes {
        /// The number of nodes.
        nodes: usize,
        /// The largest number.
        most: usize,
    },
    /// Two nodes are the same server, which has one vote.
    #[error("{first} and {second} are the same server; every node must be a server of its own")]
    DuplicateNode {
        /// The earlier node.
        first: String,
        /// The later node.
        second: String,
    },
    /// A node needs a feature of this crate that the build does not have.
    #[error("this build has no {node} (feature `{feature}`)")]
    FeatureMissing {
        /// The kind of node.
        node: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// The prefix leaves no room for names.
    #[error("the prefix leaves no room for names")]
    PrefixTooLong {
        /// The prefix in bytes.
        bytes: usize,
    },
    /// A label is too long.
    #[error("a label may have {most} bytes, this one has {bytes}")]
    LabelTooLong {
        /// The label in bytes.
        bytes: usize,
        /// The largest number of bytes.
        most: usize,
    },
    /// The drift is not a fraction that makes sense.
    #[error("the drift must be a fraction between 0 and 0.25, not {fraction}")]
    Drift {
        /// The fraction that was asked for.
        fraction: f64,
    },
    /// The window is too small or too large.
    #[error("the window must be between 100 ms and 1 h, not {window:?}")]
    Window {
        /// The window that was asked for.
        window: Duration,
    },
    /// The quarantine is too short for the window.
    #[error(
        "with a window of {window:?} the quarantine must be at least {least:?}, not {quarantine:?}"
    )]
    QuarantineTooShort {
        /// The quarantine that was asked for.
        quarantine: Duration,
        /// The shortest one.
        least: Duration,
        /// The window.
        window: Duration,
    },
    /// The quarantine is too long.
    #[error("the quarantine must be at most 365 days, not {quarantine:?}")]
    QuarantineTooLong {
        /// The quarantine that was asked for.
        quarantine: Duration,
    },
    /// A failover level for several nodes.
    #[error(
        "failover={level} is for a single node; several nodes always have the quarantine, and a \
         promotion costs only the vote of its node"
    )]
    FailoverOfSeveral {
        /// The level that was asked for.
        level: Failover,
    },
    /// The two times of a failover do not fit into the quarantine.
    #[error(
        "the time for which a former master may serve ({stale_master:?}) and the time for a reply \
         ({reply_within:?}) must be above zero and together at most the quarantine of {quarantine:?}"
    )]
    FailoverTimes {
        /// For how long after a promotion a former master may serve.
        stale_master: Duration,
        /// Within which time the reply of a grant must be read.
        reply_within: Duration,
        /// The quarantine.
        quarantine: Duration,
    },
    /// The node timeout is zero.
    #[error("the node timeout must not be zero")]
    NodeTimeoutZero,
    /// The owner holds or waits for some of these names in another lock: it would wait for itself.
    #[error(
        "this owner cannot take `{wants}`: it already holds or waits for `{has}`, and would wait for \
         itself; release that first, or take all the names together"
    )]
    OwnerOverlap {
        /// The names that the owner holds or waits for.
        has: String,
        /// The names that it asked for.
        wants: String,
    },
    /// The TTL is too short.
    #[error("a ttl must be at least {least:?}, this one is {ttl:?}")]
    TtlTooShort {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The shortest one.
        least: Duration,
    },
    /// The TTL is too long for these nodes. See [`Locks::longest_ttl`](crate::Locks::longest_ttl).
    #[error("the longest ttl of {} is {most:?}, this one is {ttl:?}{}", whose(*most), why(*most))]
    TtlTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The longest one.
        most: Duration,
    },
    /// The TTL and the lock delay are together longer than the longest TTL.
    #[error(
        "the ttl of {ttl:?} and the lock delay of {lock_delay:?} together must be at most {most:?}"
    )]
    LeaseTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The lock delay that was asked for.
        lock_delay: Duration,
        /// The longest TTL.
        most: Duration,
    },
    /// No grant can have this least validity.
    #[error("min_validity {min_validity:?} cannot be met with a ttl of {ttl:?}")]
    MinValidity {
        /// The least validity that was asked for.
        min_validity: Duration,
        /// The TTL.
        ttl: Duration,
    },
    /// `hold_at_least` is too long.
    #[error("hold_at_least must be at most a year, not {span:?}")]
    HoldAtLeastTooLong {
        /// The time that was asked for.
        span: Duration,
    },
    /// `max_hold` is zero.
    #[error("max_hold must not be zero")]
    MaxHoldZero,
    /// `attempts` is zero.
    #[error("attempts must be at least 1")]
    NoAttempts,
    /// The receipt is that of a permit, and this is a lock, or a semaphore with fewer permits.
    #[error("the receipt is that of a permit; this is a lock, or a semaphore with fewer permits")]
    ReceiptOfPermit,
    /// The receipt is that of a lock, and this is a semaphore.
    #[error("the receipt is that of a lock, and this is a semaphore")]
    ReceiptOfLock,
    /// A semaphore with no permit, or with too many.
    #[error("a semaphore may have 1 to {most} permits, this one has {permits}")]
    Permits {
        /// The number of permits.
        permits: u32,
        /// The largest number.
        most: u32,
    },
    /// A latch that waits for no party, or for too many.
    #[error("a latch may wait for 1 to {most} parties, this one for {count}")]
    Parties {
        /// The number of parties.
        count: u32,
        /// The largest number.
        most: u32,
    },
    /// The name of a latch's party is empty or too long.
    #[error("a party's name may have 1 to {most} bytes, this one has {bytes}")]
    PartyName {
        /// The name in bytes.
        bytes: usize,
        /// The largest number of bytes.
        most: usize,
    },
    /// Too many templates for the label `name`.
    #[cfg(feature = "metrics")]
    #[error("there may be {most} metric names, not {given}")]
    TooManyMetricNames {
        /// The number of templates.
        given: usize,
        /// The largest number.
        most: usize,
    },
    /// The tokio runtime in which the client was connected has ended: nothing could be renewed.
    #[error(
        "the tokio runtime in which this client was connected has ended, so it can hold nothing; \
         connect again in a runtime that lasts as long as the client"
    )]
    RuntimeGone,
    /// This is a forked child, and the client belongs to its parent.
    #[error(
        "this client belongs to the process that connected it, and this is a forked child of it; \
         connect after the fork"
    )]
    ForkedProcess,
}

/// A quarantine bounds the TTL of nodes that form a quorum, and of a single server with a failover
/// behind it.
fn is_bounded_by_quarantine(most: Duration) -> bool {
    most < TTL_MAX
}

fn whose(most: Duration) -> &'static str {
    match is_bounded_by_quarantine(most) {
        true => "these nodes",
        false => "a node",
    }
}

fn why(most: Duration) -> &'static str {
    match is_bounded_by_quarantine(most) {
        true => {
            "; a node of a quorum that restarts, or a replica that is promoted, must stay out until \
             every lock that it may have forgotten has ended, so a longer ttl needs a longer \
             quarantine on all clients"
        }
        false => "",
    }
}

/// Why there is no client, no node, or no majority.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is not allowed. Nothing was sent.
    Config(ConfigError),
    /// There is no tokio runtime.
    NoRuntime,
    /// The tokio runtime was built without a driver that a client needs.
    RuntimeWithout {
        /// The missing call of tokio's builder: `enable_time` or `enable_io`.
        missing: &'static str,
    },
    /// The TLS files of a URL cannot be used.
    #[cfg(feature = "redis")]
    Tls(crate::node::redis::TlsError),
    /// The lock file cannot be opened.
    #[cfg(feature = "sqlite")]
    File(Arc<crate::node::sqlite::SqliteError>),
    /// A thread could not be started.
    Thread(Arc<std::io::Error>),
    /// A majority of the nodes cannot vote until an operator changes their settings.
    Misconfigured {
        /// What is wrong with each node.
        votes: Votes,
    },
    /// No majority of the nodes answers. Only [`Locks::ready`](crate::Locks::ready) returns it.
    NoQuorum {
        /// What each node said.
        votes: Votes,
    },
    /// The votes of a majority do not count yet. Only [`Locks::ready`](crate::Locks::ready) returns
    /// it.
    Quarantined {
        /// How long until a majority may vote.
        left: Duration,
        /// What each node said.
        votes: Votes,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::NoRuntime => {
                f.write_str("a client needs a tokio runtime; without one use `ringfence::blocking`")
            }
            Self::RuntimeWithout { missing } => write!(
                f,
                "this tokio runtime has no driver for what a client needs; build it with \
                 `{missing}()` or `enable_all()`"
            ),
            #[cfg(feature = "redis")]
            Self::Tls(error) => error.fmt(f),
            #[cfg(feature = "sqlite")]
            Self::File(error) => error.fmt(f),
            Self::Thread(_) => f.write_str("a thread could not be started"),
            Self::Misconfigured { votes } => f.write_str(&not_fit(votes)),
            Self::NoQuorum { votes } => f.write_str(&votes.told(
                "no majority of the nodes answers, so no lock can be taken",
                "no lock can be taken",
            )),
            Self::Quarantined { left, votes } => f.write_str(&not_voting(votes, *left)),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::NoRuntime | Self::RuntimeWithout { .. } => None,
            #[cfg(feature = "redis")]
            Self::Tls(error) => error.source(),
            #[cfg(feature = "sqlite")]
            Self::File(error) => error.source(),
            Self::Thread(error) => Some(&**error),
            Self::Misconfigured { votes } | Self::NoQuorum { votes } => votes.as_source(),
            Self::Quarantined { votes, .. } => votes.as_source_of_quarantine(),
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl ConnectError {
    /// Every node's vote, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Misconfigured { votes }
            | Self::NoQuorum { votes }
            | Self::Quarantined { votes, .. } => Some(votes),
            _ => None,
        }
    }

    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Thread(_) | Self::NoQuorum { .. } | Self::Quarantined { .. }
        )
    }
}

#[cfg(feature = "redis")]
impl From<crate::node::redis::TlsError> for ConnectError {
    fn from(error: crate::node::redis::TlsError) -> Self {
        Self::Tls(error)
    }
}

#[cfg(feature = "sqlite")]
impl From<crate::node::sqlite::SqliteError> for ConnectError {
    fn from(error: crate::node::sqlite::SqliteError) -> Self {
        Self::File(Arc::new(error))
    }
}
