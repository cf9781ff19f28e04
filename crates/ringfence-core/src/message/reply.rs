//! The replies of a node.

use std::fmt;
use std::sync::Arc;

use crate::name::Name;
use crate::token::is_tombstone;

use super::Ballot;

/// The reply of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The node's clock and the claims' floor. Plain operations have none.
    pub stamp: Option<ReplyStamp>,
    /// The incarnation of the node that answered.
    pub standing: Standing,
    /// The answer.
    pub answer: Answer,
}

/// The node's clock and the claims' floor. Every reply carries them, so that the client can choose
/// a ballot that the nodes accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyStamp {
    /// The node's clock in microseconds.
    pub clock_us: u64,
    /// The highest effective fence of the claims, each in its mode. A ballot must be above it.
    pub floor: Ballot,
}

/// The incarnation of the node that answered, and since when it runs without interruption.
///
/// The node guarantees that exactly this incarnation gave the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Standing {
    /// A number that changes whenever the node may have lost data.
    pub incarnation: u64,
    /// When this incarnation was born, on the node's clock. Zero: it has no quarantine.
    pub born_us: u64,
    /// The node's clock: from the stamp of the reply if there is one, else counted on from the
    /// handshake.
    pub clock_us: u64,
    /// The server that answered, as [`Standing::server_of`] computes it from the run id. Two nodes
    /// with the same number are one server and have one vote. Zero means unknown; it equals no
    /// other server.
    pub server: u64,
    /// Whether the server has or had replicas, or Sentinels watch it: a failover may replace it.
    pub replicated: bool,
    /// The configuration epoch of the Sentinels under which this incarnation answers; `None`
    /// without Sentinels.
    pub epoch: Option<u64>,
}

impl Standing {
    /// The number of the server with this `run_id`; zero if the run id is empty.
    pub fn server_of(run_id: &str) -> u64 {
        if run_id.is_empty() {
            return 0;
        }
        // FNV-1a. Run ids are random, so any hash of all their bytes is good enough.
        let mixed = run_id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        u64::max(mixed, 1)
    }
}

/// The result of an operation that a node executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Acquire: all claims are held by this token under this ballot.
    Granted,
    /// Acquire, extend, downgrade, release, restore: another holder has at least one claim.
    Held(Holder),
    /// Acquire: the claims are free, but other waiters are ahead in the wait queue.
    Behind {
        /// The number of waiters ahead.
        ahead: u64,
        /// When the caller may pass them if they do not acquire; `None`: not while they wait.
        for_ms: Option<u64>,
    },
    /// Acquire: the ballot is not above the floor.
    Stale,
    /// Acquire on the only node of a group: it may have lost locks, so it grants none yet. Only the
    /// ticket was written.
    Quarantined {
        /// The remaining time without grants.
        left_ms: u64,
    },
    /// Acquire: it arrived after the time that the caller allowed. Nothing was written.
    Late,
    /// Acquire: the ticket claims to be new but is too old for that. Nothing was written.
    TicketOld,
    /// Acquire, restore: the ballot is too far above the node's clock. Arrive: the creation time of
    /// the latch is too far above it.
    Ahead,
    /// Extend: all claims are held for at least the TTL.
    Extended,
    /// Downgrade: this token now shares all claims, for at least the TTL.
    Downgraded,
    /// Extend, downgrade, release, restore: this token does not hold the claims, and no other
    /// holder is in conflict. Extend of a shared claim: this token has lost its share, also if
    /// another holder is in conflict. Restore: the ballot is closed.
    Gone,
    /// Extend, downgrade, restore: this token does not hold the claims, because an operator broke
    /// its hold.
    Broken(Box<BreakNote>),
    /// Break: the ballot is closed, the fence is raised, and these many holders were removed here.
    Removed {
        /// The number of holders.
        holders: u64,
    },
    /// Release: this token held the claims, and they are free now.
    Released,
    /// Release: this token holds under a later ballot. Nothing was written.
    Newer,
    /// Restore: all claims are held by this token.
    Restored,
    /// Acquire of a slot: the state of the semaphore, and the answer itself.
    Permit(Permit),
    /// Refresh: the position of each ticket, in the order of the request.
    Turns(Vec<Turn>),
    /// Arrive, attend: what the node now knows about the latch.
    Arrivals(Arrivals),
    /// Inspect: one view per claim.
    Views(Vec<View>),
    /// List: the names in one portion.
    Listed(Portion),
}

/// One portion of the names that a node stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Portion {
    /// Where the next portion begins; `None` after the last one.
    pub next: Option<Arc<str>>,
    /// How long the portion kept the server busy, in microseconds. `None` if the server cannot
    /// measure it; zero if there is no server to be kept busy.
    pub took_us: Option<u64>,
    /// The keys of the locks, slots, admission records and latches that are held or queued for. A
    /// key may appear twice. Locks without a record are missing.
    pub names: Vec<Name>,
    /// If the request asked for them: broken holds, in the order in which those of one name were
    /// broken, at most [`BREAKS_SHOWN`] for each name: the latest ones.
    pub breaks: Vec<(Name, BreakNote)>,
}

/// How many broken holds of one name a [`Portion`] lists.
pub const BREAKS_SHOWN: usize = 8;

/// A hold that an operator broke, as a node remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct BreakNote {
    /// When it was broken, in microseconds of the node's clock.
    pub at_us: u64,
    /// The fence since then.
    pub fence: Ballot,
    /// The ballot of the hold, which was its fence; zero for a holder without a record.
    pub ballot: Ballot,
    /// The public half of the holder's token; empty for a holder without a record.
    pub id: String,
    /// The holder's label.
    pub label: String,
    /// The operator.
    pub by: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for BreakNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both texts come from other processes. Escape them before they reach a terminal.
        write!(f, "broken by {}", self.by.escape_debug())?;
        match self.reason.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.reason.escape_debug()),
        }
    }
}

/// What a node knows about a latch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Arrivals {
    /// When the latch was created, in microseconds of the nodes' clocks; `None` if the node does
    /// not know the latch.
    pub since_us: Option<u64>,
    /// How many parties have arrived.
    pub arrived: u64,
    /// The parties, sorted, if the request asked for the list.
    pub parties: Vec<Arc<str>>,
}

/// A node's reply to an acquire of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Permit {
    /// The answer, as if the slot were a lock of its own.
    pub answer: Box<Answer>,
    /// The slot that the answer is about; `None` if no slot could be picked.
    pub slot: Option<u32>,
    /// The slots that are free, or that the caller already holds.
    pub free: Vec<u32>,
    /// How many waiters are ahead of the caller; for a caller without a ticket, all waiters. Those
    /// with fewer permits count only as far as they can use a free slot.
    pub ahead: u64,
    /// The largest number of permits that any client recently used for this semaphore.
    pub most: u64,
}

/// The position of a ticket on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Turn {
    /// How many waiters are ahead, in the longest of the claims' wait queues. For a semaphore: how
    /// many more than the free slots can serve.
    pub ahead: u64,
    /// Whether all claims are free. For a semaphore: whether a slot is free.
    pub free: bool,
}

/// A message to a waiter: it may be its turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wake {
    /// The id of the waiter's ticket.
    pub ticket: String,
    /// When to try: at once, or later if the waiters ahead have not acquired by then.
    pub after_ms: u64,
    /// The slot of a semaphore that was freed for this waiter.
    pub slot: Option<u32>,
}

impl Wake {
    /// Parses what [`Display`](fmt::Display) writes; `None` for any other text.
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

/// The text that nodes publish: the delay, the ticket id, and the slot if there is one.
impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.after_ms, self.ticket)?;
        match self.slot {
            Some(slot) => write!(f, " {slot}"),
            None => Ok(()),
        }
    }
}

/// The holder of a claim, as other clients may see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Holder {
    /// The index of the held claim in the request.
    pub claim: usize,
    /// The holder's label; `None` for another library's client or a plain lock.
    pub label: Option<String>,
    /// The public half of the holder's token, if it is a token of this library. After a release
    /// that [keeps](Self::is_kept) the name from others: `kept.` and that half.
    pub id: Option<String>,
    /// The remaining lease; `None` if the key has no expiry.
    pub for_ms: Option<u64>,
    /// How many waiters are ahead of the caller; for a caller without a ticket, all waiters.
    pub ahead: u64,
}

/// One node's view of one name. The lists are for people, and bounded by [`READERS_SHOWN`],
/// [`TICKETS_SHOWN`] and [`PARTIES_SHOWN`]; the numbers count all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct View {
    /// The holder, if there is one. While readers share the name: the one whose lease ends last.
    pub holder: Option<Holder>,
    /// The ballot of the holder, which is its fence. `None` for a holder without a record.
    pub ballot: Option<Ballot>,
    /// The effective fence of the name on this node.
    pub floor: Ballot,
    /// How many waiters are in the wait queue.
    pub waiting: u64,
    /// How many readers share the name.
    pub shared_by: u64,
    /// The readers that share the name, latest end of the lease first.
    pub readers: Vec<ReaderView>,
    /// The first tickets of the wait queue, in order.
    pub tickets: Vec<TicketView>,
    /// If the name is that of an admission record: the permits of the semaphore.
    pub permits: Option<u64>,
    /// If the name is that of a latch: the parties that have arrived. They are listed only if they
    /// are few.
    pub arrivals: Option<Arrivals>,
}

/// How many readers a [`View`] lists.
pub const READERS_SHOWN: usize = 64;
/// How many tickets a [`View`] lists.
pub const TICKETS_SHOWN: usize = 8;
/// A [`View`] lists no parties if there are more.
pub const PARTIES_SHOWN: usize = 64;

/// A reader of a shared name, as other clients may see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ReaderView {
    /// The public half of its token.
    pub id: String,
    /// Its label.
    pub label: String,
    /// The remaining lease.
    pub for_ms: u64,
    /// Its ballot, which is its fence.
    pub ballot: Ballot,
}

/// A ticket in a wait queue, as other clients may see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TicketView {
    /// Since when the caller waits, in microseconds of the nodes' clocks.
    pub since_us: u64,
    /// The ticket id.
    pub id: String,
    /// The caller waits to share the name.
    pub shared: bool,
    /// The caller's label.
    pub label: String,
}

impl Holder {
    /// Whether the lock is released already, but the last holder keeps it from others for a while
    /// (`hold_at_least`).
    pub fn is_kept(&self) -> bool {
        self.id.as_deref().is_some_and(is_tombstone)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Labels come from other processes. Escape them before they reach a terminal.
        if self.is_kept() {
            let name = self.label.as_deref().filter(|label| !label.is_empty());
            let name = name.or(self.id.as_deref()).unwrap_or_default();
            let ms = self.for_ms.unwrap_or_default();
            let name = name.escape_debug();
            return write!(
                f,
                "kept for {}.{} s after {name} released it",
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
            Some(ms) => write!(
                f,
                "; lease ends in {}.{} s unless renewed",
                ms / 1000,
                ms % 1000 / 100
            ),
            None => f.write_str(" without an expiry"),
        }
    }
}
