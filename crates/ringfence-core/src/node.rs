//! What the machines know about a node: the result of a handshake, and the failures of a call.

use std::fmt;
use std::sync::Arc;

use crate::group::Group;
use crate::message::Standing;
use crate::time::Timestamp;

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

/// A call without an answer of the ledger. A lock held by another client is an answer, not an
/// error.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallError {
    /// The request was never sent. Nothing happened on the node.
    NotSent(Trouble),
    /// The node may have executed the request.
    Unknown(Trouble),
    /// The server refused the request. Nothing happened on the node.
    Refused(Trouble),
}

impl CallError {
    /// The node's group values differ from those of the client.
    pub fn other_group(node: &Group, asked: &Group) -> Self {
        let mut detail = format!("the node's group has {node}; this client has {asked}");
        if node.nodes != asked.nodes {
            detail += "; to change the number of nodes, stop all clients and run \
                       `ringfence init --regroup` with all of them";
        }
        Self::Refused(Trouble::new(TroubleKind::Group, detail))
    }

    /// What went wrong.
    pub fn trouble(&self) -> &Trouble {
        match self {
            Self::NotSent(trouble) | Self::Unknown(trouble) | Self::Refused(trouble) => trouble,
        }
    }

    /// Whether the node may have executed the request.
    pub fn may_have_been_applied(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.trouble(), f)
    }
}

/// A problem with a node, in words for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// The kind of problem.
    pub kind: TroubleKind,
    /// The details, without secrets: a sentence without a full stop.
    pub detail: Arc<str>,
}

/// The kinds of problems with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TroubleKind {
    /// No connection.
    Unreachable,
    /// The host name of the node does not exist.
    NoSuchHost,
    /// The server's certificate is not accepted, or one side does not use TLS.
    Tls,
    /// No reply before the timeout.
    Timeout,
    /// The connection ended before the reply arrived.
    Disconnected,
    /// The server is still loading its data.
    Loading,
    /// The node lost its data or was restarted. A new handshake is in progress.
    Newborn,
    /// The server is not Redis or Valkey, or its reply is invalid.
    Garbage,
    /// Wrong user or password, or a missing permission.
    Denied,
    /// The node is a replica.
    Replica,
    /// The node runs in cluster mode.
    Cluster,
    /// The node may evict locks.
    Evicts,
    /// The node is less durable than its URL claims.
    NotDurable,
    /// The node belongs to a group with other values.
    Group,
    /// The data is of another version of this library, or only clients with Sentinels may use it.
    Version,
    /// The lock's key holds something that is not a string.
    ForeignType,
    /// The server has no database with the number in the URL.
    Database,
    /// Another of the given nodes is the same server.
    Duplicate,
    /// The Sentinels of the URL cannot confirm a master: they do not know the service, are no
    /// Sentinels, or are too few of their group.
    Sentinel,
    /// No majority of the Sentinels confirms a master at present.
    Unconfirmed,
    /// Any other error that the server reported.
    Other,
}

impl Trouble {
    /// A problem of this `kind`, described by `detail`.
    pub fn new(kind: TroubleKind, detail: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// The node `later` is the same server as the node `earlier` of the list.
    pub fn duplicate(later: &str, earlier: &str) -> Self {
        let detail = format!(
            "{later} is the same server as {earlier}, so only {earlier} votes; \
             point each address to a server of its own"
        );
        Self::new(TroubleKind::Duplicate, detail)
    }

    /// Whether a client that has never reached the node is most likely set up wrongly. A client that
    /// has reached it before tries again: names, certificates and passwords come back.
    pub fn is_first_mistake(&self) -> bool {
        use TroubleKind::{Denied, NoSuchHost, Tls};
        matches!(self.kind, NoSuchHost | Tls | Denied)
    }

    /// Whether waiting cannot help: an operator has to change a setting.
    pub fn is_misconfiguration(&self) -> bool {
        use TroubleKind::{
            Cluster, Database, Denied, Duplicate, Evicts, ForeignType, Garbage, Group, NotDurable,
            Replica, Sentinel, Version,
        };
        matches!(
            self.kind,
            Denied
                | Replica
                | Cluster
                | Evicts
                | NotDurable
                | Group
                | Version
                | ForeignType
                | Database
                | Duplicate
                | Sentinel
                | Garbage
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}
