//! What can go wrong with a call to a node, sorted by what is known of its effect.

use std::fmt;
use std::sync::Arc;

use crate::group::Group;

/// A call that brought no answer of the ledger's. Never "the lock is held": that is an answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallError {
    /// The request never left: nothing happened on the node.
    NotSent(Trouble),
    /// The request may have been carried out.
    Unknown(Trouble),
    /// The server turned it down: nothing happened on the node.
    Refused(Trouble),
}

impl CallError {
    /// The node belongs to a group with other values than the caller's.
    pub fn other_group(node: &Group, asked: &Group) -> Self {
        let detail = format!("the node's group has {node}; this client has {asked}");
        Self::Refused(Trouble::new(TroubleKind::Group, detail))
    }

    /// What went wrong.
    pub fn trouble(&self) -> &Trouble {
        match self {
            Self::NotSent(trouble) | Self::Unknown(trouble) | Self::Refused(trouble) => trouble,
        }
    }

    /// Whether the request may have taken effect.
    pub fn may_have_been_applied(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.trouble(), f)
    }
}

/// What is wrong with a node, in words for the person who has to mend it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Trouble {
    /// What sort of trouble.
    pub kind: TroubleKind,
    /// The details, without secrets; a sentence without a full stop.
    pub detail: Arc<str>,
}

/// The sorts of trouble a node can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TroubleKind {
    /// No connection.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The connection ended before the answer came.
    Disconnected,
    /// The server is still reading its data.
    Loading,
    /// The node forgot its past or was restarted: a new handshake is under way.
    Newborn,
    /// What answers is no Redis, or answers nonsense.
    Garbage,
    /// Wrong user or password, or a right is missing.
    Denied,
    /// The node is a replica.
    Replica,
    /// The node runs in cluster mode.
    Cluster,
    /// The node may evict locks.
    Evicts,
    /// The node is not as durable as its URL says.
    NotDurable,
    /// The node belongs to a group with other values.
    Group,
    /// The node's data is of another version of this library, or for clients with Sentinels only.
    Version,
    /// The lock's key holds something that is not a string.
    ForeignType,
    /// The server has no database of the number in the URL.
    Database,
    /// The same server stands behind another of the given nodes.
    Twice,
    /// Anything else that the server said.
    Other,
}

impl Trouble {
    /// Trouble of `kind`, told in `detail`.
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
        Self::new(TroubleKind::Twice, detail)
    }

    /// Whether waiting cannot help: somebody has to change a setting.
    pub fn is_misconfiguration(&self) -> bool {
        use TroubleKind::{
            Cluster, Database, Denied, Evicts, ForeignType, Garbage, Group, NotDurable, Replica,
            Twice, Version,
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
                | Twice
                | Garbage
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}
