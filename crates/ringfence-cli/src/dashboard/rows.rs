//! One row of the list of locks: what the nodes have of a lock, a semaphore or a latch, as JSON.
//!
//! Moments are milliseconds since the dashboard began, on its own clock that never jumps. A lease
//! that is not renewed ends at the same moment in every observation, so a row changes only when
//! something happened.

use ringfence::LockState;
use serde::{Serialize, Serializer};

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
    #[serde(serialize_with = "word")]
    pub(super) state: LockState,
    /// Whether it is released, and kept from others for a while.
    pub(super) kept: bool,
    /// Whether nodes disagree although the state is known: a minority has another holder.
    pub(super) split: bool,
    /// If the state is unknown: the holders that single nodes have.
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
    /// It has a holder, and it is unknown whether that one has a majority.
    Reported,
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

    /// This row after too few nodes answered to tell anything of it. `votes` is what is known of the
    /// nodes.
    pub(super) fn unknown(&self, votes: Vec<NodeMark>) -> Self {
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
    pub(super) fn is_like(&self, other: &Self) -> bool {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A lock that `id` holds until `until_ms`, as seen at `seen_ms`.
    pub(in crate::dashboard) fn held(name: &str, id: &str, until_ms: u64, seen_ms: u64) -> LockRow {
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
