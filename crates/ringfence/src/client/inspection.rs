//! What an inspection shows: of a lock, a semaphore, a latch, and of everything with one name. And
//! why there is none.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::group::{Failover, Group};
use crate::message::{self, View};
use crate::node::{CallError, Facts, Tier};
use crate::protocol::{Vote, quorum};
use crate::time::Timestamp;

use super::error::ConfigError;
use super::votes::Votes;

/// What is known of a lock. Nodes that are down, in quarantine or misconfigured may have a holder
/// that the others do not have, so without enough votes it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockState {
    /// A majority of the nodes has one and the same holder.
    Held,
    /// No client can have a majority of the nodes, whatever the nodes have that do not vote.
    Free,
    /// Neither is known.
    Unknown,
}

impl LockState {
    /// The state if `most` nodes that vote have one and the same holder, and no other holder has
    /// more of them, and `silent` of all `nodes` do not vote.
    pub(super) fn of(most: usize, silent: usize, nodes: usize) -> Self {
        let quorum = quorum(nodes);
        match most {
            most if most >= quorum => Self::Held,
            most if most + silent < quorum => Self::Free,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Free => "free",
            Self::Unknown => "unknown",
        })
    }
}

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
    /// The state of the lock and of the semaphore together: *held* if a client holds the lock or if
    /// all permits are held, *free* if neither is so.
    pub fn state(&self) -> LockState {
        let semaphore = self.semaphore.as_ref();
        let semaphore = semaphore.map_or(LockState::Free, SemaphoreInspection::state);
        match (self.lock.state, semaphore) {
            (LockState::Held, _) | (_, LockState::Held) => LockState::Held,
            (LockState::Free, LockState::Free) => LockState::Free,
            _ => LockState::Unknown,
        }
    }
}

/// A majority's view of one lock. Unless it is [held](LockState::Held), nothing is said of a holder
/// but in [`reported`](Self::reported).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The lock.
    pub name: String,
    /// Whether it is held.
    pub state: LockState,
    /// The holders that nodes have, whether or not a majority agrees: the one that most nodes have
    /// first.
    pub reported: Vec<ReportedHolder>,
    /// How it is held; `None` unless it is.
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
    pub holders: Vec<Holder>,
    /// How many holders there are.
    pub holder_count: u64,
    /// How many wait in the queue, as a majority sees it. If no majority answers: as any node does.
    pub waiting: u64,
    /// The first of those that wait, in order. At most 8 are listed.
    pub queue: Vec<WaiterInspection>,
    /// Every node's own view, in node order.
    pub nodes: Vec<NodeInspection>,
}

impl Inspection {
    /// Whether a client holds it. Otherwise it is free, or its state is unknown.
    pub fn is_held(&self) -> bool {
        self.state == LockState::Held
    }

    /// How many nodes answered and may vote.
    pub fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| node.votes()).count()
    }

    /// Whether a majority of the nodes may vote. Without it no client can take the lock.
    pub fn has_quorum(&self) -> bool {
        self.voting() >= quorum(self.nodes.len())
    }

    /// Whether `node` votes and has the holder that a majority has.
    pub fn has_holder(&self, node: &NodeInspection) -> bool {
        let holder = node
            .view
            .as_ref()
            .ok()
            .and_then(|view| view.holder.as_ref());
        let is_same = holder.is_some_and(|holder| {
            // Readers have no common id: each node names one of them.
            self.kind == Some(HolderKind::Shared) || holder.id == self.holder_id
        });
        self.is_held() && node.votes() && is_same
    }

    /// Whether the state is known, and a node that votes has a holder which the majority does not
    /// have: what a failed release or a crashed attempt left there.
    pub fn is_split(&self) -> bool {
        let has_other = |node: &NodeInspection| {
            let is_free = node.view.as_ref().is_ok_and(|view| view.holder.is_none());
            node.votes() && !is_free && !self.has_holder(node)
        };
        self.state != LockState::Unknown && self.nodes.iter().any(has_other)
    }
}

/// A holder that nodes have of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedHolder {
    /// What these nodes say of it.
    pub holder: Holder,
    /// How many nodes have it whose votes count. Zero if only nodes have it whose votes do not.
    pub nodes: usize,
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

/// A holder of a lock, as other clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its label. A plain lock or another library's client has none.
    pub label: Option<String>,
    /// The public half of its token, if it is one of ours.
    pub id: Option<String>,
    /// Its fence; `None` for a holder without one. A refusal of the nodes does not tell it.
    pub fence: Option<u64>,
    /// For how long it has held the lock, by the clocks of the nodes. The fence tells it, so a
    /// holder without a fence has none. It may be wrong by as much as those clocks differ.
    pub held_for: Option<Duration>,
    /// How long until its lease ends unless it is extended; `None` if it has no end.
    pub remaining: Option<Duration>,
}

impl From<&message::Holder> for Holder {
    fn from(holder: &message::Holder) -> Self {
        Self {
            label: holder.label.clone(),
            id: holder.id.clone(),
            fence: None,
            held_for: None,
            remaining: holder.for_ms.map(Duration::from_millis),
        }
    }
}

/// A client in the queue of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInspection {
    /// The id of its ticket.
    pub id: String,
    /// Its label, as the nodes have it. It is any text of another process: escape it before it is
    /// shown. Empty if the nodes disagree.
    pub label: String,
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
        self.in_state(LockState::Held)
    }

    /// Of how many permits it is unknown whether they are held.
    pub fn unknown(&self) -> u64 {
        self.in_state(LockState::Unknown)
    }

    /// Whether all permits are held.
    pub fn state(&self) -> LockState {
        match (self.taken(), self.unknown()) {
            (taken, _) if taken >= self.permits => LockState::Held,
            (taken, unknown) if taken + unknown < self.permits => LockState::Free,
            _ => LockState::Unknown,
        }
    }

    fn in_state(&self, state: LockState) -> u64 {
        let slots = self.slots.iter().filter(|slot| slot.state == state);
        slots.count() as u64
    }
}

/// A majority's view of a latch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatchInspection {
    /// The latch.
    pub name: String,
    /// Whether a majority of the nodes votes. Otherwise this is what single nodes have, and more
    /// parties may have arrived.
    pub quorum: bool,
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
    pub discount: Option<Vote>,
    /// The node's clock when it answered, in microseconds.
    pub(super) clock_us: Option<u64>,
}

impl NodeInspection {
    /// Whether it answered and its vote counts.
    pub fn votes(&self) -> bool {
        self.view.is_ok() && self.discount.is_none()
    }

    /// By how much the fence of the name is ahead of the node's clock; zero if it is not. Beyond the
    /// window of the group the node grants the name to nobody until its clock has caught up: the
    /// clock was set back.
    pub fn fence_ahead(&self) -> Duration {
        let floor_us = self.view.as_ref().map_or(0, |view| view.floor.get());
        let clock_us = self.clock_us.unwrap_or(u64::MAX);
        Duration::from_micros(floor_us.saturating_sub(clock_us))
    }
}

/// The state of one node.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The name of the node.
    pub node: String,
    /// What it reports of itself, or why it did not answer.
    pub facts: Result<NodeFacts, CallError>,
    /// For how long it does not vote yet.
    pub quarantine: Option<Duration>,
    /// Why it does not vote although it answers: a quarantine, or a clock that jumped.
    pub discount: Option<Vote>,
    /// How often this client proved that the node's clock had jumped. A client that has just
    /// begun has nothing to compare with.
    pub clock_jumps: u64,
}

/// What a node reports of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeFacts {
    /// Server and version, for people.
    pub version: String,
    /// The server's run id. Two addresses with the same run id are one server.
    pub run_id: String,
    /// What a crash of it may cost.
    pub tier: Tier,
    /// Its clock, in microseconds since 1970.
    pub clock_us: u64,
    /// When it was asked, on the clock of this client.
    pub sent: Timestamp,
    /// When it answered, on the clock of this client.
    pub received: Timestamp,
    /// Whether any client has connected to it since it started.
    pub joined: bool,
    /// Whether it has or had replicas, or Sentinels watch it. `None` until a client has connected.
    pub replicated: Option<bool>,
    /// The settings of its group, if it belongs to one.
    pub group: Option<GroupSettings>,
}

impl From<Facts> for NodeFacts {
    fn from(facts: Facts) -> Self {
        Self {
            version: facts.version,
            run_id: facts.run_id,
            tier: facts.tier,
            clock_us: facts.clock_us,
            sent: facts.sent,
            received: facts.received,
            joined: facts.standing.is_some(),
            replicated: facts.standing.map(|standing| standing.replicated),
            group: facts.group.map(GroupSettings::from),
        }
    }
}

/// The settings that all clients of a group of nodes share. [`Builder`](crate::Builder) explains
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupSettings {
    /// How many nodes the group has.
    pub nodes: usize,
    /// How far the clocks of the nodes may differ.
    pub window: Duration,
    /// How long a node that may have forgotten locks does not vote, without the allowance for clocks.
    pub quarantine: Duration,
    /// What a failover behind a single server costs.
    pub failover: Failover,
    /// Within which time after a promotion the former master has stopped serving.
    pub stale_master: Duration,
    /// Within which time the reply of a single server with a failover behind it must be read.
    pub reply_within: Duration,
}

impl From<Group> for GroupSettings {
    fn from(group: Group) -> Self {
        let Group {
            nodes,
            window,
            quarantine,
            failover,
            stale_master,
            reply_within,
            ..
        } = group;
        Self {
            nodes,
            window,
            quarantine,
            failover,
            stale_master,
            reply_within,
        }
    }
}

impl From<GroupSettings> for Group {
    fn from(settings: GroupSettings) -> Self {
        Self {
            window: settings.window,
            quarantine: settings.quarantine,
            failover: settings.failover,
            stale_master: settings.stale_master,
            reply_within: settings.reply_within,
            ..Self::new(settings.nodes)
        }
    }
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
