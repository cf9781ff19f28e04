//! The failures of a call to a node, sorted by what is known about their effect.

use std::fmt;
use std::sync::Arc;

use crate::group::Group;

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
