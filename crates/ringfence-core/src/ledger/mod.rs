//! What one node does: the specification of a lock server, as a pure function.
//!
//! A node loads the entries of the names that a request claims, calls [`apply`], and stores them
//! back, all in one transaction. The embedded and in-memory nodes run this code; the Lua of the
//! Redis node is tested against it, operation by operation. Nothing here reads a clock, draws a
//! random number or does I/O; what a node *is* (its birth, its group) is the handshake's matter.

mod acquire;
pub mod birth;
mod entry;
mod extend;
mod inspect;
mod latch;
mod line;
mod plain;
mod refresh;
mod release;
mod restore;
mod slots;

pub use entry::{Entry, PlainKey, Record, SHARED, Seat};
pub use latch::Latch;
pub use line::{FIRST_AGE_MAX_US, Line, TICKET_MS, Ticket};

use crate::group::Group;
use crate::message::{Answer, Ballot, Op, Request, Stamp, Wake};

use acquire::Wanted;
use release::Leaving;

/// The constants of a group that the ledger needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How far a ballot may be from the node's clock (`w`).
    pub window_us: u64,
    /// How long a name's record is kept after the last write (`R`).
    pub retention_ms: u64,
    /// How long each of those ahead in line has to come before the next may pass.
    pub grace_ms: u64,
}

impl Rules {
    /// What `group` agreed on.
    pub fn of_group(group: &Group) -> Self {
        Self {
            window_us: u64::try_from(group.window.as_micros()).unwrap_or(u64::MAX),
            retention_ms: u64::try_from(group.retention().as_millis()).unwrap_or(u64::MAX),
            grace_ms: u64::try_from(group.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// The node's time when a request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The clock that ballots are compared with.
    pub clock_us: u64,
    /// The clock that leases run on. Redis has one clock for both; an embedded node does not.
    pub lease_ms: u64,
}

impl Moment {
    /// The moment on a node with one clock for ballots and leases.
    pub fn of_clock(clock_us: u64) -> Self {
        Self {
            clock_us,
            lease_ms: clock_us / 1000,
        }
    }

    /// No ballot above this is ever stored, or one client an hour fast would lift a fence where
    /// nobody can follow.
    fn ceiling(self, rules: &Rules) -> Ballot {
        Ballot::new(self.clock_us.saturating_add(rules.window_us))
    }

    /// What a name without a record is worth: everything that may have been granted and forgotten
    /// lies below.
    pub fn ground(self, rules: &Rules) -> Ballot {
        Ballot::new(self.clock_us.saturating_sub(rules.window_us))
    }
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to whoever asked.
    pub answer: Answer,
    /// The node's time and the claims' floor.
    pub stamp: Stamp,
    /// Who in line is to be told.
    pub wakes: Vec<Wake>,
}

/// Carries out `request` on `entries`, one for each of its claims and in their order.
///
/// # Panics
/// If there is not exactly one entry per claim: that is a mistake of the node.
pub fn apply(rules: &Rules, now: Moment, entries: &mut [Entry], request: &Request) -> Outcome {
    assert_eq!(entries.len(), request.claims.len(), "one entry per claim");
    for entry in entries.iter_mut() {
        entry.expire(now);
    }
    let mut wakes = Vec::new();
    let answer = answer(rules, now, entries, request, &mut wakes);
    let floor = match &answer {
        // The other slots' fences are no concern of this ballot.
        Answer::Permit(permit) => slots::floor(rules, now, entries, permit),
        _ => {
            let fences = entries.iter().zip(&*request.claims);
            let fences = fences.map(|(entry, claim)| entry.effective_fence(rules, now, claim.mode));
            fences.max().unwrap_or_default()
        }
    };
    Outcome {
        answer,
        stamp: Stamp {
            clock_us: now.clock_us,
            floor,
        },
        wakes,
    }
}

/// Has the operation's own function carry out `request` on entries from which everything that has
/// expired was dropped.
fn answer(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    wakes: &mut Vec<Wake>,
) -> Answer {
    match &request.op {
        Op::Acquire(op) => acquire::acquire(rules, now, entries, &Wanted::new(request, op)),
        Op::Extend(op) => extend::extend(rules, now, entries, request, op),
        Op::Downgrade(op) => extend::downgrade(rules, now, entries, request, op, wakes),
        Op::Release(op) => release::release(rules, now, entries, &Leaving::new(request, op), wakes),
        Op::Restore(op) => restore::restore(rules, now, entries, request, op),
        Op::Refresh(op) => refresh::refresh(rules, now, entries, request, &op.places),
        Op::AcquireSlot(op) => {
            let wanted = Wanted::new(request, &op.acquire);
            slots::acquire(rules, now, entries, &wanted, op.slot)
        }
        Op::ReleaseSlot(op) => {
            let leaving = Leaving::of_slots(request, &op.release);
            slots::release(rules, now, entries, &leaving, op.slots, wakes)
        }
        Op::RefreshSlots(op) => slots::refresh(rules, now, entries, &op.places),
        Op::Arrive(op) => latch::arrive(rules, now, &mut entries[0], op, wakes),
        Op::Attend(op) => latch::attend(now, &mut entries[0], op),
        Op::Inspect => inspect::inspect(rules, now, entries, request),
        Op::PlainAcquire(op) => plain::acquire(now, entries, request, op.ttl_ms),
        Op::PlainExtend(op) => plain::extend(now, entries, request, op.ttl_ms),
        Op::PlainRelease => plain::release(now, entries, request),
    }
}

#[cfg(test)]
mod tests;
