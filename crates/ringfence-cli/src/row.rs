//! What `ls` and the dashboard show of a name: one row for its lock, one for its semaphore, one for its
//! latch.
//!
//! Moments are milliseconds since the reader began, on its own clock that never jumps. A lease that is
//! not renewed ends at the same moment in every observation, so a row changes only when something
//! happened.

use std::time::Duration;

use ringfence::Holder;
use ringfence::admin::{
    HolderKind, Inspection, LatchInspection, ListedLock, LockState, NameInspection, NodeInspection,
    SemaphoreInspection, WaiterInspection,
};
use serde::{Serialize, Serializer};

use crate::report::shortened;

/// Two observations of one moment may differ this much: network, and whole milliseconds.
const SAME_MOMENT_MS: u64 = 400;

/// What a row shows. A lock, a semaphore and a latch of one name are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RowKind {
    /// Held by one client.
    Exclusive,
    /// Shared by readers.
    Shared,
    /// Held without a record: a plain lock, or another library's.
    Plain,
    /// A lock without a known holder: clients wait, a minority of the nodes has a holder, or the state
    /// is unknown.
    Lock,
    /// A semaphore.
    Semaphore,
    /// A latch.
    Latch,
}

/// The key of a row: the name, and which of the three things with this name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RowKey {
    pub(crate) name: String,
    pub(crate) part: RowPart,
}

/// Which of the things that can share a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RowPart {
    /// Mutexes, read-write locks, elections and plain locks.
    Lock,
    /// A semaphore.
    Semaphore,
    /// A latch.
    Latch,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LockRow {
    pub(crate) name: String,
    pub(crate) part: RowPart,
    pub(crate) kind: RowKind,
    /// Whether a majority of the nodes has one and the same holder; of a semaphore or latch:
    /// whether it is in use.
    #[serde(serialize_with = "word")]
    pub(crate) state: LockState,
    /// Whether it is released, and kept from others for a while.
    pub(crate) kept: bool,
    /// Whether nodes disagree although the state is known: a minority has another holder.
    pub(crate) split: bool,
    /// If the state is unknown: the holders that single nodes have.
    pub(crate) holders: Vec<HolderRow>,
    pub(crate) holder_count: u64,
    pub(crate) waiting: u64,
    pub(crate) queue: Vec<WaiterRow>,
    /// Of a semaphore.
    pub(crate) permits: Option<u64>,
    /// Of a semaphore: how many more permits may be taken.
    #[serde(skip)]
    pub(crate) unknown: u64,
    /// Of a latch: how many have arrived, and the first of them.
    pub(crate) arrived: Option<u64>,
    pub(crate) parties: Vec<String>,
    /// When a latch was made.
    pub(crate) made_ms: Option<i64>,
    /// What each node says, in node order.
    pub(crate) votes: Vec<NodeMark>,
    /// As [`agreeing`] counts them; of a semaphore the fewest of a permit.
    #[serde(skip)]
    pub(crate) agreeing: Option<usize>,
    /// When it was last seen like this.
    #[serde(skip)]
    pub(crate) seen_ms: u64,
}

/// A holder of a lock or of a slot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HolderRow {
    pub(crate) label: Option<String>,
    pub(crate) id: Option<String>,
    /// For an election this is its term.
    pub(crate) fence: Option<u64>,
    /// The slot of a semaphore.
    pub(crate) slot: Option<u32>,
    /// Since when it holds it; negative before the dashboard began.
    pub(crate) since_ms: Option<i64>,
    /// When its lease ends unless it is renewed.
    pub(crate) until_ms: Option<u64>,
    /// How much was left when the lease was first seen or was last seen renewed.
    pub(crate) lease_ms: Option<u64>,
}

/// A client in the queue, in the order of the queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct WaiterRow {
    pub(crate) id: String,
    pub(crate) since_ms: i64,
    pub(crate) shared: bool,
}

/// What one node says of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NodeMark {
    /// It has the holder that the majority has.
    Held,
    /// It has a holder that the majority does not have.
    Other,
    /// It has a holder, and it is unknown whether that one has a majority.
    Reported,
    /// It has no holder.
    Free,
    /// It answers, but its vote does not count.
    Mute,
    /// It did not answer.
    Down,
}

impl RowKind {
    /// The word for people, in JSON and in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Plain => "plain",
            Self::Lock => "lock",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
        }
    }
}

impl From<HolderKind> for RowKind {
    fn from(kind: HolderKind) -> Self {
        match kind {
            HolderKind::Exclusive => Self::Exclusive,
            HolderKind::Shared => Self::Shared,
            _ => Self::Plain,
        }
    }
}

impl LockRow {
    pub(crate) fn key(&self) -> RowKey {
        RowKey {
            name: self.name.clone(),
            part: self.part,
        }
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let holders = self.holders.iter();
        let holders = holders.map(|one| size_of_val(one) + text(&one.label) + text(&one.id));
        let queue = self.queue.iter().map(|one| size_of_val(one) + one.id.len());
        let parties = self.parties.iter();
        let parties = parties.map(|one| size_of_val(one) + one.len());
        let parts: usize = holders.chain(queue).chain(parties).sum();
        // Its key has the name, too.
        size_of_val(self) + 2 * self.name.len() + self.votes.len() + parts
    }

    /// This row, seen after `before`. Moments that were only measured again keep their value, so
    /// that an unchanged lock is an unchanged row.
    pub(crate) fn after(mut self, before: &Self) -> Self {
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

    /// This row after too few nodes answered to tell anything of it. `votes` is what is known of the
    /// nodes.
    pub(crate) fn unknown(&self, votes: Vec<NodeMark>) -> Self {
        Self {
            kind: match self.part {
                RowPart::Lock => RowKind::Lock,
                _ => self.kind,
            },
            state: LockState::Unknown,
            kept: false,
            split: false,
            holders: Vec::new(),
            holder_count: 0,
            waiting: 0,
            queue: Vec::new(),
            parties: Vec::new(),
            votes,
            ..self.clone()
        }
    }

    /// Whether the rows show the same, apart from when they were seen.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let same = |row: &Self| Self {
            seen_ms: 0,
            ..row.clone()
        };
        same(self) == same(other)
    }
}

/// The state as the word that people and programs read.
fn word<S: Serializer>(state: &LockState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(state)
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
pub(crate) struct SeenName<'a> {
    name: &'a str,
    lock: Option<&'a Inspection>,
    semaphore: Option<&'a SemaphoreInspection>,
    latch: Option<&'a LatchInspection>,
    /// When it was read.
    at_ms: u64,
}

impl<'a> SeenName<'a> {
    /// A name that was read directly.
    pub(crate) fn inspected(seen: &'a NameInspection, at_ms: u64) -> Self {
        Self {
            name: &seen.name,
            lock: Some(&seen.lock),
            semaphore: seen.semaphore.as_ref(),
            latch: seen.latch.as_ref(),
            at_ms,
        }
    }

    /// A name of a list. `now_ms` is now, and the name was read before.
    pub(crate) fn listed(listed: &'a ListedLock, now_ms: u64) -> Self {
        Self {
            name: &listed.name,
            lock: listed.lock.as_ref(),
            semaphore: listed.semaphore.as_ref(),
            latch: listed.latch.as_ref(),
            at_ms: now_ms.saturating_sub(millis(listed.age())),
        }
    }
}

impl SeenName<'_> {
    /// The rows of what is in use. A free lock without a queue has none.
    pub(crate) fn rows(&self) -> Vec<LockRow> {
        let lock = self.lock.map(|lock| lock_row(lock, self));
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

/// A row without holders, waiters and votes.
fn empty_row(named: &SeenName<'_>, part: RowPart, kind: RowKind, state: LockState) -> LockRow {
    LockRow {
        name: named.name.to_owned(),
        part,
        kind,
        state,
        kept: false,
        split: false,
        holders: Vec::new(),
        holder_count: 0,
        waiting: 0,
        queue: Vec::new(),
        permits: None,
        unknown: 0,
        arrived: None,
        parties: Vec::new(),
        made_ms: None,
        votes: named.presence(),
        agreeing: None,
        seen_ms: named.at_ms,
    }
}

fn lock_row(lock: &Inspection, named: &SeenName<'_>) -> LockRow {
    let at_ms = named.at_ms;
    let kind = lock.kind.map_or(RowKind::Lock, RowKind::from);
    LockRow {
        kept: lock.kept,
        split: lock.is_split(),
        holders: holders(lock).map(|one| holder(one, None, at_ms)).collect(),
        holder_count: lock.holder_count,
        waiting: lock.waiting,
        queue: lock.queue.iter().map(|one| waiter(one, at_ms)).collect(),
        votes: lock.nodes.iter().map(|node| mark(node, lock)).collect(),
        agreeing: Some(agreeing(lock)),
        ..empty_row(named, RowPart::Lock, kind, lock.state)
    }
}

/// The holders; if the state is unknown, those that single nodes have.
fn holders(lock: &Inspection) -> impl Iterator<Item = &Holder> {
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
    let held = seen.slots.iter().filter(|slot| slot.is_held());
    let state = match (seen.unknown(), seen.taken()) {
        (0, 0) => LockState::Free,
        (0, _) => LockState::Held,
        _ => LockState::Unknown,
    };
    LockRow {
        holders: holders.collect(),
        holder_count: seen.taken(),
        waiting: seen.waiting,
        queue: seen.queue.iter().map(|one| waiter(one, at_ms)).collect(),
        permits: Some(seen.permits),
        unknown: seen.unknown(),
        agreeing: held.map(agreeing).min(),
        ..empty_row(named, RowPart::Semaphore, RowKind::Semaphore, state)
    }
}

fn latch_row(seen: &LatchInspection, named: &SeenName<'_>) -> LockRow {
    let state = match (seen.quorum, seen.arrived) {
        (false, _) => LockState::Unknown,
        (true, 0) => LockState::Free,
        (true, _) => LockState::Held,
    };
    LockRow {
        waiting: seen.waiting,
        arrived: Some(seen.arrived),
        parties: seen.parties.clone(),
        made_ms: seen.age.map(|age| before(named.at_ms, age)),
        ..empty_row(named, RowPart::Latch, RowKind::Latch, state)
    }
}

fn holder(seen: &Holder, slot: Option<u32>, at_ms: u64) -> HolderRow {
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

/// How many nodes that vote have the holder; if the lock is free, how many vote; if it is unknown,
/// how many have the holder that most of them have.
pub(crate) fn agreeing(lock: &Inspection) -> usize {
    match lock.state {
        LockState::Held => {
            let nodes = lock.nodes.iter();
            nodes.filter(|node| lock.has_holder(node)).count()
        }
        LockState::Free => lock.voting(),
        LockState::Unknown => lock.reported.first().map_or(0, |one| one.nodes),
    }
}

/// A holder by its label, or its id, for people.
pub(crate) fn who(label: Option<&str>, id: Option<&str>) -> String {
    label
        .or(id)
        .map_or_else(|| "another client".to_owned(), shortened)
}

/// Milliseconds for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
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
    match (&node.view, &node.discount) {
        (Err(_), _) => NodeMark::Down,
        (Ok(_), Some(_)) => NodeMark::Mute,
        (Ok(_), None) => NodeMark::Held,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A lock that `id` holds until `until_ms`, as seen at `seen_ms`.
    pub(crate) fn held(name: &str, id: &str, until_ms: u64, seen_ms: u64) -> LockRow {
        LockRow {
            name: name.to_owned(),
            part: RowPart::Lock,
            kind: RowKind::Exclusive,
            state: LockState::Held,
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
            unknown: 0,
            arrived: None,
            parties: Vec::new(),
            made_ms: None,
            votes: vec![NodeMark::Held; 3],
            agreeing: Some(3),
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
