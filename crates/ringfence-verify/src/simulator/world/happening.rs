//! Everything that can happen in the world, each at its time.

use ringfence_core::protocol::SentinelAnswer;
use ringfence_core::time::Timestamp;
use tokio::sync::oneshot;

use crate::simulator::link::{Alarm, ClientMessage, ServerMessage};
use crate::simulator::network::Line;
use crate::simulator::resource::Visit;

/// Something that happens at a certain time.
pub(in crate::simulator) enum Happening {
    Arrives {
        client: usize,
        node: usize,
        connection: u64,
        line: Line,
        number: u64,
        message: ClientMessage,
        /// It was already delayed after its connection had ended.
        late: bool,
    },
    Answered {
        client: usize,
        node: usize,
        connection: u64,
        number: u64,
        message: ServerMessage,
    },
    Rings {
        client: usize,
        node: usize,
        alarm: Alarm,
    },
    /// A client's timer fires.
    Due {
        client: usize,
        tick: u64,
    },
    Visits {
        client: usize,
        resource: String,
        visit: Visit,
        answer: oneshot::Sender<Option<u64>>,
    },
    Visited {
        client: usize,
        value: Option<u64>,
        answer: oneshot::Sender<Option<u64>>,
    },
    /// A question of a client arrives at a Sentinel, which has this index in the client's list.
    Asks {
        client: usize,
        index: usize,
        sentinel: usize,
        asked_at: Timestamp,
    },
    /// The answer of a Sentinel arrives.
    Says {
        client: usize,
        index: usize,
        answer: SentinelAnswer,
    },
    /// A Sentinel learns of a failover: the server and the epoch.
    Learns {
        sentinel: usize,
        named: (usize, u64),
    },
    Fault(usize),
    /// A node's clock is set, as part of a fault.
    Strobe {
        node: usize,
        by_us: i64,
    },
    /// A paused client resumes.
    Resumes {
        client: usize,
    },
    /// A server that hung or was down resumes.
    Recovers {
        server: usize,
    },
    /// An address that led to another node's server leads to its own again.
    PointsBack {
        node: usize,
        connections_stay: bool,
    },
    /// Ends the connections of a node that do not lead where its address leads.
    CloseMisrouted {
        node: usize,
    },
    Heals,
}
