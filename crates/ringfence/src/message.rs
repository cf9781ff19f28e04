//! What a client says to a node and what the node answers: the vocabulary that the ledger, the
//! quorum protocol and every node share. No behaviour beyond what keeps the values honest.

use std::fmt;
use std::sync::Arc;

use crate::name::Name;
use crate::token::Token;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder, nobody beside it.
    Exclusive,
}

/// One name, and how it is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// What is claimed.
    pub name: Name,
    /// How.
    pub mode: Mode,
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

/// What is to be done with the claims of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Take the claims, if they are free and `ballot` is above their fences.
    Acquire {
        /// What this attempt proposes.
        ballot: Ballot,
        /// How long the holder may keep them.
        ttl_ms: u64,
        /// Who holds, for people.
        label: Arc<str>,
    },
    /// Keep the claims for at least `ttl_ms` more, if this token still holds them.
    Extend {
        /// The ballot of the grant.
        ballot: Ballot,
        /// How long from now.
        ttl_ms: u64,
    },
    /// Give the claims back, if this token holds them under no later ballot.
    Release {
        /// The ballot of the attempt or grant.
        ballot: Ballot,
        /// Whether a granted holder is done or an attempt is withdrawn.
        kind: ReleaseKind,
        /// Nobody knows whether the acquire of this ballot arrived here. If it has not, it must be
        /// refused when it does: the fence is raised to the ballot ("retire").
        fate_unknown: bool,
    },
    /// Put a granted holder back on a node that lost it.
    Restore {
        /// The ballot of the grant.
        ballot: Ballot,
        /// How long from now.
        ttl_ms: u64,
        /// Who holds, for people.
        label: Arc<str>,
    },
    /// Who holds? Changes nothing.
    Inspect,
    /// Plain Redlock: `SET NX PX`. One claim.
    PlainAcquire {
        /// How long the holder may keep it.
        ttl_ms: u64,
    },
    /// Plain Redlock: compare and `PEXPIRE` (never shorter). One claim.
    PlainExtend {
        /// How long from now.
        ttl_ms: u64,
    },
    /// Plain Redlock: compare and delete. One claim.
    PlainRelease,
}

impl Op {
    /// Whether this is plain Redlock, which knows neither ballots nor records.
    pub fn is_plain(&self) -> bool {
        matches!(
            self,
            Self::PlainAcquire { .. } | Self::PlainExtend { .. } | Self::PlainRelease
        )
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

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The node's clock and the claims' floor; plain operations carry none.
    pub stamp: Option<Stamp>,
    /// Which incarnation of the node answered.
    pub standing: Standing,
    /// The answer itself.
    pub answer: Answer,
}

/// The node's time and the claims' floor, on every answer: how a client learns what to propose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The node's clock in microseconds.
    pub clock_us: u64,
    /// The highest effective fence among the claims: only ballots above it are granted.
    pub floor: Ballot,
}

/// Which incarnation of a node answered, and since when it has been running without a gap.
///
/// The node vouches that the answer was given under exactly this incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// A number that changes whenever the node may have forgotten something.
    pub incarnation: u64,
    /// When, on the node's clock, this incarnation was born. Zero: grown up from the start.
    pub born_us: u64,
    /// The node's clock when it was last heard of: the reply's own stamp where there is one, else
    /// carried on from the handshake.
    pub clock_us: u64,
}

/// The outcome of an operation that a node carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Acquire: all claims are held by this token under this ballot.
    Granted,
    /// Acquire, extend, release, restore: another holder has at least one claim.
    Held(Holder),
    /// Acquire: the ballot is not above the floor.
    Stale,
    /// Acquire, restore: the ballot is too far above the node's clock.
    Ahead,
    /// Extend: all claims are held for at least the TTL.
    Extended,
    /// Extend, release, restore: this token holds nothing here, and nobody else is in the way.
    /// For a restore: the ballot has been closed.
    Gone,
    /// Release: the claims were held by this token and are free now.
    Released,
    /// Release: this token holds under a later ballot; nothing was done.
    Newer,
    /// Restore: all claims are held by this token.
    Restored,
    /// Inspect: one view per claim.
    Views(Vec<View>),
}

/// Who stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holder {
    /// Which claim of the request is held, by position.
    pub claim: usize,
    /// The holder's label; `None` for another library's client or a plain lock.
    pub label: Option<String>,
    /// The public half of the holder's token, if it is one of ours.
    pub id: Option<String>,
    /// How long it may last; `None` if the key has no expiry.
    pub for_ms: Option<u64>,
}

/// One node's view of one name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// Who holds it, if anyone.
    pub holder: Option<Holder>,
    /// The ballot under which the holder sits: its fence. `None` for a holder without a record.
    pub ballot: Option<Ballot>,
    /// The effective fence of the name on this node.
    pub floor: Ballot,
}
