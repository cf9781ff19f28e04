//! What can go wrong, one enum per operation. The text of an error is one line. The votes that it
//! carries say what each node answered, in node order: they are its source. With one node the line
//! itself says what the node answered.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::name::NameError;
use crate::protocol::{FailureKind, Lost, ceil_secs};
use crate::runtime::closing::Refusal;

use super::inspection::Holder;
use super::votes::{Votes, held_by, not_fit, not_voting};

pub use super::config_error::{ConfigError, ConnectError};
pub use super::init::InitError;
pub use super::inspection::{InspectError, ListError};

/// Why a lock was not granted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another client holds it, and the wait is over.
    Held {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// All permits of the semaphore are taken, and the wait is over.
    Full {
        /// The semaphore.
        name: String,
        /// How many permits it has, as this client says.
        permits: u32,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority of the nodes answered.
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The votes of a majority do not count yet: the nodes are new, were restarted, or their clocks
    /// jumped.
    Quarantined {
        /// The lock.
        name: String,
        /// How long until a majority may vote.
        left: Duration,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority of the nodes cannot vote until an operator changes their settings.
    Misconfigured {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority granted, but so late that too little was left of the TTL.
    Expired {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The nodes' clocks are so far apart that no ballot suits a majority.
    ClocksApart {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The lock is free, but its fence is ahead of the clocks of a majority: a clock was set back.
    /// Until the clocks have caught up, no grant could have a higher fence.
    FenceAhead {
        /// The lock.
        name: String,
        /// How long until a majority can grant it.
        left: Duration,
        /// Every node's vote.
        votes: Votes,
    },
    /// The client was closed while waiting.
    Closed {
        /// The lock.
        name: String,
    },
    /// The request is not valid. Nothing was sent.
    Invalid(ConfigError),
    /// The operating system gave no random bytes for a token.
    NoEntropy(String),
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { name, votes } => write!(f, "`{name}` is {}", held_by(votes)),
            Self::Full {
                name,
                permits,
                votes,
            } => {
                let held_by = held_by(votes);
                write!(
                    f,
                    "`{name}` is full: {permits} of {permits} permits are taken; one is {held_by}"
                )
            }
            Self::NoQuorum { name, votes } => f.write_str(&votes.told(
                format_args!("no majority of the nodes answers for `{name}`"),
                format_args!("`{name}` cannot be locked"),
            )),
            Self::Quarantined { left, votes, .. } => f.write_str(&not_voting(votes, *left)),
            Self::Misconfigured { votes, .. } => f.write_str(&not_fit(votes)),
            Self::Expired { name, .. } => write!(
                f,
                "`{name}` was granted too late to be worth holding; a longer ttl may help"
            ),
            Self::ClocksApart { name, .. } => write!(
                f,
                "the nodes' clocks are too far apart for a majority to agree on `{name}`"
            ),
            Self::FenceAhead { name, left, .. } => write!(
                f,
                "`{name}` is free, but its fence is ahead of the nodes' clocks: a clock was set back; \
                 it can be granted in {} s",
                ceil_secs(*left)
            ),
            Self::Closed { name } => {
                write!(f, "the client was closed while it waited for `{name}`")
            }
            Self::Invalid(error) => error.fmt(f),
            Self::NoEntropy(error) => write!(f, "no random bytes for a token: {error}"),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Held { votes, .. } | Self::Full { votes, .. } => votes.as_source_of_held(),
            Self::Quarantined { votes, .. } => votes.as_source_of_quarantine(),
            Self::Invalid(error) => error.source(),
            other => other.votes().and_then(Votes::as_source),
        }
    }
}

impl From<ConfigError> for AcquireError {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error)
    }
}

impl AcquireError {
    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Misconfigured { .. } | Self::Invalid(_) | Self::Closed { .. }
        )
    }

    /// Whether other clients hold the lock, or all permits: what `try_lock` returns for a lock that
    /// is not free.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Full { .. })
    }

    /// The holder that refused the lock: the one that most nodes name. `None` if the lock was
    /// refused for another reason, or if callers only stopped each other.
    pub fn holder(&self) -> Option<Holder> {
        self.votes()
            .filter(|_| self.is_held())
            .and_then(Votes::holder)
    }

    /// Every node's vote, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Held { votes, .. }
            | Self::Full { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::Quarantined { votes, .. }
            | Self::Misconfigured { votes, .. }
            | Self::Expired { votes, .. }
            | Self::ClocksApart { votes, .. }
            | Self::FenceAhead { votes, .. } => Some(votes),
            Self::Closed { .. } | Self::Invalid(_) | Self::NoEntropy(_) => None,
        }
    }

    pub(super) fn new(
        name: String,
        permits: Option<u32>,
        names: &[String],
        refusal: Refusal<FailureKind>,
    ) -> Self {
        let failure = match refusal {
            Refusal::Closed => return Self::Closed { name },
            Refusal::RuntimeGone => return Self::Invalid(ConfigError::RuntimeGone),
            Refusal::NoEntropy(error) => return Self::NoEntropy(error.to_string()),
            Refusal::Failed(failure) => failure,
        };
        // Every grant of this attempt is undone by now, or is about to be.
        let votes = Votes::worded("granted, and undone", names, failure.votes);
        match failure.kind {
            FailureKind::Held => match permits {
                // Without a holder, callers only stopped each other.
                Some(permits) if votes.holder().is_some() => Self::Full {
                    name,
                    permits,
                    votes,
                },
                _ => Self::Held { name, votes },
            },
            FailureKind::NoQuorum => Self::NoQuorum { name, votes },
            FailureKind::Quarantined { left } => Self::Quarantined { name, left, votes },
            FailureKind::Misconfigured => Self::Misconfigured { name, votes },
            FailureKind::Expired => Self::Expired { name, votes },
            FailureKind::ClocksApart => Self::ClocksApart { name, votes },
            FailureKind::FenceAhead { left } => Self::FenceAhead { name, left, votes },
        }
    }
}

impl From<NameError> for AcquireError {
    fn from(error: NameError) -> Self {
        Self::Invalid(error.into())
    }
}

/// Why a lock could not be extended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lock is lost.
    Lost {
        /// How.
        why: Lost,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority confirmed: the old deadline stands.
    Unconfirmed {
        /// Every node's vote.
        votes: Votes,
    },
    /// The request is not valid. Nothing was sent.
    Invalid(ConfigError),
}

impl fmt::Display for ExtendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Lost { why, votes } => votes.told(why, why),
            Self::Unconfirmed { votes } => votes.told(
                "no majority of the nodes confirmed; the old deadline stands",
                "the node did not confirm, and the old deadline stands",
            ),
            Self::Invalid(error) => return error.fmt(f),
        })
    }
}

impl Error for ExtendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid(error) => error.source(),
            other => other.votes().and_then(Votes::as_source),
        }
    }
}

impl From<ConfigError> for ExtendError {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error)
    }
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
    /// The lock was not held any more when it was released: it had expired, or was removed from the
    /// nodes. The work may not have been alone.
    #[error("the lock was not held any more when it was released: it had expired, or was removed")]
    Expired,
    /// As `Expired`, and another client holds it now.
    #[error("the lock was not held any more when it was released, and another client holds it now")]
    Taken,
    /// No majority confirmed, for example because a failover has just replaced the server. The client
    /// retries in the background; the lock ends with its TTL at the latest.
    #[error(
        "no majority of the nodes confirmed the release; the lock ends with its ttl at the latest"
    )]
    Unconfirmed,
    /// This is a forked child, and the lock belongs to its parent. Nothing was sent.
    #[error(
        "the lock belongs to the process that took it, and this is a forked child of it: nothing \
         was released"
    )]
    ForkedProcess,
}

/// Why `hold` returned no result of the work. It does not contain the output, so that it is the same
/// type for every kind of work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The lock was not granted; the work did not begin.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock was lost before the work was done. The work was stopped at its next await; work that
    /// awaited nothing went on to its end.
    #[error("the lock was lost before the work was done: {0}")]
    Lost(Lost),
}

impl From<Lost> for HoldError {
    fn from(why: Lost) -> Self {
        Self::Lost(why)
    }
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
    pub fn holder(&self) -> Option<Holder> {
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
