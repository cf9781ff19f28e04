//! The faults of a plan: what goes wrong, where, and for how long.

use std::time::Duration;

/// One fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// When it happens.
    pub at: Duration,
    /// What happens.
    pub what: FaultAction,
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum FaultAction {
    /// Nothing arrives from these clients at these nodes, or in the other direction.
    Partition {
        /// The clients.
        clients: Vec<usize>,
        /// The nodes.
        nodes: Vec<usize>,
        /// The direction that is cut.
        ways: Ways,
        /// How long it lasts.
        lasts: Duration,
    },
    /// Messages between them take longer.
    Slow {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
        /// By this much at most.
        by: Duration,
        /// How long it lasts.
        lasts: Duration,
    },
    /// Messages are lost and requests are executed twice.
    Lossy {
        /// Percentage of lost messages.
        lost: u64,
        /// Percentage of repeated requests.
        twice: u64,
        /// How long it lasts.
        lasts: Duration,
    },
    /// A connection ends. Messages on their way may arrive late or never.
    Reset {
        /// The client.
        client: usize,
        /// The node.
        node: usize,
    },
    /// A node hangs and then resumes, with its connections in any order.
    Hang {
        /// The node.
        node: usize,
        /// How long it lasts.
        lasts: Duration,
        /// Its clock freezes too: its machine was paused.
        clock: bool,
    },
    /// A node is down. It keeps its data only if it is durable.
    Crash {
        /// The node.
        node: usize,
        /// How long it lasts.
        lasts: Duration,
    },
    /// A node that is not durable loses all its data and continues.
    Flush {
        /// The node.
        node: usize,
    },
    /// A node's clock is set.
    Step {
        /// The node.
        node: usize,
        /// By how much, in microseconds.
        by_us: i64,
    },
    /// A node's clock is set forward and back several times.
    Strobe {
        /// The node.
        node: usize,
        /// By how much, in microseconds.
        by_us: i64,
        /// How many times.
        times: u32,
    },
    /// A client is paused between two actions.
    Pause {
        /// The client.
        client: usize,
        /// How long it lasts.
        lasts: Duration,
        /// The pause begins when a reply has arrived, before the callers learn of it.
        after_reply: bool,
    },
    /// A client is paused while it sends, after this many requests.
    Stall {
        /// The client.
        client: usize,
        /// How many requests it sends first.
        sends: u32,
        /// How long it lasts.
        lasts: Duration,
    },
    /// A virtual machine is paused: the clocks of its clients freeze.
    PauseMachine {
        /// The machine.
        host: usize,
        /// How long it lasts.
        lasts: Duration,
    },
    /// A client is killed.
    Kill {
        /// The client.
        client: usize,
    },
    /// A replica is attached to a node's own server: its standby. It gets the server's writes late.
    Attach {
        /// The node.
        node: usize,
        /// How long a write takes to arrive.
        lag: Duration,
        /// The offset of the standby's clock from the server's, in microseconds.
        ahead_us: i64,
    },
    /// A node's standby is promoted. The server that it followed is not informed.
    Promote {
        /// The node.
        node: usize,
        /// How the node's address moves to the standby; `None` if the address stays.
        moved: Option<Moved>,
    },
    /// Of a node's two masters, the one that was promoted first becomes a replica of the other,
    /// which replaces its data.
    Demote {
        /// The node.
        node: usize,
        /// How long a write takes to arrive.
        lag: Duration,
    },
    /// A node's own server, which is now a replica of the standby, is promoted again.
    FailBack {
        /// The node.
        node: usize,
        /// How the node's address moves back to it, if it was moved.
        moved: Moved,
    },
    /// The Sentinels promote the server of the group that is not the master.
    FailOver {
        /// After which time each Sentinel learns of it.
        learn: Vec<Duration>,
    },
    /// The former master becomes a replica of the one that the Sentinels promoted.
    DemoteFormer {
        /// How long a write takes to arrive.
        lag: Duration,
    },
    /// A Sentinel names the first master, whatever it knows.
    Lie {
        /// The Sentinel.
        sentinel: usize,
        /// How long it lasts.
        lasts: Duration,
    },
    /// `SENTINEL RESET`: a Sentinel knows no other Sentinels.
    ResetSentinel {
        /// The Sentinel.
        sentinel: usize,
        /// How long it lasts.
        lasts: Duration,
    },
    /// A node's address leads to another node's server, which then answers under two addresses.
    Repoint {
        /// The node whose address is wrong.
        node: usize,
        /// The node whose server it leads to.
        to: usize,
        /// How long it lasts.
        lasts: Duration,
        /// Whether open connections continue unchanged at both changes. If not, they end.
        connections_stay: bool,
    },
}

/// How an address moves from one server to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// How long open connections to the former server last. Zero: they end at once.
    pub connections_last: Duration,
}

/// The direction that a partition cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    /// Both directions.
    Both,
    /// Requests do not arrive.
    There,
    /// Replies do not arrive.
    Back,
}
