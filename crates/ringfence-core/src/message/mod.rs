//! What a client says to a node and what the node answers: the vocabulary that the ledger, the
//! quorum protocol and every node share. No behaviour beyond what keeps the values honest.

mod op;
mod reply;

use std::sync::Arc;

use crate::name::Name;
use crate::token::Token;

pub use crate::values::Ballot;
pub use op::{
    Acquire, AcquireSlot, Arrive, Attend, Downgrade, Extend, Place, PlainAcquire, PlainExtend,
    Refresh, RefreshSlots, Release, ReleaseKind, ReleaseSlot, Restore, Slots,
};
pub use reply::{Answer, Arrivals, Holder, Permit, Reply, Stamp, Standing, Turn, View, Wake};

/// How a name is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One holder, nobody beside it.
    Exclusive,
    /// Any number of holders beside each other, and no exclusive one.
    Shared,
}

/// One name, and how it is claimed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// What is claimed.
    pub name: Name,
    /// How.
    pub mode: Mode,
}

impl Claim {
    /// A share of the same name.
    pub fn shared(&self) -> Self {
        Self {
            name: self.name.clone(),
            mode: Mode::Shared,
        }
    }
}

/// One operation on one node: atomic, over all its claims or none.
///
/// The nodes of a quorum share one request, hence the `Arc`s.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// The names concerned, without repetition.
    pub claims: Arc<[Claim]>,
    /// Who speaks. [`Op::Inspect`] ignores it.
    pub token: Token,
    /// What is to be done.
    pub op: Op,
}

/// What is to be done with the claims of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Take the claims.
    Acquire(Acquire),
    /// Keep the claims for longer.
    Extend(Extend),
    /// Give the claims back.
    Release(Release),
    /// From exclusive to shared.
    Downgrade(Downgrade),
    /// Put a granted holder back on a node that lost it.
    Restore(Restore),
    /// These callers still wait for the claims.
    Refresh(Refresh),
    /// Take one slot of a semaphore.
    AcquireSlot(AcquireSlot),
    /// Give slots of a semaphore back.
    ReleaseSlot(ReleaseSlot),
    /// These callers still wait for a slot.
    RefreshSlots(RefreshSlots),
    /// These parties have arrived at a latch.
    Arrive(Arrive),
    /// Who has arrived at a latch?
    Attend(Attend),
    /// Who holds? Changes nothing.
    Inspect,
    /// Plain Redlock: `SET NX PX`. One claim.
    PlainAcquire(PlainAcquire),
    /// Plain Redlock: compare and `PEXPIRE` (never shorter). One claim.
    PlainExtend(PlainExtend),
    /// Plain Redlock: compare and delete. One claim.
    PlainRelease,
}

/// What can be held. A latch cannot: its parties arrive and never leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One name or several, with nobody beside the holder.
    Exclusive,
    /// A name that other readers hold as well.
    Shared,
    /// One slot of a semaphore. The claims are its gate and then every slot.
    Slot,
    /// A name as other libraries hold it: the key alone, without ballot, record or queue.
    Plain,
}

impl Kind {
    /// Whether nodes keep a record of the name beside its key: what ballots are compared with, what
    /// a lost holder is put back into, and what a wait queue belongs to.
    #[inline]
    pub fn has_record(self) -> bool {
        self != Self::Plain
    }

    /// Takes it. `slot` is the slot that is asked for; `None` if each node is to pick one.
    #[inline]
    pub fn acquire(self, slot: Option<u32>, acquire: Acquire) -> Op {
        match self {
            Self::Exclusive | Self::Shared => Op::Acquire(acquire),
            Self::Slot => Op::AcquireSlot(AcquireSlot { slot, acquire }),
            Self::Plain => Op::PlainAcquire(PlainAcquire {
                ttl_ms: acquire.ttl_ms,
            }),
        }
    }

    /// Keeps it for longer. A slot that is held is one name like any other.
    #[inline]
    pub fn extend(self, extend: Extend) -> Op {
        match self {
            Self::Exclusive | Self::Shared | Self::Slot => Op::Extend(extend),
            Self::Plain => Op::PlainExtend(PlainExtend {
                ttl_ms: extend.ttl_ms,
            }),
        }
    }

    /// Gives it back; of a semaphore, `slots`.
    #[inline]
    pub fn release(self, slots: Slots, release: Release) -> Op {
        match self {
            Self::Exclusive | Self::Shared => Op::Release(release),
            Self::Slot => Op::ReleaseSlot(ReleaseSlot { slots, release }),
            Self::Plain => Op::PlainRelease,
        }
    }
}

impl Op {
    /// Whether this is about a latch.
    pub fn is_of_latch(&self) -> bool {
        matches!(self, Self::Arrive(_) | Self::Attend(_))
    }

    /// Whether this is plain Redlock: the key alone, no ballot and no record.
    #[inline]
    pub fn is_plain(&self) -> bool {
        matches!(
            self,
            Self::PlainAcquire(_) | Self::PlainExtend(_) | Self::PlainRelease
        )
    }

    /// Whether this gives something back, of whatever kind.
    #[inline]
    pub fn is_release(&self) -> bool {
        matches!(
            self,
            Self::Release(_) | Self::ReleaseSlot(_) | Self::PlainRelease
        )
    }

    /// Whether a caller counts on what this writes: a server that may lose it must not confirm it.
    #[inline]
    pub fn writes_holder(&self) -> bool {
        match self {
            Self::Acquire(_)
            | Self::AcquireSlot(_)
            | Self::Extend(_)
            | Self::Downgrade(_)
            | Self::Restore(_)
            | Self::Arrive(_)
            | Self::Attend(_) => true,
            Self::Release(_)
            | Self::ReleaseSlot(_)
            | Self::Refresh(_)
            | Self::RefreshSlots(_)
            | Self::Inspect
            | Self::PlainAcquire(_)
            | Self::PlainExtend(_)
            | Self::PlainRelease => false,
        }
    }

    /// How it is given back, if this is a release under a ballot.
    pub fn release_mut(&mut self) -> Option<&mut Release> {
        match self {
            Self::Release(release) | Self::ReleaseSlot(ReleaseSlot { release, .. }) => {
                Some(release)
            }
            _ => None,
        }
    }
}
