//! The operations of a node, one struct for each, and what they are made of.

use std::sync::Arc;

use super::Ballot;

/// Take the claims, if they are free and `ballot` is above their fences.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// What this attempt proposes.
    pub ballot: Ballot,
    /// How long the holder may keep them.
    pub ttl_ms: u64,
    /// Who holds, for people.
    pub label: Arc<str>,
    /// The caller's place in line, if it waits. It is entered or refreshed whatever the answer.
    pub place: Option<Place>,
}

/// Keep the claims for at least `ttl_ms` more, if this token still holds them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extend {
    /// The ballot of the grant.
    pub ballot: Ballot,
    /// How long from now.
    pub ttl_ms: u64,
}

/// Give the claims back, if this token holds them under no later ballot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Release {
    /// The ballot of the attempt or grant.
    pub ballot: Ballot,
    /// Whether a granted holder is done or an attempt is withdrawn.
    pub kind: ReleaseKind,
    /// Nobody knows whether the acquire of this ballot arrived here. If it has not, it must be
    /// refused when it does: the fence is raised to the ballot ("retire").
    pub fate_unknown: bool,
    /// The caller's place in line, if it has one.
    pub place: Option<Place>,
    /// The attempt is withdrawn only to be tried again: the place is kept.
    pub stays: bool,
    /// A final release for whose sake nobody else may have the claims for this much longer.
    pub keep_ms: Option<u64>,
}

/// From exclusive to shared, under the same token and ballot, for at least `ttl_ms` more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Downgrade {
    /// The ballot of the grant.
    pub ballot: Ballot,
    /// How long from now.
    pub ttl_ms: u64,
}

/// Put a granted holder back on a node that lost it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Restore {
    /// The ballot of the grant.
    pub ballot: Ballot,
    /// How long from now.
    pub ttl_ms: u64,
    /// Who holds, for people.
    pub label: Arc<str>,
}

/// These callers still wait for the claims: enters or refreshes their places, and says how they
/// stand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refresh {
    /// Their places in line.
    pub places: Arc<[Place]>,
}

/// Take one slot of a semaphore. Its claims are the gate and then every slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquireSlot {
    /// Which slot, and no other; `None` if the node is to pick one.
    pub slot: Option<u32>,
    /// How the slot is taken. The place is in the semaphore's line.
    pub acquire: Acquire,
}

/// Give slots of a semaphore back, each of them if this token holds it under no later ballot.
/// The claims are those of [`AcquireSlot`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReleaseSlot {
    /// Which.
    pub slots: Slots,
    /// How each of them is given back. No slot is kept from others: `keep_ms` is ignored.
    pub release: Release,
}

/// These callers still wait for a slot: enters or refreshes their places, and says how they stand.
/// The claims are those of [`AcquireSlot`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RefreshSlots {
    /// Their places in line.
    pub places: Arc<[Place]>,
}

/// These parties have arrived at a latch, which is the one claim. Nobody ever leaves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Arrive {
    /// Who has arrived: one party, or all that somebody knows of.
    pub parties: Arc<[Arc<str>]>,
    /// When the latch was made, in microseconds of the nodes' clocks. `None`: the caller does not
    /// know, and a node that knows nothing of the latch takes nobody.
    pub since_us: Option<u64>,
    /// How many the caller's latch waits for: from so many on, those who wait are woken.
    pub count: u64,
    /// How long the latch is kept from now on, at least.
    pub ttl_ms: u64,
}

/// Who has arrived at a latch? Enters or refreshes the places of those who wait to be told, and
/// keeps the latch for their sake.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attend {
    /// Their places.
    pub places: Arc<[Place]>,
    /// Whether all who arrived are to be listed, not only counted.
    pub list: bool,
    /// How long the latch is kept from now on, at least.
    pub ttl_ms: u64,
}

/// Plain Redlock: `SET NX PX`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainAcquire {
    /// How long the holder may keep it.
    pub ttl_ms: u64,
}

/// Plain Redlock: compare and `PEXPIRE`, never shorter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlainExtend {
    /// How long from now.
    pub ttl_ms: u64,
}

/// A caller's place in line: earlier ones go first.
///
/// The time is the nodes' median when the caller first asked, the same on every node, so nobody
/// gains by a wrong clock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Since when it waits, in microseconds of the nodes' clocks.
    pub since_us: u64,
    /// Which ticket this is: the client's id, a dot, and a number. Wakes name it.
    pub id: Arc<str>,
    /// The caller has never been in line before: a time long ago is a wrong clock, not patience.
    pub first: bool,
}

/// Some of a semaphore's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Slots {
    /// This one.
    Only(u32),
    /// All others.
    AllBut(u32),
    /// Every one.
    All,
}

impl Slots {
    /// Whether `slot` is one of them.
    pub fn include(self, slot: u32) -> bool {
        match self {
            Self::Only(one) => slot == one,
            Self::AllBut(one) => slot != one,
            Self::All => true,
        }
    }
}

/// Why a claim is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseKind {
    /// The holder is done: the ballot is closed, no restore brings it back.
    Final,
    /// An attempt is withdrawn: nobody held anything.
    Undo,
}
