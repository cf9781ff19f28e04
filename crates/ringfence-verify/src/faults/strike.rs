//! One fault: of which sort, on whom, when and for how long.

use std::fmt;
use std::time::Duration;

/// A sort of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SIGKILL of a server that keeps nothing; it comes back empty.
    CrashForgetting,
    /// SIGKILL of a server with `appendfsync always`; it comes back with all it had.
    CrashDurable,
    /// SIGKILL of all servers at once that keep nothing.
    PowerCut,
    /// SIGSTOP of a server.
    ServerPause,
    /// FLUSHALL.
    Flush,
    /// A replica is attached to a server and promoted; at the end the server is made a replica of that
    /// one, which replaces its data, and promoted again. It is not restarted, and its address stays.
    FailBack,
    /// A server's wall clock is set by seconds, and back later; every client knew it before.
    ClockJump,
    /// The clocks of a minority are set, and a client begins that never saw them before: what
    /// exclusion rests on is broken from here on.
    BlindJump,
    /// All connections are closed.
    Cut,
    /// Connections are closed, and new ones refused.
    Refuse,
    /// All arrives, late.
    Delay,
    /// Connections stay, and nothing arrives either way.
    HalfOpen,
    /// Requests vanish, replies arrive.
    DeafNode,
    /// Requests arrive and are carried out, replies vanish.
    DeafClient,
    /// The connection is reset when the reply comes: carried out, and nobody knows.
    ResetAfterSend,
    /// SIGSTOP of a client.
    ClientPause,
    /// SIGKILL of a client.
    ClientCrash,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::CrashForgetting,
        Self::CrashDurable,
        Self::PowerCut,
        Self::ServerPause,
        Self::Flush,
        Self::FailBack,
        Self::ClockJump,
        Self::BlindJump,
        Self::Cut,
        Self::Refuse,
        Self::Delay,
        Self::HalfOpen,
        Self::DeafNode,
        Self::DeafClient,
        Self::ResetAfterSend,
        Self::ClientPause,
        Self::ClientCrash,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::CrashForgetting => "server SIGKILL, memory lost",
            Self::CrashDurable => "server SIGKILL, AOF kept",
            Self::PowerCut => "power cut of all without AOF",
            Self::ServerPause => "server SIGSTOP",
            Self::Flush => "FLUSHALL",
            Self::FailBack => {
                "failover and back: replica attached, promoted; master demoted, promoted"
            }
            Self::ClockJump => "clock jump",
            Self::BlindJump => "clock jump unseen by a new client",
            Self::Cut => "connections cut",
            Self::Refuse => "connections refused",
            Self::Delay => "delay",
            Self::HalfOpen => "half-open connections",
            Self::DeafNode => "one way: requests lost",
            Self::DeafClient => "one way: replies lost",
            Self::ResetAfterSend => "reset after send",
            Self::ClientPause => "client SIGSTOP",
            Self::ClientCrash => "client SIGKILL",
        }
    }

    /// Whether it is a fault of the network between clients and nodes.
    pub(super) fn is_of_network(self) -> bool {
        (Self::Cut..=Self::ResetAfterSend).contains(&self)
    }

    /// Whether a node that it hits does not vote for a while.
    pub(super) fn discounts(self) -> bool {
        matches!(
            self,
            Self::CrashForgetting | Self::Flush | Self::FailBack | Self::ClockJump
        )
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// For how long.
    pub span: Duration,
    /// Which sort.
    pub kind: Kind,
    /// The nodes that it hits.
    pub nodes: Vec<usize>,
    /// The client that it hits; of a fault in the network `None` is all of them.
    pub client: Option<usize>,
    /// How far a clock is set, or how late bytes arrive.
    pub by_us: i64,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.kind.name(), self.target())
    }
}

impl Strike {
    /// Whether both hit the same server, the same client or the same link.
    pub(super) fn clashes_with(&self, other: &Self) -> bool {
        let node = self.nodes.iter().any(|node| other.nodes.contains(node));
        let client = self.client.is_none() || other.client.is_none() || self.client == other.client;
        match (self.kind.is_of_network(), other.kind.is_of_network()) {
            (true, true) => node && client,
            (false, false) => node || (self.client.is_some() && self.client == other.client),
            _ => false,
        }
    }

    /// Whom it hits, for people.
    pub fn target(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        let nodes = nodes.join("+");
        match (self.client, self.nodes.is_empty()) {
            // The client is not hit: it is the one that cannot know.
            _ if self.kind == Kind::BlindJump => format!("node {nodes}"),
            (Some(client), true) => format!("client {client}"),
            (Some(client), false) => format!("client {client} to node {nodes}"),
            (None, _) if self.kind.is_of_network() => format!("all clients to node {nodes}"),
            (None, _) => format!("node {nodes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strike(kind: Kind, nodes: &[usize], client: Option<usize>) -> Strike {
        Strike {
            at: Duration::ZERO,
            span: Duration::ZERO,
            kind,
            nodes: nodes.to_vec(),
            client,
            by_us: 0,
        }
    }

    #[test]
    fn two_on_one_target_clash() {
        let crash = strike(Kind::CrashForgetting, &[1], None);
        let cut = strike(Kind::Cut, &[1, 2], Some(0));
        let stop = strike(Kind::ClientPause, &[], Some(0));
        let clash = |one: &Strike, kind, nodes: &[usize], client| {
            one.clashes_with(&strike(kind, nodes, client))
        };
        assert!(clash(&crash, Kind::ServerPause, &[1], None));
        assert!(!clash(&crash, Kind::ServerPause, &[0], None));
        assert!(clash(&crash, Kind::PowerCut, &[1, 3], None));
        assert!(!clash(&crash, Kind::Delay, &[1], None), "another matter");
        assert!(clash(&cut, Kind::Delay, &[2], None));
        assert!(!clash(&cut, Kind::Delay, &[2], Some(1)));
        assert!(!clash(&cut, Kind::Delay, &[3], Some(0)));
        assert!(clash(&stop, Kind::ClientCrash, &[], Some(0)));
        assert!(!clash(&stop, Kind::ClientCrash, &[], Some(1)));
        assert!(clash(&stop, Kind::BlindJump, &[0, 2], Some(0)));
        assert!(!clash(&stop, Kind::Cut, &[0], Some(0)));
    }
}
