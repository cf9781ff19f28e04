//! What the machines know of a node: what a handshake found out, and how a call failed.

mod trouble;

use std::fmt;

use crate::group::Group;
use crate::message::Standing;
use crate::time::Timestamp;

pub use trouble::{CallError, Trouble, TroubleKind};

/// What a handshake found out about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The incarnation and its birth; `None` if the node has no birth record yet.
    pub standing: Option<Standing>,
    /// The node's clock in microseconds.
    pub clock_us: u64,
    /// When the request was sent and the answer came, on the client's clock.
    pub sent: Timestamp,
    /// See `sent`.
    pub received: Timestamp,
    /// The group that the node says it belongs to.
    pub group: Option<Group>,
    /// What the server calls this run of itself; the same under two addresses is one server.
    pub run_id: String,
    /// Server and version, for people.
    pub version: String,
    /// What a crash of this node may cost.
    pub tier: Tier,
}

/// What a crash of a node may cost. The better tiers come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// Every write is on disk before it is answered, and no replica could take its place.
    Durable,
    /// A restart forgets; the node does not vote until what it forgot has expired.
    Quarantined,
    /// A restart forgets and nothing is done about it: development, or a single node.
    BestEffort,
}

impl Tier {
    /// What a crash may cost that hits a lock on nodes of these tiers, out of `nodes` in all: what
    /// a majority of them gives at least. `None` without a majority.
    ///
    /// A single node has nobody to wait for, so no quarantine: without durability it does what it can.
    pub fn of_majority(holding: impl IntoIterator<Item = Self>, nodes: usize) -> Option<Self> {
        let mut tiers: Vec<Self> = holding.into_iter().collect();
        tiers.sort_unstable();
        let tier = *tiers.get(nodes / 2)?;
        Some(match tier {
            Self::Quarantined if nodes == 1 => Self::BestEffort,
            tier => tier,
        })
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Durable => "durable",
            Self::Quarantined => "quarantined memory",
            Self::BestEffort => "best effort",
        })
    }
}
