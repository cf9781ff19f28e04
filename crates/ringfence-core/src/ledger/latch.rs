//! A latch: parties arrive, nobody leaves, and whoever waits is told when enough are there.
//!
//! A node only collects. Whether the latch is open is for the clients to say, who see a majority; that
//! is why nothing here is ever taken back, and why an arrival that comes twice counts once.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::message::{Answer, Arrivals, Arrive, Attend, Mode, Wake};

use super::{Entry, Moment, Rules};

/// Who has arrived at a latch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Latch {
    /// When it was made, in microseconds of the nodes' clocks: the earliest time that anybody told. It
    /// is how clients know which nodes are too young to remember all of it.
    pub since_us: u64,
    /// Who has arrived.
    pub parties: BTreeSet<Arc<str>>,
    /// The last millisecond at which it still stands.
    pub until_ms: u64,
}

impl Latch {
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
    // A latch from the future would make nodes count that are too young for it.
    let ceiling = now.ceiling(rules).get();
    if arriving.since_us.is_some_and(|since| since > ceiling) {
        return Answer::Ahead;
    }
    if arriving.parties.is_empty() {
        return arrivals(entry, true);
    }
    // Only whoever has asked a majority knows since when there is such a latch: see the protocol.
    if entry.latch.is_none()
        && let Some(since_us) = arriving.since_us
    {
        entry.latch = Some(Latch {
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
            // Whoever is told leaves the line, and comes back if it has to wait for more.
            let told = entry.line.tickets.drain(..);
            wakes.extend(told.map(|ticket| Wake {
                ticket: ticket.id,
                after_ms: 0,
                slot: None,
            }));
        }
    }
    arrivals(entry, true)
}

pub(super) fn attend(now: Moment, entry: &mut Entry, op: &Attend) -> Answer {
    for place in &*op.places {
        entry.line.enter(place, Mode::Exclusive, false, now);
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
