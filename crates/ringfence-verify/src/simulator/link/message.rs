//! The messages between a link and a server, and what a link wants of the world.

use std::sync::Arc;

use ringfence::node::Tier;
use ringfence_core::message::{Answer, Op, ReplyStamp, Request, Standing, Wake};
use ringfence_core::time::Timestamp;

use crate::simulator::server::{Born, Identity};

/// A message to a server.
#[derive(Debug, Clone)]
pub(in crate::simulator) enum ClientMessage {
    Call {
        request: Arc<Request>,
        known: Born,
        /// Whether the last check of the server is too old, so that the server has to compare its
        /// replication id.
        unchecked: bool,
    },
    Probe {
        /// The server that the Sentinels named; `None` without Sentinels: the one at the address.
        to: Option<usize>,
    },
    Join {
        to: Option<usize>,
        /// The epoch that the Sentinels confirmed.
        epoch: Option<u64>,
        /// The identity that the server had before the Sentinels were asked.
        seen: Option<Identity>,
        /// Whether the client knows that the server had a replica.
        replicas_seen: bool,
    },
}

impl ClientMessage {
    /// The server that the Sentinels named for it.
    pub(in crate::simulator) fn named(&self) -> Option<usize> {
        match self {
            Self::Probe { to } | Self::Join { to, .. } => *to,
            Self::Call { .. } => None,
        }
    }

    /// Whether it renews a hold.
    pub(in crate::simulator) fn is_renewal(&self) -> bool {
        match self {
            Self::Call { request, .. } => matches!(request.op, Op::Extend(_) | Op::Restore(_)),
            Self::Probe { .. } | Self::Join { .. } => false,
        }
    }
}

/// A message from a server.
#[derive(Debug, Clone)]
pub(in crate::simulator) enum ServerMessage {
    Answer(Answer, Option<ReplyStamp>),
    Newborn,
    Facts(ServerFacts),
    Wake(Wake),
    /// There is no such server or no such connection.
    Closed,
}

/// What a server reports in a handshake.
#[derive(Debug, Clone)]
pub(in crate::simulator) struct ServerFacts {
    pub(in crate::simulator) born: Option<Born>,
    pub(in crate::simulator) clock_us: u64,
    pub(in crate::simulator) identity: Identity,
    pub(in crate::simulator) tier: Tier,
}

impl ServerFacts {
    pub(super) fn run_id(&self) -> String {
        format!("{:x}", self.identity.run_id)
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        let born = self.born.as_ref()?;
        Some(Standing {
            incarnation: born.since_us,
            born_us: born.at_us,
            clock_us: self.clock_us,
            server: Standing::server_of(&self.run_id()),
            replicated: born.is_replaceable(),
            epoch: born.epoch(),
        })
    }
}

/// What a link wants the world to do.
pub(in crate::simulator) enum Out {
    Send {
        number: u64,
        message: ClientMessage,
    },
    /// Ask a Sentinel, which has this index in the client's list.
    Question {
        index: usize,
        sentinel: usize,
        asked_at: Timestamp,
    },
    /// Call back with `alarm` after this many nanoseconds.
    Alarm {
        after: u64,
        alarm: Alarm,
    },
}

/// Why a link is called back.
#[derive(Debug, Clone, Copy)]
pub(in crate::simulator) enum Alarm {
    NoAnswer {
        connection: u64,
        number: u64,
    },
    Patience {
        connection: u64,
    },
    Rested {
        connection: u64,
    },
    /// The Sentinels were asked at `since`.
    Unconfirmed {
        since: Timestamp,
    },
    /// Calls have waited for the Sentinels.
    Gate {
        connection: u64,
    },
}
