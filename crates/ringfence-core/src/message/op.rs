//! The operations of a node: one struct for each, and the values inside them.

use std::sync::Arc;

use super::Ballot;

/// Take the claims, if they are free and `ballot` is above their fences.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The ballot that this attempt proposes.
    pub ballot: Ballot,
    /// The lease of the holder, in milliseconds.
    pub ttl_ms: u64,
    /// The holder's name, shown to people.
    pub label: Arc<str>,
    /// The caller's ticket, if it waits. The node enters or refreshes the ticket whatever it
    /// answers.
    pub ticket: Option<Ticket>,
    /// The latest time, on the node's clock, at which the node may execute this; `None`: at any
    /// time. Only for the single node of a group that has a failover behind it.
    pub not_after_us: Option<u64>,
}

/// Extend the lease of the claims to at least `ttl_ms` from now, if this token still holds them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extend {
    /// The ballot of the grant.
    pub ballot: Ballot,
    /// The new lease, counted from when the node executes this.
    pub ttl_ms: u64,
    /// The lock delay of a hold that is extended by its receipt; zero for a guard, which knows its
    /// deadline. If no more than this is left of the lease, the hold is over.
    pub delay_ms: u64,
}

/// Release the claims, if this token holds them and not under a later ballot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Release {
    /// The ballot of the attempt or grant.
    pub ballot: Ballot,
    /// Whether a granted holder is done, or an attempt is undone.
    pub kind: ReleaseKind,
    /// Something of this attempt or hold may still be under way to this node: an acquire or, of a
    /// hold, an extend or a restore whose reply was not read. The node must refuse what arrives
    /// later. So the release raises the fence to the ballot ("retire"), and a final release closes
    /// the ballot.
    pub fate_unknown: bool,
    /// The caller's ticket, if it has one.
    pub ticket: Option<Ticket>,
    /// The caller will try again: the ticket stays in the wait queue.
    pub stays: bool,
    /// Only for a final release: keep the claims from every other client for this long.
    pub keep_ms: Option<u64>,
    /// The lock delay of a hold that is released by its receipt, as in [`Extend`]. The release of a
    /// hold that is over changes nothing, so that it does not cut the delay.
    pub delay_ms: u64,
}

/// Change from exclusive to shared, under the same token and ballot, for at least `ttl_ms` more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Downgrade {
    /// The ballot of the grant.
    pub ballot: Ballot,
    /// The new lease, counted from when the node executes this.
    pub ttl_ms: u64,
}

/// Restore a granted holder on a node that lost it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Restore {
    /// The ballot of the grant.
    pub ballot: Ballot,
    /// The new lease, counted from when the node executes this.
    pub ttl_ms: u64,
    /// The holder's name, shown to people.
    pub label: Arc<str>,
}

/// Enter or refresh the tickets of callers that still wait for the claims. The node answers with
/// the position of each ticket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refresh {
    /// The tickets.
    pub tickets: Arc<[Ticket]>,
}

/// Take one slot of a semaphore. The claims are its admission record, followed by every slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireSlot {
    /// The wanted slot, which the node never replaces by another. With `None` the node picks one.
    pub slot: Option<u32>,
    /// How to take the slot. The ticket is for the semaphore's one wait queue.
    pub acquire: Acquire,
}

/// Release slots of a semaphore. Each slot is released if this token holds it and not under a later
/// ballot. The claims are those of [`AcquireSlot`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReleaseSlot {
    /// The slots to release.
    pub slots: Slots,
    /// How to release each of them. A slot is never kept from others: `keep_ms` is ignored.
    pub release: Release,
}

/// Enter or refresh the tickets of callers that still wait for a slot. The node answers with the
/// position of each ticket. The claims are those of [`AcquireSlot`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefreshSlots {
    /// The tickets.
    pub tickets: Arc<[Ticket]>,
}

/// Add parties that have arrived at a latch. The latch is the only claim. No party ever leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Arrive {
    /// The parties: one that arrives, or all parties that the client knows of.
    pub parties: Arc<[Arc<str>]>,
    /// When the latch was created, in microseconds of the nodes' clocks. With `None` the caller
    /// does not know it, and a node that does not know the latch adds no party.
    pub since_us: Option<u64>,
    /// How many parties the caller's latch needs. When so many have arrived, the node wakes the
    /// waiters.
    pub count: u64,
    /// How long the node keeps the latch from now on, at least.
    pub ttl_ms: u64,
}

/// List or count the parties that have arrived at a latch. Enters or refreshes the tickets of the
/// waiters, and keeps the latch alive for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attend {
    /// The tickets.
    pub tickets: Arc<[Ticket]>,
    /// Whether to list all parties, not only count them.
    pub list: bool,
    /// How long the node keeps the latch from now on, at least.
    pub ttl_ms: u64,
}

/// End holds by the decision of an operator: the holder is dead, or keeps the name too long.
///
/// The only claim is the name. For a slot the claims are those of [`AcquireSlot`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Break {
    /// The node raises the fence to this ballot, which must be above it.
    pub ballot: Ballot,
    /// The ballot of the holder that the operator has seen. A holder with a higher one stays, and
    /// restores up to this one are refused from now on.
    pub up_to: Ballot,
    /// Whether a holder without a record is removed, too: a plain lock, or another library's.
    pub foreign: bool,
    /// Only the holder with this id, which is the public half of its token.
    pub only: Option<Arc<str>>,
    /// The slot of a semaphore.
    pub slot: Option<u32>,
    /// The operator, shown to people.
    pub by: Arc<str>,
    /// The reason, shown to people.
    pub reason: Arc<str>,
    /// How long the node remembers the break.
    pub keep_ms: u64,
}

/// Report the names in one portion of what the node stores: those that are held or queued for, or
/// those with broken holds.
///
/// There is no index of the locks, because it would cost every lock a write. So a node is searched
/// portion by portion. The node chooses what a cursor means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct List {
    /// Where the portion begins: the cursor behind the last one. Empty: at the beginning.
    pub cursor: Arc<str>,
    /// How many pages of the node's keys to search: at most [`PAGES_MAX`](Self::PAGES_MAX).
    pub pages: u32,
    /// List broken holds instead of the locks.
    pub breaks: bool,
}

impl List {
    /// The most pages of one portion: about a millisecond of a server.
    pub const PAGES_MAX: u32 = 16;
}

/// Plain Redlock: `SET NX PX`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainAcquire {
    /// The lease of the holder, in milliseconds.
    pub ttl_ms: u64,
}

/// Plain Redlock: compare and `PEXPIRE`, never shorter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainExtend {
    /// The new lease, counted from when the node executes this.
    pub ttl_ms: u64,
}

/// A waiter's position in the wait queue. Earlier tickets go first.
///
/// The time is the median of the nodes' clocks when the caller first asked. It is the same on every
/// node, so a wrong client clock gives no advantage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Since when the caller waits, in microseconds of the nodes' clocks.
    pub since_us: u64,
    /// The ticket id: the client's id, a dot, and a number. Wakes carry it.
    pub id: Arc<str>,
    /// No node has had this ticket before. An old `since_us` then means a wrong clock, not a long
    /// wait.
    pub first: bool,
    /// The waiter's name, shown to people. It decides nothing. A ticket keeps it for as long as it
    /// waits.
    pub label: Arc<str>,
}

/// A set of slots of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slots {
    /// This slot.
    Only(u32),
    /// Every slot except this one.
    AllBut(u32),
    /// Every slot.
    All,
}

impl Slots {
    /// Whether the set contains `slot`.
    pub fn include(self, slot: u32) -> bool {
        match self {
            Self::Only(one) => slot == one,
            Self::AllBut(one) => slot != one,
            Self::All => true,
        }
    }
}

/// Why claims are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseKind {
    /// The holder is done. If a restore may still arrive, or if the claims are kept from others,
    /// the ballot is closed: no restore can bring the holder back.
    Final,
    /// An attempt is undone. It never held the lock.
    Undo,
}
