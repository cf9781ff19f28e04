//! What a node answers.

use std::fmt;
use std::sync::Arc;

use crate::token::is_tombstone;

use super::Ballot;

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The node's clock and the claims' floor; plain operations carry none.
    pub stamp: Option<Stamp>,
    /// Which incarnation of the node answered.
    pub standing: Standing,
    /// The answer itself.
    pub answer: Answer,
}

/// The node's time and the claims' floor, on every answer: how a client learns what to propose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
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
