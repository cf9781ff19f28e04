//! One lock server, whatever it is made of. The rest of the library knows nodes only by [`Node`].

#[cfg(any(feature = "redis", feature = "sqlite"))]
mod backlog;
#[cfg(feature = "client")]
mod clock;
#[cfg(feature = "client")]
mod embedded;
#[cfg(feature = "client")]
mod examination;
#[cfg(feature = "client")]
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "client")]
pub use clock::NodeClock;
#[cfg(feature = "client")]
pub use examination::{
    Birth, ClockReading, Contents, Examination, FileExamination, FileMode, Found, Identity, Keys,
    Machine, Memory, OnDisk, Purpose, Right, Rights, Role, ServerExamination, Voting,
};
// What a `Node` is given and gives back.
pub use ringfence_core::group::Group;
pub use ringfence_core::message::{
    Acquire, AcquireSlot, Answer, Arrivals, Arrive, Attend, Ballot, Claim, Downgrade, Extend,
    Holder, Mode, Op, Permit, Place, PlainAcquire, PlainExtend, Refresh, RefreshSlots, Release,
    ReleaseKind, ReleaseSlot, Reply, Request, Restore, Slots, Stamp, Standing, Turn, View, Wake,
};
pub use ringfence_core::name::Name;
pub use ringfence_core::node::{CallError, Facts, Tier, Trouble, TroubleKind};
pub use ringfence_core::time::Timestamp;
pub use ringfence_core::token::Token;

/// One lock server.
///
/// A node carries out each [`Request`] atomically as [`ringfence_core::ledger::apply`] says, and answers
/// every [`Call`] exactly once, in whatever order. Calls of one caller about the same token are
/// carried out in the order in which they were sent, or not at all; only an acquire that has not been
/// answered may be overtaken, which is what an unknown fate means in [`Op::Release`].
pub trait Node: Send + Sync + fmt::Debug + 'static {
    /// How people know this node: its address without secrets.
    fn name(&self) -> &str;

    /// Starts `call` and returns at once. Never blocks, never panics, needs no runtime.
    ///
    /// A call that cannot be sent before its `expires` is answered [`CallError::NotSent`].
    fn send(&self, call: Call);

    /// Has what was sent so far carried out even if this process ends soon, as far as that goes
    /// without waiting: a guard was dropped, perhaps at the end of `main`. Must not block.
    fn flush(&self) {}

    /// Has the wakes of `client`'s tickets delivered to `to`, from now on and over every reconnect.
    /// A wake may be lost or come twice: whoever waits looks for itself now and then.
    fn listen(&self, client: &str, to: Arc<dyn Hear>);

    /// Reads what the node is, without changing it. Used before the group's values are known.
    fn probe(&self, done: Completion<Facts>);

    /// Makes the node a member of `group`: writes its birth record where it is missing or belongs
    /// to another incarnation, and keeps doing so after every reconnect. Until a node has joined,
    /// it answers calls with [`CallError::NotSent`].
    fn join(&self, group: Group, done: Completion<Facts>);

    /// What a crash of the node may cost, as the last handshake found it; `None` before the first.
    fn tier(&self) -> Option<Tier> {
        None
    }

    /// Whether leases run on the clock that replies carry, as they do on Redis. If not, a jump of
    /// that clock shortens no lease, and costs the node nothing.
    fn leases_follow_clock(&self) -> bool {
        true
    }

    /// Marks the node as grown up in `group`, on the operator's word that it is new. Refused, with
    /// the holders it knows of, if it holds locks or already votes.
    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>);
}

/// Hears wakes.
pub trait Hear: Send + Sync {
    /// It may be the turn of `wake`'s ticket. Must not block.
    fn hear(&self, wake: Wake);
}

/// How far [`Node::init`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitMode {
    /// Says whether it would be refused; writes nothing.
    Check,
    /// Writes unless it is refused.
    Write,
    /// Writes whatever is there.
    Force,
    /// As `Check`, for a group that changes its number of nodes: it may vote already and remember
    /// locks, but nobody may hold one or have used one less than a quarantine ago.
    CheckRegroup,
    /// As `CheckRegroup`, and writes unless it is refused.
    Regroup,
}

impl InitMode {
    /// Whether it changes the node, unless it is refused.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Check | Self::CheckRegroup)
    }

    /// Whether it is about a group that is in use.
    pub fn regroups(self) -> bool {
        matches!(self, Self::CheckRegroup | Self::Regroup)
    }
}

/// One operation under way to one node.
#[derive(Debug)]
pub struct Call {
    /// What is to be done; shared by the nodes of a quorum.
    pub request: Arc<Request>,
    /// After this there is no point in sending it any more.
    pub expires: Timestamp,
    /// Where the answer goes.
    pub done: Completion<Reply>,
}

/// Where one answer goes. Dropping it unanswered answers [`CallError::Unknown`], so that no
/// mistake of a node can leave a caller waiting.
///
/// All nodes of a quorum deliver into one receiver: no allocation per node and call.
pub struct Completion<T> {
    to: Option<Arc<dyn Deliver<T>>>,
    tag: u64,
}

/// Takes answers. `tag` tells which of the receiver's calls it belongs to.
pub trait Deliver<T>: Send + Sync {
    /// Takes one answer. Must not block.
    fn deliver(&self, tag: u64, outcome: Result<T, CallError>);
}

impl<T> Completion<T> {
    /// A completion that hands the answer to `to` under `tag`.
    pub fn new(to: Arc<dyn Deliver<T>>, tag: u64) -> Self {
        Self { to: Some(to), tag }
    }

    /// Delivers the answer.
    pub fn complete(mut self, outcome: Result<T, CallError>) {
        if let Some(to) = self.to.take() {
            to.deliver(self.tag, outcome);
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
