//! The time line: who held what when, and when nodes voted, for the last 15 minutes. Pure.
//!
//! Only what was seen is recorded. A span reaches from the first observation to the last one of the
//! same thing. The time between two spans was not seen; readers show it as unknown.

use std::collections::{BTreeMap, HashSet, VecDeque};

use ringfence::admin::LockState;
use serde::Serialize;

use crate::row::{LockRow, RowPart};

/// How long the time line reaches back.
pub(super) const KEPT_MS: u64 = 15 * 60 * 1000;
/// The most spans of all tracks. The oldest are dropped, and the time before becomes unknown.
const SPANS_MAX: usize = 50_000;
/// Two observations of the same thing that are further apart leave a gap: as far as those of a lock
/// among a thousand, and a slow answer.
const SEEN_WITHIN_MS: u64 = 7_000;

/// What a track is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TrackKey {
    /// The lock.
    pub(super) name: String,
    /// Which thing with this name.
    pub(super) part: RowPart,
    /// The slot of a semaphore.
    pub(super) slot: Option<u32>,
}

/// What was seen for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SeenState {
    /// The holder, for people; `None` while it was free.
    pub(super) holder: Option<String>,
    /// The fence of the holder. The same fence is the same hold, without a gap.
    pub(super) fence: Option<u64>,
}

/// A time during which the same thing was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SeenSpan<T> {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    #[serde(flatten)]
    pub(super) state: T,
}

/// What was seen of one thing, oldest first.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(super) struct TimeTrack<T>(VecDeque<SeenSpan<T>>);

impl<T> Default for TimeTrack<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: PartialEq> TimeTrack<T> {
    /// `state` was seen at `at_ms`. `proved`: the state itself proves that it did not change since
    /// it was last seen. Returns whether there is one more span.
    fn observe(&mut self, at_ms: u64, state: T, proved: bool) -> bool {
        if let Some(last) = self.0.back_mut()
            && last.state == state
            && (proved || at_ms.saturating_sub(last.to_ms) <= SEEN_WITHIN_MS)
        {
            last.to_ms = last.to_ms.max(at_ms);
            return false;
        }
        self.0.push_back(SeenSpan {
            from_ms: at_ms,
            to_ms: at_ms,
            state,
        });
        true
    }

    /// Drops what ended before `begin_ms`. Returns how many spans that were.
    fn forget(&mut self, begin_ms: u64) -> usize {
        let old = self.0.iter().take_while(|span| span.to_ms < begin_ms);
        let count = old.count();
        self.0.drain(..count);
        count
    }

    pub(super) fn spans(&self) -> &VecDeque<SeenSpan<T>> {
        &self.0
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    locks: BTreeMap<TrackKey, TimeTrack<SeenState>>,
    nodes: BTreeMap<usize, TimeTrack<SeenCard>>,
    spans: usize,
    /// What is older was dropped because there was too much of it.
    dropped_until_ms: u64,
}

/// How a node was seen: a word of [`CardState`](super::cards::CardState).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct SeenCard {
    pub(super) state: super::cards::CardState,
}

impl Timeline {
    /// These rows were seen, each at its own time.
    pub(super) fn saw_rows(&mut self, rows: &[LockRow]) {
        for row in rows {
            for (key, state) in states(row) {
                self.saw(key, row.seen_ms, state);
            }
            // Seldom: it goes through all tracks.
            if self.spans > 2 * SPANS_MAX {
                self.forget(row.seen_ms);
            }
        }
    }

    /// A round of the search is over: every lock that was held from `from_ms` to `to_ms` was found
    /// meanwhile. Of those with a name in `unread`, which were not read, nothing was seen. Others
    /// that were not seen are free.
    pub(super) fn saw_round(&mut self, from_ms: u64, to_ms: u64, unread: &HashSet<String>) {
        let absent = self.locks.iter_mut().filter(|(key, track)| {
            let last = track.0.back();
            let is_free = last.is_none_or(|last| last.state.holder.is_none());
            let is_seen = last.is_some_and(|last| last.to_ms >= from_ms);
            (is_free || !is_seen) && !unread.contains(&key.name)
        });
        for (_, track) in absent {
            let free = SeenState {
                holder: None,
                fence: None,
            };
            self.spans += usize::from(track.observe(to_ms, free, false));
        }
        self.forget(to_ms);
    }

    /// The node at `index` was seen in this state.
    pub(super) fn saw_node(&mut self, index: usize, at_ms: u64, state: SeenCard) {
        let track = self.nodes.entry(index).or_default();
        track.observe(at_ms, state, false);
        track.forget(at_ms.saturating_sub(KEPT_MS));
    }

    /// The tracks of locks, those with the latest change first.
    pub(super) fn locks(
        &self,
        wanted: impl Fn(&TrackKey) -> bool,
    ) -> Vec<(&TrackKey, &TimeTrack<SeenState>)> {
        let mut tracks: Vec<_> = self.locks.iter().filter(|(key, _)| wanted(key)).collect();
        tracks.sort_by_key(|(_, track)| {
            let last = track.0.back();
            let is_held = last.is_some_and(|last| last.state.holder.is_some());
            std::cmp::Reverse((is_held, last.map_or(0, |last| last.from_ms)))
        });
        tracks
    }

    /// The tracks of the nodes, in node order.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &TimeTrack<SeenCard>> {
        self.nodes.values()
    }

    /// Before this moment spans may be missing.
    pub(super) fn dropped_until_ms(&self) -> u64 {
        self.dropped_until_ms
    }

    fn saw(&mut self, key: TrackKey, at_ms: u64, state: SeenState) {
        let proved = state.fence.is_some();
        let track = self.locks.entry(key).or_default();
        self.spans += usize::from(track.observe(at_ms, state, proved));
    }

    fn forget(&mut self, now_ms: u64) {
        let mut begin_ms = now_ms.saturating_sub(KEPT_MS).max(self.dropped_until_ms);
        loop {
            for track in self.locks.values_mut() {
                self.spans -= track.forget(begin_ms);
            }
            if self.spans <= SPANS_MAX || begin_ms > now_ms {
                break;
            }
            // Too much happened: keep a tenth less.
            begin_ms += now_ms.saturating_sub(begin_ms) / 10 + 1;
            self.dropped_until_ms = begin_ms;
        }
        let spans = &mut self.spans;
        self.locks.retain(|_, track| {
            // A track that shows only a free lock shows nothing.
            let is_used = track.0.iter().any(|span| span.state.holder.is_some());
            if !is_used {
                *spans -= track.0.len();
            }
            is_used
        });
    }
}

/// The tracks that a row belongs to, and its state on each.
fn states(row: &LockRow) -> Vec<(TrackKey, SeenState)> {
    let key = |slot| TrackKey {
        name: row.name.clone(),
        part: row.part,
        slot,
    };
    let of_holder = |holder: &crate::row::HolderRow| SeenState {
        holder: Some(match (&holder.label, &holder.id) {
            (Some(label), _) => label.clone(),
            (None, Some(id)) => id.clone(),
            (None, None) => "another client".to_owned(),
        }),
        fence: holder.fence,
    };
    match (row.part, row.holders.as_slice()) {
        _ if row.state == LockState::Unknown => Vec::new(),
        (RowPart::Latch, _) => Vec::new(),
        (RowPart::Semaphore, holders) => {
            let slots = holders.iter();
            slots.map(|one| (key(one.slot), of_holder(one))).collect()
        }
        (RowPart::Lock, []) => {
            let word = match (row.state, row.split) {
                (LockState::Held, _) => Some("another client"),
                (_, true) => Some("no majority"),
                (_, false) => None,
            };
            let state = SeenState {
                holder: word.map(str::to_owned),
                fence: None,
            };
            vec![(key(None), state)]
        }
        (RowPart::Lock, [one]) => vec![(key(None), of_holder(one))],
        (RowPart::Lock, _) => vec![(
            key(None),
            SeenState {
                holder: Some(format!("{} readers", row.holder_count)),
                fence: None,
            },
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::held;

    const S: u64 = 1_000;

    /// The spans of the lock `name`: from, to, holder.
    fn spans(timeline: &Timeline, name: &str) -> Vec<(u64, u64, Option<String>)> {
        let tracks = timeline.locks(|key| key.name == name);
        let spans = tracks.iter().flat_map(|(_, track)| track.spans());
        spans
            .map(|span| (span.from_ms, span.to_ms, span.state.holder.clone()))
            .collect()
    }

    fn saw(timeline: &mut Timeline, rows: &[LockRow], at_ms: u64) {
        timeline.saw_rows(rows);
        timeline.saw_round(at_ms, at_ms, &HashSet::new());
    }

    fn row(id: &str, fence: Option<u64>, at_ms: u64) -> LockRow {
        let mut row = held("a", id, at_ms + 10 * S, at_ms);
        row.holders[0].fence = fence;
        row
    }

    fn who(id: &str) -> Option<String> {
        Some(format!("host:{id}"))
    }

    #[test]
    fn a_hand_over_leaves_the_time_between_two_looks_unknown() {
        let mut timeline = Timeline::default();
        saw(&mut timeline, &[row("x", Some(1), S)], S);
        saw(&mut timeline, &[row("x", Some(1), 2 * S)], 2 * S);
        saw(&mut timeline, &[row("y", Some(2), 3 * S)], 3 * S);
        saw(&mut timeline, &[], 4 * S);
        saw(&mut timeline, &[], 5 * S);
        let expected = [
            (S, 2 * S, who("x")),
            (3 * S, 3 * S, who("y")),
            (4 * S, 5 * S, None),
        ];
        assert_eq!(spans(&timeline, "a"), expected);
    }

    #[test]
    fn without_an_observation_nothing_is_invented_except_by_the_same_fence() {
        let mut plain = Timeline::default();
        saw(&mut plain, &[row("x", None, S)], S);
        saw(&mut plain, &[row("x", None, 60 * S)], 60 * S);
        let expected = [(S, S, who("x")), (60 * S, 60 * S, who("x"))];
        assert_eq!(spans(&plain, "a"), expected);

        let mut fenced = Timeline::default();
        saw(&mut fenced, &[row("x", Some(1), S)], S);
        saw(&mut fenced, &[row("x", Some(1), 60 * S)], 60 * S);
        assert_eq!(spans(&fenced, "a"), [(S, 60 * S, who("x"))]);
    }

    #[test]
    fn a_lock_that_was_found_and_not_read_is_not_seen() {
        let mut timeline = Timeline::default();
        saw(&mut timeline, &[row("x", None, S)], S);
        let unread = HashSet::from(["a".to_owned()]);
        timeline.saw_round(2 * S, 2 * S, &unread);
        assert_eq!(spans(&timeline, "a"), [(S, S, who("x"))]);
        timeline.saw_round(3 * S, 3 * S, &HashSet::new());
        assert_eq!(
            spans(&timeline, "a"),
            [(S, S, who("x")), (3 * S, 3 * S, None)]
        );
    }

    #[test]
    fn what_is_older_than_fifteen_minutes_is_forgotten() {
        let mut timeline = Timeline::default();
        saw(&mut timeline, &[row("x", Some(1), S)], S);
        saw(&mut timeline, &[], 2 * S);
        saw(&mut timeline, &[], KEPT_MS + S);
        assert_eq!(spans(&timeline, "a")[0], (S, S, who("x")));
        saw(&mut timeline, &[], KEPT_MS + 2 * S);
        assert_eq!(spans(&timeline, "a"), []);
        assert_eq!(timeline.spans, 0);
    }

    #[test]
    fn the_number_of_spans_is_bounded_and_the_loss_is_known() {
        let mut timeline = Timeline::default();
        for round in 1..=(SPANS_MAX as u64 / 100 + 50) {
            let rows: Vec<LockRow> = (0..100)
                .map(|n| {
                    let mut row = row(&format!("{round}"), Some(round), round * S);
                    row.name = format!("lock {n}");
                    row
                })
                .collect();
            saw(&mut timeline, &rows, round * S);
        }
        assert!(timeline.spans <= SPANS_MAX, "{}", timeline.spans);
        let counted: usize = timeline
            .locks(|_| true)
            .iter()
            .map(|(_, t)| t.0.len())
            .sum();
        assert_eq!(counted, timeline.spans);
        assert!(timeline.dropped_until_ms() > 0);
    }
}
