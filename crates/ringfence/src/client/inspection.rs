//! What an inspection shows: of a lock, a semaphore, a latch, and of everything with one name. And
//! why there is none.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::message::View;
use crate::node::{CallError, Facts, Tier};
use crate::protocol::Discount;

use super::error::ConfigError;
use super::votes::Votes;

/// A majority's view of everything that has one name. A lock, a semaphore and a latch of the same
/// name are independent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NameInspection {
    /// The name.
    pub name: String,
    /// The lock of this name. Mutexes, read-write locks, elections and plain locks share it.
    pub lock: Inspection,
    /// The semaphore of this name, if a permit is held, a client waits for one, or one was asked
    /// for in the last minute.
    pub semaphore: Option<SemaphoreInspection>,
    /// The latch of this name, if a party has arrived there or a client waits.
    pub latch: Option<LatchInspection>,
}

impl NameInspection {
    /// Whether a client holds the lock or all permits of the semaphore.
    pub fn is_taken(&self) -> bool {
        let full = |semaphore: &SemaphoreInspection| semaphore.taken() >= semaphore.permits;
        self.lock.held || self.semaphore.as_ref().is_some_and(full)
    }
}

/// A majority's view of one lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The lock.
    pub name: String,
    /// Whether a majority of the nodes has one and the same holder.
    pub held: bool,
    /// How it is held; `None` if it is free.
    pub kind: Option<HolderKind>,
    /// The holder's label, if it has one. Another library's client has none.
    pub label: Option<String>,
    /// The public half of the holder's token, if it is one of ours.
    pub holder_id: Option<String>,
    /// Whether it was released and is kept from other clients for a while (`hold_at_least`).
    pub kept: bool,
    /// How long until it may be free unless it is extended; `None` if never or not held.
    pub remaining: Option<Duration>,
    /// The holder's fence; `None` for a holder without one.
    pub fence: Option<u64>,
    /// What crashes of nodes may cost the holder: the tier of the best majority that has it.
    pub durability: Option<Tier>,
    /// All holders, the latest end of a lease first: one, or the readers that share the lock. At
    /// most 64 are listed.
    pub holders: Vec<HolderInspection>,
    /// How many holders there are.
    pub holder_count: u64,
    /// How many wait in the queue, as a majority sees it.
    pub waiting: u64,
    /// The first of those that wait, in order. At most 8 are listed.
    pub queue: Vec<WaiterInspection>,
    /// Every node's own view, in node order.
    pub nodes: Vec<NodeInspection>,
}

impl Inspection {
    /// How many nodes answered and may vote.
    pub fn voting(&self) -> usize {
        let votes = |node: &&NodeInspection| node.view.is_ok() && node.discount.is_none();
        self.nodes.iter().filter(votes).count()
    }

    /// Whether a majority of the nodes may vote. Without it no client can take the lock.
    pub fn has_quorum(&self) -> bool {
        self.voting() >= crate::protocol::quorum(self.nodes.len())
    }
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HolderKind {
    /// By one client, with a fence.
    Exclusive,
    /// By readers that share it.
    Shared,
    /// By a client that left no record: a plain lock, or another library's.
    Plain,
}

/// One holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInspection {
    /// Its label. A plain lock or another library's client has none.
    pub label: Option<String>,
    /// The public half of its token, if it is one of ours.
    pub id: Option<String>,
    /// Its fence; `None` for a holder without one.
    pub fence: Option<u64>,
    /// For how long it has held the lock, by the clocks of the nodes. The fence tells it, so a
    /// holder without a fence has none. It may be wrong by as much as those clocks differ.
    pub held_for: Option<Duration>,
    /// How long until its lease ends unless it is extended; `None` if it has no end.
    pub remaining: Option<Duration>,
}

/// A client in the queue of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInspection {
    /// The id of its ticket. It has no label.
    pub id: String,
    /// For how long it has waited, by the clocks of the nodes.
    pub waited: Duration,
    /// Whether it waits to share the lock.
    pub shared: bool,
    /// Whether it is a caller of the inspecting client.
    pub own: bool,
}

/// A majority's view of a semaphore.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SemaphoreInspection {
    /// The semaphore.
    pub name: String,
    /// How many permits it has: as many as the inspecting client says, or if it does not say, the
    /// largest number that a client used in the last minute, or that is held.
    pub permits: u64,
    /// Its slots, each inspected as the lock that it is.
    pub slots: Vec<Inspection>,
    /// How many wait in the queue for one of them, as a majority sees it.
    pub waiting: u64,
    /// The first of those that wait, in order. At most 8 are listed.
    pub queue: Vec<WaiterInspection>,
}

impl SemaphoreInspection {
    /// How many permits are held.
    pub fn taken(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.held).count() as u64
    }
}

/// A majority's view of a latch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatchInspection {
    /// The latch.
    pub name: String,
    /// How many parties have arrived. How many it needs is known only to its clients.
    pub arrived: u64,
    /// The parties that have arrived, sorted, if they are at most 64.
    pub parties: Vec<String>,
    /// How long ago it was made, by the clocks of the nodes.
    pub age: Option<Duration>,
    /// How many wait until it opens.
    pub waiting: u64,
}

/// One node's view of a lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeInspection {
    /// The name of the node.
    pub node: String,
    /// What a crash of it may cost, if that is known.
    pub tier: Option<Tier>,
    /// What it has of the lock, or why it did not answer.
    pub view: Result<View, CallError>,
    /// Why its vote does not count although it answers: a quarantine, or a clock that jumped.
    pub discount: Option<Discount>,
    /// The node's clock when it answered, in microseconds.
    pub(super) clock_us: Option<u64>,
}

/// The state of one node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The name of the node.
    pub node: String,
    /// What it reports of itself, or why it did not answer.
    pub facts: Result<Facts, CallError>,
    /// For how long it does not vote yet.
    pub quarantine: Option<Duration>,
    /// Why it does not vote although it answers: a quarantine, or a clock that jumped.
    pub discount: Option<Discount>,
    /// How often this client proved that the node's clock had jumped. A client that has just
    /// begun has nothing to compare with.
    pub clock_jumps: u64,
}

/// Why the locks could not be listed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ListError {
    /// No majority of the nodes answered.
    NoQuorum {
        /// Every node's vote.
        votes: Votes,
    },
    /// The client cannot be used.
    Invalid(ConfigError),
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::NoQuorum { votes } => votes.told(
                "no majority of the nodes answers",
                "the locks cannot be listed",
            ),
            Self::Invalid(error) => return error.fmt(f),
        })
    }
}

impl Error for ListError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoQuorum { votes } => votes.as_source(),
            Self::Invalid(error) => error.source(),
        }
    }
}

impl From<ConfigError> for ListError {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error)
    }
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum InspectError {
    /// No majority of the nodes answered.
    NoQuorum {
        /// The lock.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The request is not valid. Nothing was sent.
    Invalid(ConfigError),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::NoQuorum { name, votes } => votes.told(
                format_args!("no majority of the nodes answers for `{name}`"),
                format_args!("`{name}` cannot be inspected"),
            ),
            Self::Invalid(error) => return error.fmt(f),
        })
    }
}

impl Error for InspectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoQuorum { votes, .. } => votes.as_source(),
            Self::Invalid(error) => error.source(),
        }
    }
}

impl From<ConfigError> for InspectError {
    fn from(error: ConfigError) -> Self {
        Self::Invalid(error)
    }
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
