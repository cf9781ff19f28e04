//! What an inspection found under one name, turned into rows of the list.

use std::time::Duration;

use ringfence::{
    HolderInspection, HolderKind, Inspection, LatchInspection, LockState, NameInspection,
    NodeInspection, SemaphoreInspection, WaiterInspection,
};

use super::rows::{HolderRow, LockRow, NodeMark, RowKind, RowPart, WaiterRow};

/// Everything with one name, as an inspection or a list found it.
pub(super) struct SeenName<'a> {
    pub(super) name: &'a str,
    pub(super) lock: Option<&'a Inspection>,
    pub(super) semaphore: Option<&'a SemaphoreInspection>,
    pub(super) latch: Option<&'a LatchInspection>,
    /// When it was read.
    pub(super) at_ms: u64,
}

impl<'a> SeenName<'a> {
    /// A name that was read directly.
    pub(super) fn inspected(seen: &'a NameInspection, at_ms: u64) -> Self {
        Self {
            name: &seen.name,
            lock: Some(&seen.lock),
            semaphore: seen.semaphore.as_ref(),
            latch: seen.latch.as_ref(),
            at_ms,
        }
    }
}

impl SeenName<'_> {
    /// The rows of what is in use. A free lock without a queue has none.
    pub(super) fn rows(&self) -> Vec<LockRow> {
        let lock = self.lock.map(|lock| lock_row(lock, self.name, self.at_ms));
        let lock = lock.filter(|row| !row.holders.is_empty() || row.waiting > 0 || row.split);
        let semaphore = self.semaphore;
        let is_used = |slot: &Inspection| slot.state != LockState::Free;
        let semaphore = semaphore.filter(|one| one.waiting > 0 || one.slots.iter().any(is_used));
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
        state: lock.state,
        kept: lock.kept,
        split: lock.is_split(),
        holders: holders(lock).map(|one| holder(one, None, at_ms)).collect(),
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

/// The holders; if the state is unknown, those that single nodes have.
fn holders(lock: &Inspection) -> impl Iterator<Item = &HolderInspection> {
    let is_unknown = lock.state == LockState::Unknown;
    let reported = lock.reported.iter().filter(move |_| is_unknown);
    let reported = reported.map(|one| &one.holder);
    lock.holders.iter().chain(reported)
}

fn semaphore_row(seen: &SemaphoreInspection, named: &SeenName<'_>) -> LockRow {
    let at_ms = named.at_ms;
    let slots = (0_u32..).zip(&seen.slots);
    let holders = slots.flat_map(|(number, slot)| {
        let held = holders(slot).next();
        held.map(|one| holder(one, Some(number), at_ms))
    });
    LockRow {
        name: named.name.to_owned(),
        part: RowPart::Semaphore,
        kind: RowKind::Semaphore,
        state: match (seen.unknown(), seen.taken()) {
            (0, 0) => LockState::Free,
            (0, _) => LockState::Held,
            _ => LockState::Unknown,
        },
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
        state: match (seen.quorum, seen.arrived) {
            (false, _) => LockState::Unknown,
            (true, 0) => LockState::Free,
            (true, _) => LockState::Held,
        },
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
        Some(_) if lock.state == LockState::Unknown => NodeMark::Reported,
        Some(_) if lock.has_holder(node) => NodeMark::Held,
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
