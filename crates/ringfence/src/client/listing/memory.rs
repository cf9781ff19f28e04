//! About how much memory the parts of a list take. A hostile node may send names, labels and readers
//! up to their limits, so a list of 100,000 names could take gigabytes.

use crate::message::View;

use super::super::inspection::{
    Holder, Inspection, LatchInspection, NodeInspection, SemaphoreInspection, WaiterInspection,
};
use super::{ListStep, ListedLock, UnreadableName};

/// The text of one error.
const ERROR_BYTES: usize = 512;

impl ListStep {
    /// About how many bytes of memory its locks and names take.
    pub fn memory(&self) -> usize {
        let unreadable = self.unreadable.iter().map(of_unreadable);
        self.locks.iter().map(of_lock).chain(unreadable).sum()
    }
}

fn of_lock(listed: &ListedLock) -> usize {
    let lock = listed.lock.as_ref().map_or(0, inspection);
    let semaphore = listed.semaphore.as_ref().map_or(0, semaphore);
    let latch = listed.latch.as_ref().map_or(0, latch);
    size_of_val(listed) + 2 * listed.name.len() + lock + semaphore + latch
}

fn of_unreadable(one: &UnreadableName) -> usize {
    let votes = one.error.votes().map_or(0, |votes| votes.len());
    size_of_val(one) + 2 * one.name.len() + ERROR_BYTES * votes
}

fn inspection(lock: &Inspection) -> usize {
    let reported = lock.reported.iter().map(|one| &one.holder);
    let holders: usize = lock.holders.iter().chain(reported).map(holder).sum();
    let queue: usize = lock.queue.iter().map(waiter).sum();
    let nodes: usize = lock.nodes.iter().map(node).sum();
    size_of_val(lock) + lock.name.len() + text(lock.label.as_ref()) + holders + queue + nodes
}

fn semaphore(one: &SemaphoreInspection) -> usize {
    let slots: usize = one.slots.iter().map(inspection).sum();
    one.name.len() + slots + one.queue.iter().map(waiter).sum::<usize>()
}

fn latch(one: &LatchInspection) -> usize {
    one.name.len()
        + one
            .parties
            .iter()
            .map(|party| text(Some(party)))
            .sum::<usize>()
}

fn holder(one: &Holder) -> usize {
    size_of_val(one) + text(one.label.as_ref()) + text(one.id.as_ref())
}

fn waiter(one: &WaiterInspection) -> usize {
    size_of_val(one) + one.id.len() + one.label.len()
}

fn node(one: &NodeInspection) -> usize {
    let seen = one.view.as_ref().map_or(ERROR_BYTES, view);
    size_of_val(one) + one.node.len() + seen
}

fn view(view: &View) -> usize {
    let holder = view.holder.iter();
    let holder = holder.map(|one| text(one.label.as_ref()) + text(one.id.as_ref()));
    let readers = view.readers.iter();
    let readers = readers.map(|one| size_of_val(one) + one.id.len() + one.label.len());
    let tickets = view.tickets.iter();
    let tickets = tickets.map(|one| size_of_val(one) + one.id.len() + one.label.len());
    let arrivals = view.arrivals.iter();
    let parties = arrivals.flat_map(|arrivals| arrivals.parties.iter());
    let parties = parties.map(|party| size_of_val(party) + party.len());
    holder.chain(readers).chain(tickets).chain(parties).sum()
}

/// With the place of the text itself.
fn text(text: Option<&String>) -> usize {
    text.map_or(0, |text| size_of_val(text) + text.len())
}
