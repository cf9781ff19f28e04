//! What a client says to a node and what the node answers: the vocabulary that the ledger, the
//! quorum protocol and every node share. No behaviour beyond what keeps the values honest.

use std::fmt;
use std::sync::Arc;

use crate::name::Name;
use crate::token::{Token, is_tombstone};

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
        /// The caller's place in line, if it waits. It is entered or refreshed whatever the answer.
        place: Option<Place>,
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
        /// The caller's place in line, if it has one.
        place: Option<Place>,
        /// The attempt is withdrawn only to be tried again: the place is kept.
        stays: bool,
        /// A final release for whose sake nobody else may have the claims for this much longer.
        keep_ms: Option<u64>,
    },
    /// From exclusive to shared, under the same token and ballot, for at least `ttl_ms` more.
    Downgrade {
        /// The ballot of the grant.
        ballot: Ballot,
        /// How long from now.
        ttl_ms: u64,
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
    /// These callers still wait for the claims: enters or refreshes their places, and says how
    /// they stand.
    Refresh {
        /// Their places in line.
        places: Arc<[Place]>,
    },
    /// Take one slot of a semaphore. Its claims are the gate and then every slot.
    AcquireSlot {
        /// Which slot, and no other; `None` if the node is to pick one.
        slot: Option<u32>,
        /// What this attempt proposes.
        ballot: Ballot,
        /// How long the holder may keep it.
        ttl_ms: u64,
        /// Who holds, for people.
        label: Arc<str>,
        /// The caller's place in the semaphore's line, if it waits.
        place: Option<Place>,
    },
    /// Give slots of a semaphore back, each of them if this token holds it under no later ballot.
    /// The claims are those of [`Op::AcquireSlot`].
    ReleaseSlot {
        /// Which.
        slots: Slots,
        /// The ballot of the attempt or grant.
        ballot: Ballot,
        /// Whether a granted holder is done or an attempt is withdrawn.
        kind: ReleaseKind,
        /// As in [`Op::Release`], for each of the slots.
        fate_unknown: bool,
        /// The caller's place in line, if it has one.
        place: Option<Place>,
        /// The attempt is withdrawn only to be tried again: the place is taken again.
        stays: bool,
    },
    /// These callers still wait for a slot: enters or refreshes their places, and says how they
    /// stand. The claims are those of [`Op::AcquireSlot`].
    RefreshSlots {
        /// Their places in line.
        places: Arc<[Place]>,
    },
    /// These parties have arrived at a latch, which is the one claim. Nobody ever leaves.
    Arrive {
        /// Who has arrived: one party, or all that somebody knows of.
        parties: Arc<[Arc<str>]>,
        /// When the latch was made, in microseconds of the nodes' clocks. `None`: the caller does not
        /// know, and a node that knows nothing of the latch takes nobody.
        since_us: Option<u64>,
        /// How many the caller's latch waits for: from so many on, those who wait are woken.
        count: u64,
        /// How long the latch is kept from now on, at least.
        ttl_ms: u64,
    },
    /// Who has arrived at a latch? Enters or refreshes the places of those who wait to be told, and
    /// keeps the latch for their sake.
    Attend {
        /// Their places.
        places: Arc<[Place]>,
        /// Whether all who arrived are to be listed, not only counted.
        list: bool,
        /// How long the latch is kept from now on, at least.
        ttl_ms: u64,
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
    /// Whether this is about a latch.
    pub fn is_of_latch(&self) -> bool {
        matches!(self, Self::Arrive { .. } | Self::Attend { .. })
    }

    /// Whether this is plain Redlock: the key alone, no ballot and no record.
    pub fn is_plain(&self) -> bool {
        matches!(
            self,
            Self::PlainAcquire { .. } | Self::PlainExtend { .. } | Self::PlainRelease
        )
    }
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
    /// The highest effective fence among the claims, each in its mode: only ballots above it are
    /// granted.
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
    /// Which server answered, as [`Standing::server_of`] makes it from the run id. Two nodes with the
    /// same number are one server and have one vote. Zero: not known, taken for a server of its own.
    pub server: u64,
}

impl Standing {
    /// The number of the server whose run id is `run_id`; zero if that is empty.
    pub fn server_of(run_id: &str) -> u64 {
        if run_id.is_empty() {
            return 0;
        }
        // FNV-1a: run ids are random, so any mixing of all their bytes will do.
        let mixed = run_id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        u64::max(mixed, 1)
    }
}

/// The outcome of an operation that a node carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Acquire: all claims are held by this token under this ballot.
    Granted,
    /// Acquire, extend, downgrade, release, restore: another holder has at least one claim.
    Held(Holder),
    /// Acquire: nobody holds the claims, but others are ahead in line.
    Behind {
        /// How many.
        ahead: u64,
        /// When they may be passed if they do not come; `None` if not while they wait.
        for_ms: Option<u64>,
    },
    /// Acquire: the ballot is not above the floor.
    Stale,
    /// Acquire: the place in line is new and yet older than it can be. Nothing was done.
    TicketOld,
    /// Acquire, restore: the ballot is too far above the node's clock. Arrive: so is the time at which
    /// the latch is said to have been made.
    Ahead,
    /// Extend: all claims are held for at least the TTL.
    Extended,
    /// Downgrade: all claims are shared by this token now, for at least the TTL.
    Downgraded,
    /// Extend, downgrade, release, restore: this token holds nothing here, and nobody else is in the
    /// way. For the extend of a shared claim: whoever is in the way.
    /// For a restore: the ballot has been closed.
    Gone,
    /// Release: the claims were held by this token and are free now.
    Released,
    /// Release: this token holds under a later ballot; nothing was done.
    Newer,
    /// Restore: all claims are held by this token.
    Restored,
    /// Acquire of a slot: what the semaphore looks like, and the answer itself.
    Permit(Permit),
    /// Refresh: how each of the places stands, in their order.
    Turns(Vec<Turn>),
    /// Arrive, attend: what the node knows of the latch, now.
    Arrivals(Arrivals),
    /// Inspect: one view per claim.
    Views(Vec<View>),
}

/// What a node knows of a latch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// When the latch was made, in microseconds of the nodes' clocks; `None` if the node knows nothing
    /// of it.
    pub since_us: Option<u64>,
    /// How many have arrived.
    pub arrived: u64,
    /// Who they are, sorted, where the list was asked for.
    pub parties: Vec<Arc<str>>,
}

/// What a node says to whoever asks for a slot of a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    /// The answer, as if the slot were a lock of its own.
    pub answer: Box<Answer>,
    /// Which slot it is about; `None` if there was none to pick.
    pub slot: Option<u32>,
    /// The slots that were free for the caller, or its own already.
    pub free: Vec<u32>,
    /// How many were ahead of the caller in line; of a caller without a place, all.
    pub ahead: u64,
    /// The largest number of permits that anybody gave this semaphore of late.
    pub most: u64,
}

/// How a place in line stands on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// How many are ahead, in the longest of the claims' lines; of a semaphore, how many more than
    /// the free slots serve.
    pub ahead: u64,
    /// Whether nobody holds any of the claims; of a semaphore, whether a slot is free.
    pub free: bool,
}

/// Somebody in line who is to be told that it may be its turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wake {
    /// Whose ticket.
    pub ticket: String,
    /// When to come: at once, or later if whoever is ahead does not.
    pub after_ms: u64,
    /// The slot of a semaphore that was given back, for whom it serves.
    pub slot: Option<u32>,
}

impl Wake {
    /// Reads what [`Display`](fmt::Display) writes; `None` if it is anything else.
    pub fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (after_ms, ticket) = (words.next()?, words.next()?);
        let slot = words.next().map(str::parse);
        let wake = Self {
            ticket: ticket.to_owned(),
            after_ms: after_ms.parse().ok()?,
            slot: slot.transpose().ok()?,
        };
        words.next().is_none().then_some(wake)
    }
}

/// As nodes tell it: when to come, the ticket, and the slot if there is one.
impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.after_ms, self.ticket)?;
        match self.slot {
            Some(slot) => write!(f, " {slot}"),
            None => Ok(()),
        }
    }
}

/// Who stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Holder {
    /// Which claim of the request is held, by position.
    pub claim: usize,
    /// The holder's label; `None` for another library's client or a plain lock.
    pub label: Option<String>,
    /// The public half of the holder's token, if it is one of ours; `kept.` and that half, if it
    /// was released and is [kept](Self::is_kept) from others.
    pub id: Option<String>,
    /// How long it may last; `None` if the key has no expiry.
    pub for_ms: Option<u64>,
    /// How many are ahead of the caller in line; of a caller without a place, all.
    pub ahead: u64,
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
    /// How many wait in line.
    pub waiting: u64,
}

impl Holder {
    /// Whether nobody holds any more: the last holder released it and keeps it from others for a
    /// while.
    pub fn is_kept(&self) -> bool {
        self.id.as_deref().is_some_and(is_tombstone)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Labels come from other processes: nothing in them may reach a terminal raw.
        if self.is_kept() {
            let who = self.label.as_deref().filter(|label| !label.is_empty());
            let who = who.or(self.id.as_deref()).unwrap_or_default();
            let ms = self.for_ms.unwrap_or_default();
            let who = who.escape_debug();
            return write!(
                f,
                "kept for {}.{} s after {who} released it",
                ms / 1000,
                ms % 1000 / 100
            );
        }
        match (self.label.as_deref(), self.id.as_deref()) {
            (Some(label), _) if !label.is_empty() => write!(f, "held by {}", label.escape_debug())?,
            (_, Some(id)) => write!(f, "held by {}", id.escape_debug())?,
            _ => f.write_str("held by another client")?,
        }
        match self.for_ms {
            Some(ms) => write!(f, " for up to {}.{} s", ms / 1000, ms % 1000 / 100),
            None => f.write_str(" without an expiry"),
        }
    }
}
