//! What can be held, and the operations by which it is taken, kept and given back.

use super::{
    Acquire, AcquireSlot, Extend, Op, PlainAcquire, PlainExtend, Release, ReleaseSlot, Slots,
};

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
