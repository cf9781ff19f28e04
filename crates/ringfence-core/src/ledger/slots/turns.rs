//! Whose turn it is in the wait queue of a semaphore, and which waiters a freed slot wakes.
//!
//! Clients may disagree on the number of permits, for example during a rolling deploy. A ticket has
//! the number that its client assumes, and a waiter counts only as far as it can use a free slot.
//! Otherwise waiters that cannot use a free slot would keep it from those behind them that can (89
//! grants instead of 2,839).

use std::collections::BTreeMap;

use crate::ledger::{QueueEntry, Rules, WaitQueue};
use crate::message::{Ticket, Wake};

/// How many waiters ahead of the caller count, if it gives the semaphore this number of `permits`.
pub(super) fn count_ahead(
    queue: &WaitQueue,
    ticket: Option<&Ticket>,
    permits: u32,
    free: &[u32],
) -> u64 {
    let mut ahead = Ahead::default();
    for entry in queue.ahead_of(ticket) {
        ahead.add(entry.permits);
    }
    ahead.count_for(permits, free)
}

/// The ids of the waiters whose turn it is.
pub(super) fn served_ids(queue: &WaitQueue, free: &[u32]) -> Vec<String> {
    let (served, _) = served(queue, free);
    served.into_iter().map(|entry| entry.id.clone()).collect()
}

/// Wakes the waiters that the free slots serve now and did not serve before, and the next waiter,
/// which has to try after the grace. Never wakes `sender`, which knows it already.
///
/// Each wake that is due at once names a freed slot that its waiter can use. If each node picked a
/// slot by itself, nodes that have executed another release meanwhile would pick another one, and
/// the votes would not add up. A waiter that is woken after the grace asks for any slot that is free
/// then.
pub(super) fn new_wakes(
    rules: &Rules,
    queue: &WaitQueue,
    free: &[u32],
    served_before: &[String],
    mut freed: Vec<u32>,
    sender: Option<&Ticket>,
) -> Vec<Wake> {
    let is_sender = |entry: &QueueEntry| sender.is_some_and(|ticket| *ticket.id == *entry.id);
    let (served, next) = served(queue, free);
    let newly = served.into_iter();
    let newly = newly.filter(|entry| !served_before.contains(&entry.id) && !is_sender(entry));
    let mut wakes: Vec<Wake> = newly
        .map(|entry| Wake {
            ticket: entry.id.clone(),
            after_ms: 0,
            slot: freed
                .iter()
                .position(|slot| *slot < entry.permits)
                .map(|at| freed.remove(at)),
        })
        .collect();
    let next = next.filter(|next| !wakes.is_empty() && !is_sender(next));
    wakes.extend(next.map(|next| Wake {
        ticket: next.id.clone(),
        after_ms: rules.grace_ms,
        slot: None,
    }));
    wakes
}

/// The waiters whose turn it is while the slots in `free` are free, in order, and the first of the
/// others that could use one of these slots.
fn served<'a>(queue: &'a WaitQueue, free: &[u32]) -> (Vec<&'a QueueEntry>, Option<&'a QueueEntry>) {
    let (mut served, mut next) = (Vec::new(), None);
    let mut ahead = Ahead::default();
    for entry in &queue.entries {
        let usable = usable(free, entry.permits);
        if ahead.count_for(entry.permits, free) < usable {
            served.push(entry);
        } else if usable > 0 {
            next.get_or_insert(entry);
        }
        ahead.add(entry.permits);
        // No later waiter is served if every free slot has one.
        if next.is_some() && ahead.count_for(u32::MAX, free) == free.len() as u64 {
            break;
        }
    }
    (served, next)
}

/// The waiters ahead of a caller: how many there are for each number of permits, lowest first.
#[derive(Default)]
struct Ahead(BTreeMap<u32, u64>);

impl Ahead {
    fn add(&mut self, permits: u32) {
        *self.0.entry(permits).or_default() += 1;
    }

    /// How many of them count for a caller with this number of `permits`. Those with fewer permits
    /// count only as far as there are free slots that they can use. The others can use every slot
    /// that the caller can.
    fn count_for(&self, permits: u32, free: &[u32]) -> u64 {
        self.0
            .iter()
            .fold(0, |count, (&theirs, &waiters)| match theirs < permits {
                true => (count + waiters).min(usable(free, theirs)),
                false => count + waiters,
            })
    }
}

/// How many of the free slots a client with this number of `permits` can use.
fn usable(free: &[u32], permits: u32) -> u64 {
    free.iter().filter(|slot| **slot < permits).count() as u64
}
