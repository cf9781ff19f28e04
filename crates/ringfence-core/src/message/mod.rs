//! What a client says to a node and what the node answers: the vocabulary that the ledger, the
//! quorum protocol and every node share. No behaviour beyond what keeps the values honest.

mod kind;
mod op;
mod reply;

use std::fmt;
use std::sync::Arc;

use crate::name::Name;
use crate::token::Token;

pub use kind::Kind;
pub use op::{
    Acquire, AcquireSlot, Arrive, Attend, Downgrade, Extend, Op, PlainAcquire, PlainExtend,
    Refresh, RefreshSlots, Release, ReleaseSlot, Restore,
};
pub use reply::{Answer, Arrivals, Holder, Permit, Reply, Stamp, Standing, Turn, View, Wake};

/// What an attempt proposes, and its fence if it is granted: microseconds, near the nodes' time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(u64);

impl Ballot {
    /// Lua counts in doubles: beyond this, two ballots could look the same to a server.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The ballot `value`, or the highest there is.
    pub const fn new(value: u64) -> Self {
        if value > Self::MAX.0 {
            Self::MAX
        } else {
            Self(value)
        }
    }

    /// The ballot as a number: the fence of the grant that it won.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The names concerned, without repetition.
    pub claims: Arc<[Claim]>,
    /// Who speaks. [`Op::Inspect`] ignores it.
    pub token: Token,
    /// What is to be done.
    pub op: Op,
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
