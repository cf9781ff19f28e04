//! What can go wrong, one enum per operation. The text of an error is one line; the votes that it
//! carries say what each node answered, in node order.

use std::time::Duration;

use crate::message::Holder;
use crate::name::NameError;
use crate::protocol::{FailureKind, Lost};
use crate::runtime::acquire::AcquireRefusal;

use super::votes::{Votes, held_by, not_voting};

pub use super::config_error::{ConfigError, ConnectError};

/// Why a lock was not granted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another client holds it, and the wait is over.
    #[error("`{name}` is {}", held_by(votes))]
    Held {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority of the nodes answered.
    #[error("no majority of the nodes answers for `{name}`")]
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The votes of a majority do not count yet: the nodes are new, were restarted, or their clocks
    /// jumped.
    #[error("{}", not_voting(votes, *left))]
    Quarantined {
        /// The lock.
        name: String,
        /// How long until a majority may vote.
        left: Duration,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority of the nodes cannot vote until an operator changes their settings.
    #[error("a majority of the nodes is not fit to hold locks")]
    Misconfigured {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority granted, but so late that too little was left of the TTL.
    #[error("`{name}` was granted too late to be worth holding; a longer ttl may help")]
    Expired {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The nodes' clocks are so far apart that no ballot suits a majority.
    #[error("the nodes' clocks are too far apart for a majority to agree on `{name}`")]
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
    /// The request is not valid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The operating system gave no random bytes for a token.
    #[error("no random bytes for a token: {0}")]
    NoEntropy(String),
}

impl AcquireError {
    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Misconfigured { .. } | Self::Invalid(_) | Self::Cancelled { .. }
        )
    }

    /// Whether other clients hold the lock: what `try_lock` returns for a lock that is not free.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// The holder that refused the lock: the one that most nodes name. `None` if the lock was
    /// refused for another reason, or if callers only stopped each other.
    pub fn holder(&self) -> Option<&Holder> {
        self.votes()
            .filter(|_| self.is_held())
            .and_then(Votes::holder)
    }

    /// Every node's vote, if the nodes were asked.
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
        // Every grant of this attempt is undone by now, or is about to be.
        let votes = Votes::worded("granted, and undone", names, failure.votes);
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

/// Why an `init` was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// There is no client to ask the nodes with. Nothing was written.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Not all nodes answered, so nothing was written.
    #[error("every node has to answer before a cluster can be initialised")]
    Unreachable {
        /// Each node's answer.
        votes: Votes,
    },
    /// A node is not new.
    #[error("this cluster is not new")]
    Refused {
        /// Each node's answer.
        votes: Votes,
    },
    /// A node is in use, or was a moment ago.
    #[error("this cluster is in use, and its number of nodes must not change under its clients")]
    InUse {
        /// Each node's answer.
        votes: Votes,
    },
}

impl InitError {
    /// Every node's answer, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Connect(error) => error.votes(),
            Self::Unreachable { votes } | Self::Refused { votes } | Self::InUse { votes } => {
                Some(votes)
            }
        }
    }

    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Unreachable { .. } => true,
            Self::Refused { .. } | Self::InUse { .. } => false,
        }
    }
}

/// Why a lock could not be extended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost.
    #[error("{why}")]
    Lost {
        /// How.
        why: Lost,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority confirmed: the old deadline stands.
    #[error("no majority of the nodes confirmed; the old deadline stands")]
    Unconfirmed {
        /// Every node's vote.
        votes: Votes,
    },
    /// The request is not valid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl ExtendError {
    /// Every node's vote, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Lost { votes, .. } | Self::Unconfirmed { votes } => Some(votes),
            Self::Invalid(_) => None,
        }
    }

    /// Whether the same call may succeed later: the lock is not lost.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unconfirmed { .. })
    }
}

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had expired before it was released: the work may not have been alone.
    #[error("the lock had expired before it was released")]
    Expired,
    /// As `Expired`, and another client holds it now.
    #[error("the lock had expired and another client holds it now")]
    Taken,
    /// No majority confirmed, for example because a failover has just replaced the server. The client
    /// retries in the background; the lock ends with its TTL at the latest.
    #[error(
        "no majority of the nodes confirmed the release; the lock ends with its ttl at the latest"
    )]
    Unconfirmed,
}

/// Why `hold` returned no result of the work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The lock was not granted; the work did not begin.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock was lost; the work was stopped.
    #[error("the work was stopped: {0}")]
    Lost(Lost),
}

impl HoldError {
    /// Whether the same call may succeed later. After a loss the lock can be taken again; whether
    /// the work may be repeated only the caller knows.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_retryable(),
            Self::Lost(_) => true,
        }
    }

    /// Whether other clients held the lock, so that the work did not begin.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Acquire(error) if error.is_held())
    }

    /// The holder that refused the lock. See [`AcquireError::holder`].
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Acquire(error) => error.holder(),
            Self::Lost(_) => None,
        }
    }

    /// Every node's vote, if the lock was not granted and the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Acquire(error) => error.votes(),
            Self::Lost(_) => None,
        }
    }
}

/// Why the locks could not be listed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// No majority of the nodes answered.
    #[error("no majority of the nodes answers")]
    NoQuorum {
        /// Every node's vote.
        votes: Votes,
    },
    /// The client cannot be used.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl ListError {
    /// Every node's vote, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::NoQuorum { votes } => Some(votes),
            Self::Invalid(_) => None,
        }
    }

    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoQuorum { .. })
    }
}

/// Why a lock could not be inspected.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No majority of the nodes answered.
    #[error("no majority of the nodes answers for `{name}`")]
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The request is not valid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

impl InspectError {
    /// Every node's vote, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::NoQuorum { votes, .. } => Some(votes),
            Self::Invalid(_) => None,
        }
    }

    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoQuorum { .. })
    }
}
