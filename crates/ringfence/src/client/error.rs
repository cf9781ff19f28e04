//! What can go wrong, one enum per operation. Every error that is about nodes carries each node's
//! vote, in node order, and says so line by line.

use std::time::Duration;

use crate::driver::acquire::AcquireRefusal;
use crate::name::NameError;
use crate::protocol::{FailureKind, Lost};

use super::lock::TTL_MAX;
use super::votes::{Votes, held_by, not_voting};

/// Why a lock was not granted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else holds it, and the wait is over.
    #[error("`{name}` is {}{votes}", held_by(votes))]
    Held {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority of the nodes could be asked.
    #[error("no majority of the nodes answers for `{name}`{votes}")]
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// Of a majority nothing counts yet: it is new, was restarted, or its clocks jumped.
    #[error("{}{votes}", not_voting(votes, *left))]
    Quarantined {
        /// The lock.
        name: String,
        /// When a majority may vote.
        left: Duration,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority of the nodes cannot vote before somebody changes a setting.
    #[error("a majority of the nodes is not fit to hold locks{votes}")]
    Misconfigured {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority granted, but so late that too little was left of the TTL.
    #[error("`{name}` was granted too late to be worth holding; a longer ttl may help{votes}")]
    Expired {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The nodes' clocks are so far apart that no ballot suits a majority.
    #[error("the nodes' clocks are too far apart for a majority to agree on `{name}`{votes}")]
    ClocksApart {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The client was closed while waiting.
    #[error("the wait for `{name}` was cancelled: the client was closed")]
    Cancelled {
        /// The lock.
        name: String,
    },
    /// The request could not be meant. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The operating system gave no random bytes for a token.
    #[error("no random bytes for a token: {0}")]
    NoEntropy(String),
}

impl AcquireError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Misconfigured { .. } | Self::Invalid(_) | Self::Cancelled { .. }
        )
    }

    /// Every node's vote, where nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Held { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::Quarantined { votes, .. }
            | Self::Misconfigured { votes, .. }
            | Self::Expired { votes, .. }
            | Self::ClocksApart { votes, .. } => Some(votes),
            Self::Cancelled { .. } | Self::Invalid(_) | Self::NoEntropy(_) => None,
        }
    }

    pub(super) fn new(name: String, names: &[String], refusal: AcquireRefusal) -> Self {
        let failure = match refusal {
            AcquireRefusal::Closed => return Self::Cancelled { name },
            AcquireRefusal::RuntimeGone => return Self::Invalid(ConfigError::RuntimeGone),
            AcquireRefusal::NoEntropy(error) => return Self::NoEntropy(error.to_string()),
            AcquireRefusal::Failed(failure) => failure,
        };
        // Whatever was granted has been taken back by now, or is about to be.
        let votes = Votes::worded("granted, and given back", names, failure.votes);
        match failure.kind {
            FailureKind::Held => Self::Held { name, votes },
            FailureKind::NoQuorum => Self::NoQuorum { name, votes },
            FailureKind::Quarantined { left } => Self::Quarantined { name, left, votes },
            FailureKind::Misconfigured => Self::Misconfigured { name, votes },
            FailureKind::Expired => Self::Expired { name, votes },
            FailureKind::ClocksApart => Self::ClocksApart { name, votes },
        }
    }
}

impl From<NameError> for AcquireError {
    fn from(error: NameError) -> Self {
        Self::Invalid(error.into())
    }
}

/// A setting or argument that cannot be meant. Nothing was sent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An owner takes some of the names that it has, or waits for, in another lock: it would wait for
    /// itself.
    #[error(
        "this owner cannot take `{wants}`: it already holds or waits for `{has}`, and would wait for \
         itself; release that first, or take all the names together"
    )]
    OwnerOverlap {
        /// The names that the owner has, or waits for.
        has: String,
        /// The names that it wants.
        wants: String,
    },
    /// A TTL below the least.
    #[error("a ttl must be at least {least:?}, this one is {ttl:?}")]
    TtlTooShort {
        /// What was asked for.
        ttl: Duration,
        /// The least.
        least: Duration,
    },
    /// A TTL that outlives the group's quarantine.
    #[error(
        "the longest ttl of this cluster is {most:?}, this one is {ttl:?}{}",
        longer_ttl(*most)
    )]
    TtlTooLong {
        /// What was asked for.
        ttl: Duration,
        /// The most.
        most: Duration,
    },
    /// A least validity that no grant can have.
    #[error("min_validity {min_validity:?} cannot be met with a ttl of {ttl:?}")]
    MinValidity {
        /// What was asked for.
        min_validity: Duration,
        /// The TTL.
        ttl: Duration,
    },
    /// The runtime in which the client was connected has ended: nothing could be renewed.
    #[error(
        "the tokio runtime in which this client was connected has ended, so it can hold nothing; \
         connect again in a runtime that lasts as long as the client"
    )]
    RuntimeGone,
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// What to do about a TTL that is too long, where something can be done.
fn longer_ttl(most: Duration) -> &'static str {
    if most < TTL_MAX {
        "; a longer one needs a longer quarantine on all clients (`ringfence init --quarantine`)"
    } else {
        ""
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings cannot be meant. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A node could not be opened, or a thread not be started.
    #[error(transparent)]
    Open(Box<dyn std::error::Error + Send + Sync>),
    /// A majority of the nodes cannot vote before somebody changes a setting.
    #[error("a majority of the nodes is not fit to hold locks{votes}")]
    Misconfigured {
        /// What is wrong with each.
        votes: Votes,
    },
}

/// Why an `init` was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The settings cannot be meant. Nothing was sent.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Not all nodes answered, so nothing was written.
    #[error("every node has to answer before a cluster can be initialised{votes}")]
    Unreachable {
        /// What each node said.
        votes: Votes,
    },
    /// A node is not new.
    #[error("this cluster is not new{votes}")]
    Refused {
        /// What each node said.
        votes: Votes,
    },
    /// A node is in use, or was a moment ago.
    #[error(
        "this cluster is in use, and its number of nodes must not change under its clients{votes}"
    )]
    InUse {
        /// What each node said.
        votes: Votes,
    },
}

/// Why a lock could not be extended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost.
    #[error("{why}{votes}")]
    Lost {
        /// How.
        why: Lost,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority confirmed: the old deadline stands.
    #[error("no majority of the nodes confirmed; the old deadline stands{votes}")]
    Unconfirmed {
        /// Every node's vote.
        votes: Votes,
    },
    /// The request could not be meant. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had expired before it was released: the work may not have been alone.
    #[error("the lock had expired before it was released")]
    Expired,
    /// As `Expired`, and somebody else holds it now.
    #[error("the lock had expired and somebody else holds it now")]
    Taken,
    /// No majority confirmed. It is tried on in the background, and ends with the TTL at the latest.
    #[error(
        "no majority of the nodes confirmed the release; the lock ends with its ttl at the latest"
    )]
    Unconfirmed,
}

/// Why `hold` brought no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The lock was not granted; the work did not begin.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock was lost; the work was stopped.
    #[error("the work was stopped: {0}")]
    Lost(Lost),
}

/// Why a lock could not be inspected.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No majority of the nodes could be asked.
    #[error("no majority of the nodes answers for `{name}`{votes}")]
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The request could not be meant. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}
