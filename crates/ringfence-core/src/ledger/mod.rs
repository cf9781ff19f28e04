//! What one node does: the specification of a lock server, as a pure function.
//!
//! For each request a node loads the entries of the claimed names, calls [`apply`], and stores the
//! entries back, all in one transaction. The embedded node and the in-memory node run this code.
//! The Lua of the Redis node is tested against it, operation by operation. Nothing here reads a
//! clock, draws a random number or does I/O. The handshake, not this module, handles the node's
//! birth and its group values; only the rule that decides about a birth is here ([`birth`]).

mod acquire;
pub mod birth;
mod breaking;
mod entry;
mod extend;
mod inspect;
mod latch;
mod plain;
mod queue;
mod release;
mod slots;

pub use breaking::{BREAKS_MAX, Breaks};
pub use entry::{Entry, PlainKey, Record, SHARED, Seat};
pub use latch::LatchRecord;
pub use queue::{FIRST_AGE_MAX_US, QueueEntry, TICKET_MS, WaitQueue};

use crate::group::Group;
use crate::message::{Answer, Ballot, Op, ReplyStamp, Request, Wake};

use acquire::AcquireParams;
use release::ReleaseParams;

/// The constants of a group that the ledger needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The largest distance between a ballot and the node's clock (`w`).
    pub window_us: u64,
    /// How long a record is kept after the last write (`R`).
    pub retention_ms: u64,
    /// How long each ticket ahead in the wait queue has to acquire before the next waiter may pass
    /// it.
    pub grace_ms: u64,
    /// Until this time the node grants nothing: it is the only node of its group, and it may have
    /// lost locks. A node of several never refuses by itself; the clients know its birth and do not
    /// count it. Zero: it may always grant.
    pub grants_from_us: u64,
}

impl Rules {
    /// The rules for `group`, on a node that has lost nothing.
    pub fn of_group(group: &Group) -> Self {
        Self {
            grants_from_us: 0,
            window_us: u64::try_from(group.window.as_micros()).unwrap_or(u64::MAX),
            retention_ms: u64::try_from(group.retention().as_millis()).unwrap_or(u64::MAX),
            grace_ms: u64::try_from(group.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The rules for `group` on an incarnation that was born at `born_us`. `replicated`: the server
    /// has or had replicas, or Sentinels watch it.
    ///
    /// Without this refusal the grant of a newcomer, which its client does not count and undoes,
    /// could be in the way of a holder that puts its lock back.
    pub fn of_incarnation(group: &Group, born_us: u64, replicated: bool) -> Self {
        let alone = group.nodes == 1 && group.failover.quarantines(replicated);
        let quarantine_us = u64::try_from(group.quarantine.as_micros()).unwrap_or(u64::MAX);
        Self {
            grants_from_us: match alone && born_us != 0 {
                true => born_us.saturating_add(quarantine_us),
                false => 0,
            },
            ..Self::of_group(group)
        }
    }

    /// How much longer the node grants nothing, in milliseconds; `None` if it may grant.
    pub(crate) fn quarantine_left_ms(&self, now: Moment) -> Option<u64> {
        let left_us = self.grants_from_us.saturating_sub(now.clock_us);
        (left_us > 0).then(|| left_us.div_ceil(1000))
    }
}

/// The node's time when it executes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The clock that ballots are compared with.
    pub clock_us: u64,
    /// The clock of the leases. Redis uses one clock for both; an embedded node uses two.
    pub lease_ms: u64,
}

impl Moment {
    /// The time on a node with one clock for ballots and leases.
    pub fn of_clock(clock_us: u64) -> Self {
        Self {
            clock_us,
            lease_ms: clock_us / 1000,
        }
    }

    /// The ceiling: the node never stores a ballot above it. Otherwise one client whose clock is an
    /// hour fast would raise the fence so far that no other client could exceed it.
    fn ceiling(self, rules: &Rules) -> Ballot {
        Ballot::new(self.clock_us.saturating_add(rules.window_us))
    }

    /// The lowest floor of any name, also of one without a record. Every ballot that the node may
    /// have accepted and then lost is below it.
    pub fn ground(self, rules: &Rules) -> Ballot {
        Ballot::new(self.clock_us.saturating_sub(rules.window_us))
    }
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The answer to the caller.
    pub answer: Answer,
    /// The node's clock and the claims' floor.
    pub stamp: ReplyStamp,
    /// The waiters that the node has to wake.
    pub wakes: Vec<Wake>,
}

/// Executes `request` on `entries`: one entry for each claim, in the same order.
///
/// # Panics
/// If the number of entries differs from the number of claims, which is a bug in the node.
pub fn apply(rules: &Rules, now: Moment, entries: &mut [Entry], request: &Request) -> Outcome {
    assert_eq!(entries.len(), request.claims.len(), "one entry per claim");
    for entry in entries.iter_mut() {
        entry.expire(now);
    }
    let mut wakes = Vec::new();
    let answer = answer(rules, now, entries, request, &mut wakes);
    let floor = match &answer {
        // This ballot was compared with the fence of one slot only.
        Answer::Permit(permit) => slots::floor(rules, now, entries, permit),
        // Nothing was looked up.
        Answer::Late => now.ground(rules),
        _ => {
            let fences = entries.iter().zip(&*request.claims);
            let fences = fences.map(|(entry, claim)| entry.effective_fence(rules, now, claim.mode));
            fences.max().unwrap_or_default()
        }
    };
    Outcome {
        answer,
        stamp: ReplyStamp {
            clock_us: now.clock_us,
            floor,
        },
        wakes,
    }
}

/// Calls the function of the operation. Everything expired has been dropped from `entries`.
fn answer(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    wakes: &mut Vec<Wake>,
) -> Answer {
    match &request.op {
        Op::Acquire(op) => acquire::acquire(rules, now, entries, &AcquireParams::new(request, op)),
        Op::Extend(op) => extend::extend(rules, now, entries, request, op),
        Op::Downgrade(op) => extend::downgrade(rules, now, entries, request, op, wakes),
        Op::Release(op) => {
            release::release(rules, now, entries, &ReleaseParams::new(request, op), wakes)
        }
        Op::Restore(op) => extend::restore(rules, now, entries, request, op),
        Op::Refresh(op) => acquire::refresh(rules, now, entries, request, &op.tickets),
        Op::AcquireSlot(op) => {
            let params = AcquireParams::new(request, &op.acquire);
            slots::acquire(rules, now, entries, &params, op.slot)
        }
        Op::ReleaseSlot(op) => {
            let params = ReleaseParams::of_slots(request, &op.release);
            slots::release(rules, now, entries, &params, op.slots, wakes)
        }
        Op::RefreshSlots(op) => slots::refresh(rules, now, entries, &op.tickets),
        Op::Arrive(op) => latch::arrive(rules, now, &mut entries[0], op, wakes),
        Op::Attend(op) => latch::attend(now, &mut entries[0], op),
        Op::Break(op) => breaking::break_holders(rules, now, entries, request, op, wakes),
        Op::Inspect => inspect::inspect(rules, now, entries, request),
        Op::List(op) => inspect::list(entries, request, op),
        Op::PlainAcquire(op) => plain::acquire(now, entries, request, op.ttl_ms),
        Op::PlainExtend(op) => plain::extend(now, entries, request, op.ttl_ms),
        Op::PlainRelease => plain::release(now, entries, request),
    }
}

#[cfg(test)]
mod tests;
