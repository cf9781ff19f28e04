//! What the machines know about a node: the result of a handshake, and the failures of a call.

mod trouble;

use std::fmt;

use crate::group::Group;
use crate::message::Standing;
use crate::time::Timestamp;

pub use trouble::{CallError, Trouble, TroubleKind};

/// What a handshake learned about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The incarnation and its birth; `None` if the node has no birth record yet.
    pub standing: Option<Standing>,
    /// The node's clock in microseconds.
    pub clock_us: u64,
    /// When the request was sent, on the client's clock.
    pub sent: Timestamp,
    /// When the reply was received, on the client's clock.
    pub received: Timestamp,
    /// The group values in the node's birth record.
    pub group: Option<Group>,
    /// The server's run id. Two addresses with the same run id are one server.
    pub run_id: String,
    /// Server and version, shown to people.
    pub version: String,
    /// What a crash of this node can lose.
    pub tier: Tier,
}

/// What a crash of a node can lose. The better tiers come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// Every write is on disk before the node answers, and the node has no replicas.
    Durable,
    /// A restart or a failover loses locks. The node may not vote until the lost locks have expired.
    Quarantined,
    /// A restart or a failover loses locks, and nothing protects against it: development, or a
    /// single node without a quarantine.
    BestEffort,
}

impl Tier {
    /// What a crash can lose of a lock that nodes with these tiers hold, out of `nodes` nodes: the
    /// best tier that a whole majority has. `None` without a majority.
    pub fn of_majority(holding: impl IntoIterator<Item = Self>, nodes: usize) -> Option<Self> {
        let mut tiers: Vec<Self> = holding.into_iter().collect();
        tiers.sort_unstable();
        tiers.get(nodes / 2).copied()
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
