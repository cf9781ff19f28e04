//! One planned fault: its kind, its targets, when it happens and for how long.

use std::fmt;
use std::time::Duration;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// SIGKILL of a server without persistence; it restarts empty.
    CrashForgetting,
    /// SIGKILL of a server with `appendfsync always`; it restarts with all its data.
    CrashDurable,
    /// Every sync of a server with `appendfsync always` fails: it ends before it answers. What it
    /// wrote after its last good sync is lost when it restarts.
    SyncFails,
    /// SIGKILL of all servers without persistence at the same time.
    PowerCut,
    /// SIGSTOP of a server.
    ServerPause,
    /// FLUSHALL.
    Flush,
    /// A replica is attached to a server and promoted. At the end the server becomes a replica of
    /// the promoted one, which replaces its data, and is promoted again. It is not restarted, and
    /// its address stays.
    FailBack,
    /// A server's wall clock is set by seconds, and back later. Every client has seen the clock
    /// before.
    ClockJump,
    /// The clocks of a minority are set, and a client starts that has not seen them before. From
    /// here on clocks do not keep what exclusion needs.
    BlindJump,
    /// All connections are closed.
    Cut,
    /// All connections are closed, and new ones are refused.
    Refuse,
    /// Everything arrives late.
    Delay,
    /// Connections stay open, and nothing arrives in either direction.
    HalfOpen,
    /// Requests are lost, replies arrive.
    RequestsLost,
    /// Requests arrive and are executed, replies are lost.
    RepliesLost,
    /// The connection is reset when the reply arrives: the request was executed, and the client
    /// does not know.
    ResetAfterSend,
    /// SIGSTOP of a client.
    ClientPause,
    /// SIGKILL of a client.
    ClientCrash,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 18] = [
        Self::CrashForgetting,
        Self::CrashDurable,
        Self::SyncFails,
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
        Self::RequestsLost,
        Self::RepliesLost,
        Self::ResetAfterSend,
        Self::ClientPause,
        Self::ClientCrash,
    ];

    /// The name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::CrashForgetting => "server SIGKILL, memory lost",
            Self::CrashDurable => "server SIGKILL, AOF kept",
            Self::SyncFails => "fsync fails",
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
            Self::RequestsLost => "one way: requests lost",
            Self::RepliesLost => "one way: replies lost",
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

/// One planned fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFault {
    /// When it begins, from the beginning of the run.
    pub at: Duration,
    /// How long it lasts.
    pub span: Duration,
    /// Its kind.
    pub kind: FaultKind,
    /// The nodes that it hits.
    pub nodes: Vec<usize>,
    /// The client that it hits. For a network fault, `None` means all clients.
    pub client: Option<usize>,
    /// How far a clock is set, or by how much bytes are delayed.
    pub by_us: i64,
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.kind.name(), self.target())
    }
}

impl PlannedFault {
    /// Whether both hit the same server, the same client or the same connection.
    pub(super) fn clashes_with(&self, other: &Self) -> bool {
        let node = self.nodes.iter().any(|node| other.nodes.contains(node));
        let client = self.client.is_none() || other.client.is_none() || self.client == other.client;
        match (self.kind.is_of_network(), other.kind.is_of_network()) {
            (true, true) => node && client,
            (false, false) => node || (self.client.is_some() && self.client == other.client),
            _ => false,
        }
    }

    /// The target, for people.
    pub fn target(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
        let nodes = nodes.join("+");
        match (self.client, self.nodes.is_empty()) {
            // The client is not the target: it is the one that cannot notice the jump.
            _ if self.kind == FaultKind::BlindJump => format!("node {nodes}"),
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

    fn fault(kind: FaultKind, nodes: &[usize], client: Option<usize>) -> PlannedFault {
        PlannedFault {
            at: Duration::ZERO,
            span: Duration::ZERO,
            kind,
            nodes: nodes.to_vec(),
            client,
            by_us: 0,
        }
    }

    #[test]
    fn two_faults_of_one_target_clash() {
        let crash = fault(FaultKind::CrashForgetting, &[1], None);
        let cut = fault(FaultKind::Cut, &[1, 2], Some(0));
        let stop = fault(FaultKind::ClientPause, &[], Some(0));
        let clash = |one: &PlannedFault, kind, nodes: &[usize], client| {
            one.clashes_with(&fault(kind, nodes, client))
        };
        assert!(clash(&crash, FaultKind::ServerPause, &[1], None));
        assert!(!clash(&crash, FaultKind::ServerPause, &[0], None));
        assert!(clash(&crash, FaultKind::PowerCut, &[1, 3], None));
        assert!(
            !clash(&crash, FaultKind::Delay, &[1], None),
            "network and server"
        );
        assert!(clash(&cut, FaultKind::Delay, &[2], None));
        assert!(!clash(&cut, FaultKind::Delay, &[2], Some(1)));
        assert!(!clash(&cut, FaultKind::Delay, &[3], Some(0)));
        assert!(clash(&stop, FaultKind::ClientCrash, &[], Some(0)));
        assert!(!clash(&stop, FaultKind::ClientCrash, &[], Some(1)));
        assert!(clash(&stop, FaultKind::BlindJump, &[0, 2], Some(0)));
        assert!(!clash(&stop, FaultKind::Cut, &[0], Some(0)));
    }
}
