//! One thing that happens: what a search chooses between, and tells when it has found a way.

use std::fmt;

use super::world::{Mail, Number};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client asks all nodes.
    Begin {
        /// Which client.
        client: usize,
        /// What it proposes.
        ballot: Number,
    },
    /// A client gives its attempt up, and takes back what it may have left.
    GiveUp {
        /// Which client.
        client: usize,
    },
    /// A holder is done.
    Release {
        /// Which client.
        client: usize,
    },
    /// A holder extends.
    Extend {
        /// Which client.
        client: usize,
    },
    /// Something arrives: at a node, which carries it out, or a reply at a client.
    Arrive {
        /// At or from which node.
        node: usize,
        /// From or at which client.
        client: usize,
        /// What.
        mail: Mail,
        /// Of which attempt.
        ballot: Number,
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
    /// A tick passes on a node.
    Tick {
        /// Which node.
        node: usize,
    },
    /// A node's clock is set back.
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
            Self::Begin { client, ballot } => {
                write!(f, "client {client} asks all nodes with ballot {ballot}")
            }
            Self::GiveUp { client } => write!(f, "client {client} gives up and undoes"),
            Self::Release { client } => write!(f, "client {client} releases"),
            Self::Extend { client } => write!(f, "client {client} extends"),
            Self::Arrive {
                node: at,
                client,
                mail,
                ballot,
                mute,
            } => {
                let at = node(at);
                if mail.is_reply() {
                    return write!(f, "client {client} hears {mail:?} of {at}, ballot {ballot}");
                }
                let lost = if mute { "; its answer is lost" } else { "" };
                write!(
                    f,
                    "{at} gets {mail:?} of client {client}, ballot {ballot}{lost}"
                )
            }
            Self::Lapse { node: at } => write!(f, "the lease on {} ends", node(at)),
            Self::Crash { node: at } => write!(f, "{} forgets everything", node(at)),
            Self::Tick { node: at } => write!(f, "a tick passes on {}", node(at)),
            Self::SetBack { node: at, by } => {
                write!(f, "the clock of {} is set back by {by}", node(at))
            }
        }
    }
}
