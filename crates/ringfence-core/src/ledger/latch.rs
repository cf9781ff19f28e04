//! A latch: parties arrive and never leave, and the node wakes waiters when enough have arrived.
//!
//! A node only collects arrivals. The clients, which see a majority, decide whether the latch is
//! open. Therefore a node never removes an arrival, and a repeated arrival counts once.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::message::{Answer, Arrivals, Arrive, Attend, Mode, Wake};

use super::{Entry, Moment, Rules};

/// What a node stores about a latch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LatchRecord {
    /// When the latch was created, in microseconds of the nodes' clocks: the earliest time that any
    /// client sent. From it clients know which nodes are too young to have seen every arrival.
    pub since_us: u64,
    /// The parties that have arrived.
    pub parties: BTreeSet<Arc<str>>,
    /// The last millisecond in which the latch exists.
    pub until_ms: u64,
}

impl LatchRecord {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        now.lease_ms > self.until_ms
    }

    fn keep_for(&mut self, now: Moment, ttl_ms: u64) {
        self.until_ms = self.until_ms.max(now.lease_ms.saturating_add(ttl_ms));
    }
}

pub(super) fn arrive(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    arriving: &Arrive,
    wakes: &mut Vec<Wake>,
) -> Answer {
    // A creation time in the future would let nodes vote that were born after the latch.
    let ceiling = now.ceiling(rules).get();
    if arriving.since_us.is_some_and(|since| since > ceiling) {
        return Answer::Ahead;
    }
    if arriving.parties.is_empty() {
        return arrivals(entry, true);
    }
    // Only a client that has asked a majority knows when the latch was created: see
    // `protocol/latch.rs`. Without that time the node does not create the latch.
    if entry.latch.is_none()
        && let Some(since_us) = arriving.since_us
    {
        entry.latch = Some(LatchRecord {
            since_us,
            parties: BTreeSet::new(),
            until_ms: 0,
        });
    }
    if let Some(latch) = &mut entry.latch {
        let known = latch.since_us;
        latch.since_us = arriving.since_us.map_or(known, |since| since.min(known));
        let before = latch.parties.len();
        latch.parties.extend(arriving.parties.iter().cloned());
        latch.keep_for(now, arriving.ttl_ms);
        let after = latch.parties.len();
        if after > before && after as u64 >= arriving.count {
            // A woken waiter leaves the queue. It enters again if it still has to wait.
            let woken = entry.queue.entries.drain(..);
            wakes.extend(woken.map(|ticket| Wake {
                ticket: ticket.id,
                after_ms: 0,
                slot: None,
            }));
        }
    }
    arrivals(entry, true)
}

pub(super) fn attend(now: Moment, entry: &mut Entry, op: &Attend) -> Answer {
    for ticket in &*op.tickets {
        entry.queue.enter(ticket, Mode::Exclusive, false, now);
    }
    if let Some(latch) = &mut entry.latch {
        latch.keep_for(now, op.ttl_ms);
    }
    arrivals(entry, op.list)
}

fn arrivals(entry: &Entry, list: bool) -> Answer {
    let Some(latch) = &entry.latch else {
        return Answer::Arrivals(Arrivals::default());
    };
    Answer::Arrivals(Arrivals {
        since_us: Some(latch.since_us),
        arrived: latch.parties.len() as u64,
        parties: match list {
            true => latch.parties.iter().cloned().collect(),
            false => Vec::new(),
        },
    })
}
