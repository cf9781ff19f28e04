//! One thing that happens: what a search chooses between, and tells when it has found a way.

use std::fmt;

use super::message::{MessageKind, What};
use super::scope::Ticks;
use super::setting::{TICK, clock_us};
use super::world::Mail;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client asks all nodes.
    Begin {
        /// Which client.
        client: usize,
        /// What it is to propose, if its machines do not choose.
        ballot: Option<Ticks>,
    },
    /// The task of a client reads that its attempt was won.
    Conclude {
        /// Which client.
        client: usize,
    },
    /// A timer of a client fires.
    TimeOut {
        /// Which client.
        client: usize,
    },
    /// A holder is done.
    Release {
        /// Which client.
        client: usize,
    },
    /// Something arrives: a request at a node, which carries it out, or a reply at a client.
    Arrive {
        /// What was under way.
        mail: Mail,
        /// What that is.
        what: What,
        /// Its answer gets lost.
        mute: bool,
    },
    /// The lease on a node ends.
    Lapse {
        /// Which node.
        node: usize,
    },
    /// A node forgets everything.
    Crash {
        /// Which node.
        node: usize,
    },
    /// A tick passes, for all.
    Tick,
    /// A tick passes on a node that has a time of its own.
    NodeTick {
        /// Which node.
        node: usize,
    },
    /// The clock of such a node is set back.
    SetBack {
        /// Which node.
        node: usize,
        /// How far.
        by: i8,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = |at: usize| ["A", "B", "C"][at];
        match *self {
            Self::Begin {
                client,
                ballot: None,
            } => write!(f, "client {client} asks all nodes"),
            Self::Begin {
                client,
                ballot: Some(ballot),
            } => write!(f, "client {client} asks all nodes with ballot {ballot}"),
            Self::Conclude { client } => write!(f, "client {client} reads that it has won"),
            Self::TimeOut { client } => write!(f, "a timer of client {client} fires"),
            Self::Release { client } => write!(f, "client {client} releases"),
            Self::Arrive { mail, what, mute } => {
                let (at, client) = (node(mail.node.into()), mail.client);
                if let MessageKind::Reply(word) = what.kind {
                    return write!(f, "client {client} hears {word:?} of {at}");
                }
                let lost = if mute { "; its answer is lost" } else { "" };
                let ticks = what.ballot.get().saturating_sub(clock_us(0)) as f64;
                let ballot = ticks / TICK.as_micros() as f64;
                let kind = what.kind;
                write!(
                    f,
                    "{at} gets {kind:?} of client {client}, ballot {ballot}{lost}"
                )
            }
            Self::Lapse { node: at } => write!(f, "the lease on {} ends", node(at)),
            Self::Crash { node: at } => write!(f, "{} forgets everything", node(at)),
            Self::Tick => f.write_str("a tick passes"),
            Self::NodeTick { node: at } => write!(f, "a tick passes on {}", node(at)),
            Self::SetBack { node: at, by } => {
                write!(f, "the clock of {} is set back by {by}", node(at))
            }
        }
    }
}
