//! **For people who write a node**: one lock server of any kind, and the protocol between a client
//! and its nodes. Programs that use locks need only the constructors of [`redis::RedisNode`],
//! `sqlite::SqliteNode` and [`memory::MemoryNode`], and those rarely: URLs do the same.
//!
//! The rest of the library uses nodes only through [`Node`]. The messages follow the protocol: any
//! release of 0.x may add operations, answers and fields to them. The example `custom_node` wraps a
//! node.

#[cfg(any(feature = "redis", feature = "sqlite"))]
mod backlog;
#[cfg(feature = "client")]
mod clock;
#[cfg(feature = "client")]
mod embedded;
#[cfg(feature = "client")]
pub(crate) mod examination;
#[cfg(feature = "client")]
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::fmt;
use std::sync::{Arc, Weak};

#[cfg(feature = "client")]
pub use clock::NodeClock;
#[cfg(feature = "client")]
pub(crate) use examination::*;
// The arguments and results of a `Node`.
#[doc(inline)]
pub use ringfence_core::group::Group;
#[doc(inline)]
pub use ringfence_core::message::{
    Acquire, AcquireSlot, Answer, Arrivals, Arrive, Attend, Ballot, Break, BreakNote, Claim,
    Downgrade, Extend, Holder, List, Mode, Op, Permit, PlainAcquire, PlainExtend, Portion, Refresh,
    RefreshSlots, Release, ReleaseKind, ReleaseSlot, Reply, ReplyStamp, Request, Restore, Slots,
    Standing, Ticket, Turn, View, Wake,
};
#[doc(inline)]
pub use ringfence_core::name::Name;
#[doc(inline)]
pub use ringfence_core::node::{CallError, Facts, Tier, Trouble, TroubleKind};
#[doc(inline)]
pub use ringfence_core::protocol::Confirmation;
#[doc(inline)]
pub use ringfence_core::time::Timestamp;
#[doc(inline)]
pub use ringfence_core::token::Token;

/// One lock server.
///
/// A node carries out each [`Request`] atomically as [`ringfence_core::ledger::apply`] defines, and
/// answers every [`Call`] exactly once, in any order. It carries out the calls of one caller with
/// the same token in the order in which they were sent, or not at all. There are two exceptions. An
/// acquire that has not been answered may be overtaken; this is what an unknown fate means in
/// [`Op::Release`]. An undo whose ticket does not stay may be overtaken by later calls of its token:
/// their ballots are higher, or they are about other slots.
pub trait Node: Send + Sync + fmt::Debug + 'static {
    /// The node's name in messages: its address without secrets.
    fn name(&self) -> &str;

    /// Starts `call` and returns at once. Never blocks, never panics, needs no tokio runtime.
    ///
    /// A call that cannot be sent before its `expires` is answered [`CallError::NotSent`].
    fn send(&self, call: Call);

    /// Hands the calls that were sent so far to the server or the disk, in case this process ends
    /// soon: a guard was dropped, perhaps at the end of `main`. Must not block.
    fn flush(&self) {}

    /// Delivers the wakes of `client`'s tickets to `to`, from now on and over every reconnect. A
    /// wake may be lost or arrive twice: waiters also retry by themselves.
    fn listen(&self, client: &str, to: Arc<dyn Hear>);

    /// Tells `to` which names any client writes, from now on and over every reconnect, for as long
    /// as `to` exists. Only a hint for lists: a node may tell of some names or of none.
    fn watch_changes(&self, to: Weak<dyn HearChange>) {
        drop(to);
    }

    /// Reads the node's facts without changing it. Used before the group's values are known.
    fn probe(&self, done: Completion<Facts>);

    /// Makes the node a member of `group`: writes its birth record if it is missing or belongs to
    /// another incarnation, now and after every reconnect. A node that has not joined answers calls
    /// with [`CallError::NotSent`].
    fn join(&self, group: Group, done: Completion<Facts>);

    /// What a crash of the node may cost, as the last handshake found it; `None` before the first.
    fn tier(&self) -> Option<Tier> {
        None
    }

    /// Whether the node's votes count only while its Sentinels confirm that it is the master.
    fn needs_confirmation(&self) -> bool {
        false
    }

    /// The last confirmation of the Sentinels for the server that the node leads to now. Read for
    /// every reply, so it must not block.
    fn confirmation(&self) -> Option<Confirmation> {
        None
    }

    /// Whether leases run on the clock that replies carry, as they do on Redis. If not, a jump of
    /// that clock shortens no lease, and the node keeps its vote.
    fn leases_follow_clock(&self) -> bool {
        true
    }

    /// Another instance of this node that has joined `group`, with connections of its own in the
    /// current tokio runtime. A thread of the client renews held locks through it while the client's
    /// tokio runtime is blocked. It lives for seconds; another one may be made later.
    ///
    /// `None`, the default: that thread calls [`send`](Self::send) of this node itself. That is right
    /// for a node that answers inside `send` or has a thread of its own. A node whose tasks run in the
    /// client's tokio runtime answers nothing while that is blocked, and its locks may be lost.
    fn second(&self, group: Group) -> Option<Arc<dyn Node>> {
        let _ = group;
        None
    }

    /// Lets the node vote in `group` at once, without a quarantine: the operator declares that it
    /// is new. Refused, with the holders it knows of, if it holds locks or already votes.
    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>);
}

/// Receives wakes.
pub trait Hear: Send + Sync {
    /// Receives `wake`: it may be the turn of its ticket. Must not block.
    fn hear(&self, wake: Wake);
}

/// Receives the names that were written on one node.
pub trait HearChange: Send + Sync {
    /// Something of the lock, semaphore or latch at `key` was written. Must not block.
    fn hear_change(&self, key: Name);

    /// The node tells of all changes from now on, or not any more. Must not block.
    fn hear_coverage(&self, covered: bool);
}

/// How far [`Node::init`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitMode {
    /// Reports whether it would be refused; writes nothing.
    Check,
    /// Writes unless it is refused.
    Write,
    /// Writes in any case.
    Force,
    /// As `Check`, for a group that changes its number of nodes: the node may vote already and
    /// remember locks, but no lock may be held or have been used less than a quarantine ago.
    CheckRegroup,
    /// As `CheckRegroup`, but writes unless it is refused.
    Regroup,
}

impl InitMode {
    /// Whether this mode writes, unless it is refused.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Check | Self::CheckRegroup)
    }

    /// Whether this mode is for a group that is already in use.
    pub fn regroups(self) -> bool {
        matches!(self, Self::CheckRegroup | Self::Regroup)
    }
}

/// One operation under way to one node.
#[derive(Debug)]
pub struct Call {
    /// The operation; shared by the nodes of a quorum.
    pub request: Arc<Request>,
    /// When the caller stops waiting: after this the call is not sent any more.
    pub expires: Timestamp,
    /// Receives the answer.
    pub done: Completion<Reply>,
}

/// Receives one answer. Dropping it unanswered answers [`CallError::Unknown`], so that no bug in a
/// node can leave a caller waiting.
///
/// All nodes of a quorum deliver to one receiver: no allocation per node and call.
pub struct Completion<T> {
    to: Option<Arc<dyn Deliver<T>>>,
    tag: u64,
}

/// Receives answers. `tag` is the number of the call among the receiver's calls.
pub trait Deliver<T>: Send + Sync {
    /// Receives one answer. Must not block.
    fn deliver(&self, tag: u64, outcome: Result<T, CallError>);

    /// Whether the call is still wanted. See [`Completion::is_wanted`]. Must not block.
    fn is_wanted(&self, tag: u64) -> bool {
        let _ = tag;
        true
    }

    /// The call was withdrawn instead of answered. Must not block, and must not call the node.
    fn withdrawn(&self, tag: u64) {
        let trouble = Trouble::new(TroubleKind::Other, "its caller has given up");
        self.deliver(tag, Err(CallError::NotSent(trouble)));
    }
}

impl<T> Completion<T> {
    /// A completion that delivers the answer to `to` with `tag`.
    pub fn new(to: Arc<dyn Deliver<T>>, tag: u64) -> Self {
        Self { to: Some(to), tag }
    }

    /// Delivers the answer.
    pub fn complete(mut self, outcome: Result<T, CallError>) {
        if let Some(to) = self.to.take() {
            to.deliver(self.tag, outcome);
        }
    }

    /// Whether the call is still wanted: its caller has not given up, or it undoes something that
    /// was sent. A node asks right before it carries out or sends the call, and withdraws a call
    /// that is not wanted. It asks for the calls of one token in their order: if an acquire was
    /// withdrawn, its undo is not wanted either.
    pub fn is_wanted(&self) -> bool {
        let to = self.to.as_ref();
        to.is_some_and(|to| to.is_wanted(self.tag))
    }

    /// Answers a call that is not wanted and was never sent.
    pub fn withdraw(mut self) {
        if let Some(to) = self.to.take() {
            to.withdrawn(self.tag);
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let trouble = Trouble::new(
                TroubleKind::Disconnected,
                "the node dropped the call without an answer",
            );
            to.deliver(self.tag, Err(CallError::Unknown(trouble)));
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion")
    }
}
