//! What is under way between clients and nodes.

use ringfence_core::message::{Answer, Ballot, Op, ReleaseKind, Reply, Request};
use ringfence_core::protocol::RoundId;
use ringfence_core::time::Timestamp;

/// What a message is about: where the reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Tag {
    /// The attempt with this number.
    Acquire(u8),
    /// This round of the hold.
    Extend(RoundId),
    /// A restore.
    Restore,
    /// An undo or release. That it is sent again until it is acknowledged is left out: a message
    /// that is under way may arrive at any later time. So its reply is of no use.
    Release,
}

/// A request or a reply under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) tag: Tag,
    /// When the request was sent.
    pub(super) sent: Timestamp,
    pub(super) content: Content,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Content {
    Request(Request),
    Reply(Reply),
}

/// What a message is, as a search sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What {
    /// Its kind.
    pub kind: MessageKind,
    /// The ballot that a request names, in microseconds.
    pub ballot: Ballot,
}

/// The kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// An acquire.
    Acquire,
    /// An undo; the node said that it holds the token.
    Undo,
    /// An undo; it is not known whether the acquire arrived.
    Retire,
    /// The final release of a holder.
    Release,
    /// An extend.
    Extend,
    /// A restore.
    Restore,
    /// A reply.
    Reply(Word),
}

/// What a node answers, as far as the search cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// All claims are held.
    Granted,
    /// The lease is longer now.
    Extended,
    /// The lock is back.
    Restored,
    /// Another client holds.
    Held,
    /// The ballot is too low.
    Stale,
    /// The ballot is too high.
    Ahead,
    /// The token holds nothing here, or its ballot is closed.
    Gone,
    /// The token holds under a later ballot.
    Newer,
    /// Anything else.
    Other,
}

impl What {
    pub(super) fn of(message: &Message) -> Self {
        let request = match &message.content {
            Content::Request(request) => request,
            Content::Reply(reply) => {
                return Self {
                    kind: MessageKind::Reply(Word::of(reply)),
                    ballot: Ballot::default(),
                };
            }
        };
        let (kind, ballot) = match &request.op {
            Op::Acquire(op) => (MessageKind::Acquire, op.ballot),
            Op::Extend(op) => (MessageKind::Extend, op.ballot),
            Op::Restore(op) => (MessageKind::Restore, op.ballot),
            Op::Release(op) => {
                let kind = match (op.kind, op.fate_unknown) {
                    (ReleaseKind::Final, _) => MessageKind::Release,
                    (ReleaseKind::Undo, false) => MessageKind::Undo,
                    (ReleaseKind::Undo, true) => MessageKind::Retire,
                };
                (kind, op.ballot)
            }
            _ => (MessageKind::Reply(Word::Other), Ballot::default()),
        };
        Self { kind, ballot }
    }
}

impl Word {
    pub(super) fn of(reply: &Reply) -> Self {
        match reply.answer {
            Answer::Granted => Self::Granted,
            Answer::Extended => Self::Extended,
            Answer::Restored => Self::Restored,
            Answer::Held(_) => Self::Held,
            Answer::Stale => Self::Stale,
            Answer::Ahead => Self::Ahead,
            Answer::Gone => Self::Gone,
            Answer::Newer => Self::Newer,
            _ => Self::Other,
        }
    }
}
