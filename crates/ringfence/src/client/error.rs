//! What can go wrong, one enum per operation. Every error that is about nodes carries each node's
//! vote, in node order, and says so line by line.

use std::fmt;
use std::time::Duration;

use crate::driver::acquire::Refusal;
use crate::driver::latch;
use crate::message::Holder;
use crate::name::NameError;
use crate::node::{CallError, Tier, Trouble};
use crate::protocol::Lost;
use crate::protocol::{FailureKind, LatchFailureKind, Vote, ceil_secs, quorum};

use super::builder::TTL_MAX;

/// One node's part in an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeVote {
    /// The node as people know it.
    pub node: String,
    /// What it said.
    pub vote: Vote,
    /// What a crash of this node may cost, where that is known and asked for.
    pub tier: Option<Tier>,
}

impl NodeVote {
    /// What it said, in words that stand behind the node's name.
    pub fn said(&self) -> String {
        let said = self.vote.to_string();
        let after_name = said
            .strip_prefix(&self.node)
            .and_then(|rest| rest.strip_prefix(' '));
        // A node's own words begin with its name.
        after_name.map_or(said.clone(), str::to_owned)
    }
}

/// Every node's part in an operation, in node order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Votes {
    nodes: Vec<NodeVote>,
    /// How a vote in favour reads: what it was in favour of depends on the question.
    granted: &'static str,
}

impl Votes {
    pub(crate) fn new(names: &[String], votes: impl IntoIterator<Item = Vote>) -> Self {
        Self::worded("granted", names, votes)
    }

    /// Votes on something else than a grant.
    pub(super) fn worded(
        granted: &'static str,
        names: &[String],
        votes: impl IntoIterator<Item = Vote>,
    ) -> Self {
        let votes = names.iter().cloned().zip(votes);
        Self {
            nodes: votes
                .map(|(node, vote)| NodeVote {
                    vote: named(vote, &node, names),
                    node,
                    tier: None,
                })
                .collect(),
            granted,
        }
    }

    /// The same votes with what a crash of each node may cost, in node order.
    pub(super) fn with_tiers(mut self, tiers: impl Iterator<Item = Option<Tier>>) -> Self {
        for (node, tier) in self.nodes.iter_mut().zip(tiers) {
            node.tier = tier;
        }
        self
    }

    /// What a crash may cost the lock that these votes grant: what the best majority of them
    /// gives. `None` without a majority.
    pub(super) fn durability(&self) -> Option<Tier> {
        let holding = self.iter().filter(|node| node.vote == Vote::Granted);
        let tiers = holding.map(|node| node.tier.unwrap_or(Tier::BestEffort));
        Tier::of_majority(tiers, self.len())
    }

    /// The holder that stands in the way: the one that most nodes name.
    pub fn holder(&self) -> Option<&Holder> {
        let holders = self.iter().filter_map(held);
        holders.max_by_key(|one| self.naming(one))
    }

    /// How many nodes name the holder `one`.
    fn naming(&self, one: &Holder) -> usize {
        let holders = self.iter().filter_map(held);
        holders.filter(|other| other.id == one.id).count()
    }

    /// Whether no holder can have a majority, whatever those nodes think that have not said.
    fn is_split(&self) -> bool {
        let unsaid = self.iter().filter(|node| !node.vote.is_answer()).count();
        let most = self.holder().map_or(0, |holder| self.naming(holder));
        most + unsaid < quorum(self.len())
    }
}

/// The vote of `node`, with the names of the nodes that it is about.
fn named(vote: Vote, node: &str, names: &[String]) -> Vote {
    match vote {
        Vote::Duplicate { of } => {
            let trouble = Trouble::duplicate(node, &names[of]);
            Vote::Failed(CallError::Refused(trouble))
        }
        other => other,
    }
}

fn held(node: &NodeVote) -> Option<&Holder> {
    match &node.vote {
        Vote::Held(holder) => Some(holder),
        _ => None,
    }
}

impl std::ops::Deref for Votes {
    type Target = [NodeVote];

    fn deref(&self) -> &[NodeVote] {
        &self.nodes
    }
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vote in &self.nodes {
            match vote.vote {
                Vote::Granted => write!(f, "\n  {}: {}", vote.node, self.granted)?,
                _ => write!(f, "\n  {}: {}", vote.node, vote.said())?,
            }
        }
        Ok(())
    }
}

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

    pub(super) fn new(name: String, names: &[String], refusal: Refusal) -> Self {
        let failure = match refusal {
            Refusal::Closed => return Self::Cancelled { name },
            Refusal::RuntimeGone => return Self::Invalid(ConfigError::RuntimeGone),
            Refusal::NoEntropy(error) => return Self::NoEntropy(error.to_string()),
            Refusal::Failed(failure) => failure,
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

fn held_by(votes: &Votes) -> String {
    match votes.holder() {
        Some(_) if votes.is_split() => {
            "contended: no holder has a majority of the nodes".to_owned()
        }
        Some(holder) => holder.to_string(),
        // Two that met again and again and stopped each other.
        None => "contended: others keep asking for it".to_owned(),
    }
}

/// Who does not vote yet, until when, and what to do.
pub(super) fn not_voting(votes: &Votes, left: Duration) -> String {
    let who = |wanted: fn(&Vote) -> bool| -> String {
        let nodes = votes.iter().filter(|node| wanted(&node.vote));
        let nodes: Vec<&str> = nodes.map(|node| node.node.as_str()).collect();
        nodes.join(", ")
    };
    let young = who(|vote| matches!(vote, Vote::Quarantined { .. }));
    let jumped = who(|vote| matches!(vote, Vote::ClockJumped { .. }));
    let secs = ceil_secs(left);
    if votes.iter().any(|node| node.vote == Vote::Outdated) {
        return "this machine was paused while it asked the nodes; try again".to_owned();
    }
    let moved = who(|vote| *vote == Vote::Moved);
    match (young.is_empty(), jumped.is_empty()) {
        (true, true) if !moved.is_empty() => format!(
            "nodes {moved} were restarted, or their addresses re-pointed, while they were asked; try again"
        ),
        (false, true) => format!(
            "nodes {young} are new or restarted and may vote in {secs} s; for a new cluster run `ringfence init`"
        ),
        (true, false) => format!(
            "the clocks of nodes {jumped} jumped, and they may vote in {secs} s; look at what sets their clocks"
        ),
        (false, false) => format!(
            "nodes {young} are new or restarted, the clocks of nodes {jumped} jumped, and a majority may vote in {secs} s"
        ),
        (true, true) => format!("a majority of the nodes may vote in {secs} s"),
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

/// Why a party did not arrive at a latch, or a latch was not seen open.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LatchError {
    /// The wait is over, and too few have arrived.
    #[error("`{name}` is shut: {arrived} of {count} have arrived{votes}")]
    Shut {
        /// The latch.
        name: String,
        /// How many have arrived.
        arrived: u64,
        /// How many it waits for.
        count: u64,
        /// Every node's vote.
        votes: Votes,
    },
    /// No majority of the nodes answers and remembers the latch from its beginning. A party may have
    /// arrived all the same: to repeat the call changes nothing then.
    #[error("no majority of the nodes can tell who has arrived at `{name}`{votes}")]
    NoQuorum {
        /// The latch.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// Of a majority nothing counts yet: its clocks jumped, or it is new or was restarted, and cannot
    /// tell whether it forgot the latch.
    #[error(
        "`{name}`: {}; a latch with a shorter ttl waits for less{votes}",
        not_voting(votes, *left)
    )]
    Quarantined {
        /// The latch.
        name: String,
        /// When a majority may vote.
        left: Duration,
        /// Every node's vote.
        votes: Votes,
    },
    /// A majority of the nodes cannot vote before somebody changes a setting.
    #[error("a majority of the nodes is not fit to hold locks{votes}")]
    Misconfigured {
        /// The latch.
        name: String,
        /// Every node's vote.
        votes: Votes,
    },
    /// The client was closed meanwhile.
    #[error("the wait at `{name}` was cancelled: the client was closed")]
    Cancelled {
        /// The latch.
        name: String,
    },
    /// The request could not be meant. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    /// The operating system gave no random bytes to tell this party from others.
    #[error("no random bytes to tell this party from others: {0}")]
    NoEntropy(String),
}

impl LatchError {
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
            Self::Shut { votes, .. }
            | Self::NoQuorum { votes, .. }
            | Self::Quarantined { votes, .. }
            | Self::Misconfigured { votes, .. } => Some(votes),
            Self::Cancelled { .. } | Self::Invalid(_) | Self::NoEntropy(_) => None,
        }
    }

    pub(super) fn new(name: String, count: u64, names: &[String], refusal: latch::Refusal) -> Self {
        let failure = match refusal {
            latch::Refusal::Closed => return Self::Cancelled { name },
            latch::Refusal::RuntimeGone => return Self::Invalid(ConfigError::RuntimeGone),
            latch::Refusal::Failed(failure) => failure,
        };
        let votes = Votes::worded("answers", names, failure.votes);
        match failure.kind {
            LatchFailureKind::Shut { arrived } => Self::Shut {
                name,
                arrived,
                count,
                votes,
            },
            LatchFailureKind::NoQuorum => Self::NoQuorum { name, votes },
            LatchFailureKind::Quarantined { left } => Self::Quarantined { name, left, votes },
            LatchFailureKind::Misconfigured => Self::Misconfigured { name, votes },
        }
    }
}
