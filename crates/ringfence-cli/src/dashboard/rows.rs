//! One row of the list of locks: what the nodes have of a lock, a semaphore or a latch, as JSON.
//!
//! Moments are milliseconds since the dashboard began, on its own clock that never jumps. A lease
//! that is not renewed ends at the same moment in every observation, so a row changes only when
//! something happened.

use std::time::Duration;

use ringfence::{
    HolderInspection, HolderKind, Inspection, LatchInspection, NodeInspection, SemaphoreInspection,
    WaiterInspection,
};
use serde::Serialize;

/// Two observations of one moment may differ this much: network, and whole milliseconds.
const SAME_MOMENT_MS: u64 = 400;

/// What a row shows. A lock, a semaphore and a latch of one name are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RowKind {
    /// Held by one client.
    Exclusive,
    /// Shared by readers.
    Shared,
    /// Held without a record: a plain lock, or another library's.
    Plain,
    /// A free lock: clients wait, or a minority of the nodes has a holder.
    Lock,
    /// A semaphore.
    Semaphore,
    /// A latch.
    Latch,
}

/// The key of a row: the name, and which of the three things with this name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowKey {
    pub(super) name: String,
    pub(super) part: RowPart,
}

/// Which of the things that can share a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RowPart {
    /// Mutexes, read-write locks, elections and plain locks.
    Lock,
    /// A semaphore.
    Semaphore,
    /// A latch.
    Latch,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LockRow {
    pub(super) name: String,
    pub(super) part: RowPart,
    pub(super) kind: RowKind,
    /// Whether a majority of the nodes has one and the same holder; of a semaphore or latch:
    /// whether it is in use.
    pub(super) held: bool,
    /// Whether it is released, and kept from others for a while.
    pub(super) kept: bool,
    /// Whether nodes disagree: a holder without a majority, or two holders.
    pub(super) split: bool,
    pub(super) holders: Vec<HolderRow>,
    pub(super) holder_count: u64,
    pub(super) waiting: u64,
    pub(super) queue: Vec<WaiterRow>,
    /// Of a semaphore.
    pub(super) permits: Option<u64>,
    /// Of a latch: how many have arrived, and the first of them.
    pub(super) arrived: Option<u64>,
    pub(super) parties: Vec<String>,
    /// When a latch was made.
    pub(super) made_ms: Option<i64>,
    /// What each node says, in node order.
    pub(super) votes: Vec<NodeMark>,
    /// When it was last seen like this.
    #[serde(skip)]
    pub(super) seen_ms: u64,
}

/// A holder of a lock or of a slot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct HolderRow {
    pub(super) label: Option<String>,
    pub(super) id: Option<String>,
    /// For an election this is its term.
    pub(super) fence: Option<u64>,
    /// The slot of a semaphore.
    pub(super) slot: Option<u32>,
    /// Since when it holds it; negative before the dashboard began.
    pub(super) since_ms: Option<i64>,
    /// When its lease ends unless it is renewed.
    pub(super) until_ms: Option<u64>,
    /// How much was left when the lease was first seen or was last seen renewed.
    pub(super) lease_ms: Option<u64>,
}

/// A client in the queue, in the order of the queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct WaiterRow {
    pub(super) id: String,
    pub(super) since_ms: i64,
    pub(super) shared: bool,
}

/// What one node says of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NodeMark {
    /// It has the holder that the majority has.
    Held,
    /// It has a holder that the majority does not have.
    Other,
    /// It has no holder.
    Free,
    /// It answers, but its vote does not count.
    Mute,
    /// It did not answer.
    Down,
}

impl LockRow {
    pub(super) fn key(&self) -> RowKey {
        RowKey {
            name: self.name.clone(),
            part: self.part,
        }
    }

    /// This row, seen after `before`. Moments that were only measured again keep their value, so
    /// that an unchanged lock is an unchanged row.
    pub(super) fn after(mut self, before: &Self) -> Self {
        for (now, then) in self.holders.iter_mut().zip(&before.holders) {
            if now.id == then.id && now.fence == then.fence {
                now.since_ms = steady(now.since_ms, then.since_ms);
                let renewed = !is_same_moment(now.until_ms, then.until_ms);
                if !renewed {
                    (now.until_ms, now.lease_ms) = (then.until_ms, then.lease_ms);
                }
            }
        }
        for (now, then) in self.queue.iter_mut().zip(&before.queue) {
            if now.id == then.id {
                now.since_ms = steady(Some(now.since_ms), Some(then.since_ms)).unwrap_or_default();
            }
        }
        self.made_ms = steady(self.made_ms, before.made_ms);
        self
    }

    /// Whether the rows show the same, apart from when they were seen.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |row: &Self| Self {
            seen_ms: 0,
            ..row.clone()
        };
        same(self) == same(other)
    }
}

fn steady(now: Option<i64>, then: Option<i64>) -> Option<i64> {
    match (now, then) {
        (Some(now), Some(then)) if now.abs_diff(then) <= SAME_MOMENT_MS => Some(then),
        _ => now,
    }
}

fn is_same_moment(now: Option<u64>, then: Option<u64>) -> bool {
    match (now, then) {
        (Some(now), Some(then)) => now.abs_diff(then) <= SAME_MOMENT_MS,
        (None, None) => true,
        _ => false,
    }
}

/// Everything with one name, as an inspection or a list found it.
pub(super) struct SeenName<'a> {
    pub(super) name: &'a str,
    pub(super) lock: Option<&'a Inspection>,
    pub(super) semaphore: Option<&'a SemaphoreInspection>,
    pub(super) latch: Option<&'a LatchInspection>,
    /// When it was read.
    pub(super) at_ms: u64,
}

impl SeenName<'_> {
    /// The rows of what is in use. A free lock without a queue has none.
    pub(super) fn rows(&self) -> Vec<LockRow> {
        let lock = self.lock.map(|lock| lock_row(lock, self.name, self.at_ms));
        let lock = lock.filter(|row| row.held || row.waiting > 0 || row.split);
        let semaphore = self.semaphore;
        let semaphore = semaphore.filter(|one| one.taken() > 0 || one.waiting > 0);
        let semaphore = semaphore.map(|one| semaphore_row(one, self));
        let latch = self.latch.map(|one| latch_row(one, self));
        lock.into_iter().chain(semaphore).chain(latch).collect()
    }

    /// Which nodes answer and vote, as far as that is known.
    fn presence(&self) -> Vec<NodeMark> {
        let slot = self.semaphore.and_then(|semaphore| semaphore.slots.first());
        let nodes = self.lock.or(slot).map(|lock| &lock.nodes);
        nodes.into_iter().flatten().map(presence).collect()
    }
}

fn lock_row(lock: &Inspection, name: &str, at_ms: u64) -> LockRow {
    let votes: Vec<NodeMark> = lock.nodes.iter().map(|node| mark(node, lock)).collect();
    LockRow {
        name: name.to_owned(),
        part: RowPart::Lock,
        kind: match lock.kind {
            Some(HolderKind::Exclusive) => RowKind::Exclusive,
            Some(HolderKind::Shared) => RowKind::Shared,
            Some(_) => RowKind::Plain,
            None => RowKind::Lock,
        },
        held: lock.held,
        kept: lock.kept,
        split: votes.contains(&NodeMark::Other),
        holders: lock
            .holders
            .iter()
            .map(|one| holder(one, None, at_ms))
            .collect(),
        holder_count: lock.holder_count,
        waiting: lock.waiting,
        queue: lock.queue.iter().map(|one| waiter(one, at_ms)).collect(),
        permits: None,
        arrived: None,
        parties: Vec::new(),
        made_ms: None,
        votes,
        seen_ms: at_ms,
    }
}

fn semaphore_row(seen: &SemaphoreInspection, named: &SeenName<'_>) -> LockRow {
    let at_ms = named.at_ms;
    let slots = (0_u32..).zip(&seen.slots).filter(|(_, slot)| slot.held);
    let holders = slots.flat_map(|(number, slot)| {
        let held = slot.holders.first();
        held.map(|one| holder(one, Some(number), at_ms))
    });
    LockRow {
        name: named.name.to_owned(),
        part: RowPart::Semaphore,
        kind: RowKind::Semaphore,
        held: seen.taken() > 0,
        kept: false,
        split: false,
        holders: holders.collect(),
        holder_count: seen.taken(),
        waiting: seen.waiting,
        queue: seen.queue.iter().map(|one| waiter(one, at_ms)).collect(),
        permits: Some(seen.permits),
        arrived: None,
        parties: Vec::new(),
        made_ms: None,
        votes: named.presence(),
        seen_ms: at_ms,
    }
}

fn latch_row(seen: &LatchInspection, named: &SeenName<'_>) -> LockRow {
    let at_ms = named.at_ms;
    LockRow {
        name: named.name.to_owned(),
        part: RowPart::Latch,
        kind: RowKind::Latch,
        held: seen.arrived > 0,
        kept: false,
        split: false,
        holders: Vec::new(),
        holder_count: 0,
        waiting: seen.waiting,
        queue: Vec::new(),
        permits: None,
        arrived: Some(seen.arrived),
        parties: seen.parties.clone(),
        made_ms: seen.age.map(|age| before(at_ms, age)),
        votes: named.presence(),
        seen_ms: at_ms,
    }
}

fn holder(seen: &HolderInspection, slot: Option<u32>, at_ms: u64) -> HolderRow {
    let left_ms = seen.remaining.map(millis);
    HolderRow {
        label: seen.label.clone(),
        id: seen.id.clone(),
        fence: seen.fence,
        slot,
        since_ms: seen.held_for.map(|held| before(at_ms, held)),
        until_ms: left_ms.map(|left_ms| at_ms.saturating_add(left_ms)),
        lease_ms: left_ms,
    }
}

fn waiter(seen: &WaiterInspection, at_ms: u64) -> WaiterRow {
    WaiterRow {
        id: seen.id.clone(),
        since_ms: before(at_ms, seen.waited),
        shared: seen.shared,
    }
}

fn before(at_ms: u64, passed: Duration) -> i64 {
    at_ms.cast_signed().saturating_sub_unsigned(millis(passed))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What `node` says of `lock`.
fn mark(node: &NodeInspection, lock: &Inspection) -> NodeMark {
    let Ok(view) = &node.view else {
        return NodeMark::Down;
    };
    if node.discount.is_some() {
        return NodeMark::Mute;
    }
    match &view.holder {
        None => NodeMark::Free,
        // Readers have no common id: each node names one of them.
        Some(_) if lock.kind == Some(HolderKind::Shared) => NodeMark::Held,
        Some(holder) if lock.held && holder.id == lock.holder_id => NodeMark::Held,
        Some(_) => NodeMark::Other,
    }
}

/// Whether `node` answers and votes. Slots and arrivals of each node are not compared.
fn presence(node: &NodeInspection) -> NodeMark {
    match (&node.view, node.discount) {
        (Err(_), _) => NodeMark::Down,
        (Ok(_), Some(_)) => NodeMark::Mute,
        (Ok(_), None) => NodeMark::Held,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A lock that `id` holds until `until_ms`, as seen at `seen_ms`.
    pub(in crate::dashboard) fn held(name: &str, id: &str, until_ms: u64, seen_ms: u64) -> LockRow {
        LockRow {
            name: name.to_owned(),
            part: RowPart::Lock,
            kind: RowKind::Exclusive,
            held: true,
            kept: false,
            split: false,
            holders: vec![HolderRow {
                label: Some(format!("host:{id}")),
                id: Some(id.to_owned()),
                fence: Some(7),
                slot: None,
                since_ms: Some(5),
                until_ms: Some(until_ms),
                lease_ms: Some(until_ms - seen_ms),
            }],
            holder_count: 1,
            waiting: 0,
            queue: Vec::new(),
            permits: None,
            arrived: None,
            parties: Vec::new(),
            made_ms: None,
            votes: vec![NodeMark::Held; 3],
            seen_ms,
        }
    }

    #[test]
    fn a_lease_that_is_only_measured_again_leaves_the_row_unchanged() {
        let first = held("a", "x", 10_000, 0);
        let again = held("a", "x", 10_012, 1_000).after(&first);
        assert!(again.is_like(&first), "{again:?}");
        assert_eq!(again.holders[0].lease_ms, Some(10_000));
        assert_eq!(again.seen_ms, 1_000);
    }

    #[test]
    fn a_renewed_lease_and_another_holder_change_the_row() {
        let first = held("a", "x", 10_000, 0);
        let renewed = held("a", "x", 13_000, 3_000).after(&first);
        assert!(!renewed.is_like(&first));
        assert_eq!(renewed.holders[0].lease_ms, Some(10_000));
        let other = held("a", "y", 10_000, 100).after(&first);
        assert!(!other.is_like(&first));
    }
}
