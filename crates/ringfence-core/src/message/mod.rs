//! The requests that a client sends to a node, and the replies. The ledger, the quorum protocol and
//! every node share these types. There is no behaviour here except small functions that keep the
//! values consistent.

mod op;
mod reply;

use std::sync::Arc;

use crate::name::Name;
use crate::token::Token;

pub use crate::values::Ballot;
pub use op::{
    Acquire, AcquireSlot, Arrive, Attend, Break, Downgrade, Extend, List, PlainAcquire,
    PlainExtend, Refresh, RefreshSlots, Release, ReleaseKind, ReleaseSlot, Restore, Slots, Ticket,
};
pub use reply::{
    Answer, Arrivals, BREAKS_SHOWN, BreakNote, Holder, PARTIES_SHOWN, Permit, Portion,
    READERS_SHOWN, ReaderView, Reply, ReplyStamp, Standing, TICKETS_SHOWN, TicketView, Turn, View,
    Wake,
};

/// How a request wants to hold a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One holder only.
    Exclusive,
    /// Any number of shared holders at the same time, but no exclusive holder.
    Shared,
}

/// One name, and how the request wants to hold it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// Exclusive or shared.
    pub mode: Mode,
}

impl Claim {
    /// The same name, in shared mode.
    pub fn shared(&self) -> Self {
        Self {
            name: self.name.clone(),
            mode: Mode::Shared,
        }
    }
}

/// One operation on one node. It is atomic: it applies to all its claims or to none.
///
/// All nodes of a quorum receive the same request, so its parts are in `Arc`s.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// The names of the operation; no name appears twice.
    pub claims: Arc<[Claim]>,
    /// The token of the caller. [`Op::Inspect`] ignores it.
    pub token: Token,
    /// The operation.
    pub op: Op,
}

/// The operation on the claims of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Take the claims.
    Acquire(Acquire),
    /// Extend the lease of the claims.
    Extend(Extend),
    /// Release the claims, or undo an attempt.
    Release(Release),
    /// Change from exclusive to shared.
    Downgrade(Downgrade),
    /// Restore a granted holder on a node that lost it.
    Restore(Restore),
    /// Keep the tickets of callers that wait for the claims.
    Refresh(Refresh),
    /// Take one slot of a semaphore.
    AcquireSlot(AcquireSlot),
    /// Release slots of a semaphore, or undo an attempt.
    ReleaseSlot(ReleaseSlot),
    /// Keep the tickets of callers that wait for a slot.
    RefreshSlots(RefreshSlots),
    /// Add parties that have arrived at a latch.
    Arrive(Arrive),
    /// List or count the parties that have arrived at a latch.
    Attend(Attend),
    /// End holds by the decision of an operator.
    Break(Break),
    /// Report the holder of each claim. Changes nothing.
    Inspect,
    /// Report the names in one portion of what the node stores. No claims. Changes nothing.
    List(List),
    /// Plain Redlock: `SET NX PX`. One claim.
    PlainAcquire(PlainAcquire),
    /// Plain Redlock: compare and `PEXPIRE` (never shorter). One claim.
    PlainExtend(PlainExtend),
    /// Plain Redlock: compare and delete. One claim.
    PlainRelease,
}

/// What a client can hold. A latch is not here: its parties arrive and never leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One name or several names, with one holder only.
    Exclusive,
    /// A name that other readers may hold at the same time.
    Shared,
    /// One slot of a semaphore. The claims are its admission record, followed by every slot.
    Slot,
    /// A name as other libraries hold it: only the key, without ballot, record or wait queue.
    Plain,
}

impl Kind {
    /// Whether nodes keep a record for the name beside its key. The record is needed to compare
    /// ballots, to restore a lost holder and to have a wait queue.
    #[inline]
    pub fn has_record(self) -> bool {
        self != Self::Plain
    }

    /// The operation that acquires this kind. `slot` is the wanted slot; with `None` each node
    /// picks one.
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

    /// The operation that extends this kind. A held slot is extended like an exclusive name.
    #[inline]
    pub fn extend(self, extend: Extend) -> Op {
        match self {
            Self::Exclusive | Self::Shared | Self::Slot => Op::Extend(extend),
            Self::Plain => Op::PlainExtend(PlainExtend {
                ttl_ms: extend.ttl_ms,
            }),
        }
    }

    /// The operation that releases this kind. For a semaphore it releases `slots`.
    #[inline]
    pub fn release(self, slots: Slots, release: Release) -> Op {
        match self {
            Self::Exclusive | Self::Shared => Op::Release(release),
            Self::Slot => Op::ReleaseSlot(ReleaseSlot { slots, release }),
            Self::Plain => Op::PlainRelease,
        }
    }
}

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Takes a lock or a slot.
    Take,
    /// Keeps a lock that is held: lengthens its lease, shares it, or writes it again.
    Keep,
    /// Gives up a lock or an attempt.
    GiveUp,
    /// Keeps tickets in a wait queue.
    Wait,
    /// Reads or writes a latch.
    Latch,
    /// Ends the holds of others.
    Break,
    /// Only reads: a client that may not write can send it.
    Look,
}

/// What is known of every operation: its row in the table of [`Op::facts`].
#[derive(Debug, Clone, Copy)]
pub struct OpFacts<'a> {
    /// What it is for.
    pub act: Act,
    /// Whether it is a plain Redlock operation: only the key, without ballot and record.
    pub plain: bool,
    /// The ballot that it carries.
    pub ballot: Option<Ballot>,
    /// The lease that it asks for.
    pub lease_ms: Option<u64>,
    /// The tickets that it enters, refreshes or removes.
    pub tickets: &'a [Ticket],
}

impl Op {
    /// The table of operations. What other code needs to know of an operation is here, so that a
    /// new one is a new row.
    #[inline]
    pub fn facts(&self) -> OpFacts<'_> {
        let (act, ballot, lease_ms, tickets): (_, _, _, &[Ticket]) = match self {
            Self::Acquire(op) | Self::AcquireSlot(AcquireSlot { acquire: op, .. }) => {
                let tickets = op.ticket.as_slice();
                (Act::Take, Some(op.ballot), Some(op.ttl_ms), tickets)
            }
            Self::Extend(op) => (Act::Keep, Some(op.ballot), Some(op.ttl_ms), &[]),
            Self::Downgrade(op) => (Act::Keep, Some(op.ballot), Some(op.ttl_ms), &[]),
            Self::Restore(op) => (Act::Keep, Some(op.ballot), Some(op.ttl_ms), &[]),
            Self::Release(op) | Self::ReleaseSlot(ReleaseSlot { release: op, .. }) => {
                (Act::GiveUp, Some(op.ballot), None, op.ticket.as_slice())
            }
            Self::Refresh(op) => (Act::Wait, None, None, &op.tickets),
            Self::RefreshSlots(op) => (Act::Wait, None, None, &op.tickets),
            Self::Arrive(_) => (Act::Latch, None, None, &[]),
            Self::Attend(op) => (Act::Latch, None, None, &op.tickets),
            Self::Break(op) => (Act::Break, Some(op.ballot), None, &[]),
            Self::Inspect | Self::List(_) => (Act::Look, None, None, &[]),
            Self::PlainAcquire(op) => (Act::Take, None, Some(op.ttl_ms), &[]),
            Self::PlainExtend(op) => (Act::Keep, None, Some(op.ttl_ms), &[]),
            Self::PlainRelease => (Act::GiveUp, None, None, &[]),
        };
        OpFacts {
            act,
            plain: ballot.is_none() && matches!(act, Act::Take | Act::Keep | Act::GiveUp),
            ballot,
            lease_ms,
            tickets,
        }
    }

    /// Whether this is an operation on a latch.
    pub fn is_of_latch(&self) -> bool {
        self.facts().act == Act::Latch
    }

    /// Whether the operation needs the broken holds of its claims: to tell a holder of a break, or
    /// to add one.
    pub fn reads_breaks(&self) -> bool {
        let facts = self.facts();
        match facts.act {
            Act::Keep => !facts.plain,
            Act::Break => true,
            _ => matches!(self, Self::List(List { breaks: true, .. })),
        }
    }

    /// Whether this only reads: a client that may not write can send it.
    pub fn only_looks(&self) -> bool {
        self.facts().act == Act::Look
    }

    /// Whether this is a plain Redlock operation: only the key, without ballot and record.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.facts().plain
    }

    /// Whether this is a release or an undo, of any kind.
    #[inline]
    pub fn is_release(&self) -> bool {
        self.facts().act == Act::GiveUp
    }

    /// Whether the answer counts as a vote.
    #[inline]
    pub fn votes(&self) -> bool {
        !matches!(self.facts().act, Act::GiveUp | Act::Look)
    }

    /// Whether this writes something on which the caller relies. A server that may lose the write
    /// (after a failover, for example) must not confirm it.
    #[inline]
    pub fn writes_holder(&self) -> bool {
        let facts = self.facts();
        let relied_on = matches!(facts.act, Act::Take | Act::Keep | Act::Break | Act::Latch);
        relied_on && !facts.plain
    }

    /// Whether this withdraws something for a caller that does not wait for it: the undo of a caller
    /// that gave up, or of what other nodes have of a lock that was granted.
    #[inline]
    pub fn is_late_undo(&self) -> bool {
        let release = self.release();
        release.is_some_and(|release| release.kind == ReleaseKind::Undo && !release.stays)
    }

    /// Whether this keeps a lock that is held, or gives it up. The release of a plain lock counts
    /// as one of a holder: it may also be an undo.
    #[inline]
    pub fn is_of_holder(&self) -> bool {
        match self.facts().act {
            Act::Keep => true,
            Act::GiveUp => {
                !matches!(self.release(), Some(release) if release.kind == ReleaseKind::Undo)
            }
            _ => false,
        }
    }

    fn release(&self) -> Option<&Release> {
        match self {
            Self::Release(release) | Self::ReleaseSlot(ReleaseSlot { release, .. }) => {
                Some(release)
            }
            _ => None,
        }
    }

    /// The parameters of the release, if this is a release with a ballot.
    pub fn release_mut(&mut self) -> Option<&mut Release> {
        match self {
            Self::Release(release) | Self::ReleaseSlot(ReleaseSlot { release, .. }) => {
                Some(release)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a plain operation has neither a ballot nor a record.
    #[test]
    fn the_table_tells_plain_operations_from_others() {
        let plain = [
            Op::PlainAcquire(PlainAcquire { ttl_ms: 1 }),
            Op::PlainExtend(PlainExtend { ttl_ms: 1 }),
            Op::PlainRelease,
        ];
        for op in plain {
            assert!(
                op.is_plain() && !op.writes_holder() && !op.reads_breaks(),
                "{op:?}"
            );
        }
        let tickets: Arc<[Ticket]> = Arc::from([]);
        let others = [
            (Op::Inspect, false),
            (
                Op::Refresh(Refresh {
                    tickets: Arc::clone(&tickets),
                }),
                false,
            ),
            (
                Op::Attend(Attend {
                    tickets,
                    list: false,
                    ttl_ms: 1,
                }),
                true,
            ),
            (
                Op::Extend(Extend {
                    ballot: Ballot::default(),
                    ttl_ms: 1,
                    delay_ms: 0,
                }),
                true,
            ),
        ];
        for (op, relied_on) in others {
            assert!(!op.is_plain(), "{op:?}");
            assert_eq!(op.writes_holder(), relied_on, "{op:?}");
        }
    }
}
