//! Reads single locks while a round of the search is long: among many keys, or on busy servers, a
//! round may take many times as long as a lock may stay unread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::pace;
use super::rows::{LockRow, RowKey, RowPart};

/// When each lock of the list was last read, by the search or directly.
#[derive(Debug, Default)]
pub(super) struct ReadTimes(HashMap<String, u64>);

impl ReadTimes {
    /// Notes that these rows were read.
    pub(super) fn note<'a>(&mut self, rows: impl IntoIterator<Item = &'a LockRow>) {
        for row in rows {
            let read_ms = self.0.entry(row.name.clone()).or_default();
            *read_ms = row.seen_ms.max(*read_ms);
        }
    }

    /// The name in the list that was not read for the longest time, if that is too long. Names that
    /// are not in the list are forgotten.
    pub(super) fn due(
        &mut self,
        list: &BTreeMap<RowKey, Arc<LockRow>>,
        now_ms: u64,
    ) -> Option<String> {
        self.0.retain(|name, _| is_listed(list, name));
        let (name, read_ms) = self.0.iter().min_by_key(|(_, read_ms)| **read_ms)?;
        let age = Duration::from_millis(now_ms.saturating_sub(*read_ms));
        (age >= pace::longest_unread(self.0.len())).then(|| name.clone())
    }

    /// Notes that this name was read at `now_ms`, although it may be gone.
    pub(super) fn note_name(&mut self, name: &str, now_ms: u64) {
        if let Some(read_ms) = self.0.get_mut(name) {
            *read_ms = now_ms;
        }
    }
}

/// The keys of everything with this name.
fn keys_of(name: &str) -> [RowKey; 3] {
    [RowPart::Lock, RowPart::Semaphore, RowPart::Latch].map(|part| RowKey {
        name: name.to_owned(),
        part,
    })
}

pub(super) fn is_listed(list: &BTreeMap<RowKey, Arc<LockRow>>, name: &str) -> bool {
    keys_of(name).iter().any(|key| list.contains_key(key))
}

/// The list after one name was read directly: what is free by now has no row any more.
pub(super) fn replace(
    list: &mut BTreeMap<RowKey, Arc<LockRow>>,
    name: &str,
    rows: impl IntoIterator<Item = (RowKey, Arc<LockRow>)>,
) {
    for key in keys_of(name) {
        list.remove(&key);
    }
    list.extend(rows);
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::held;
    use super::*;

    fn list(names: &[&str]) -> BTreeMap<RowKey, Arc<LockRow>> {
        let rows = names.iter().map(|name| held(name, "id", 9_000, 0));
        rows.map(|row| (row.key(), Arc::new(row))).collect()
    }

    #[test]
    fn the_lock_that_was_not_read_for_the_longest_time_is_due() {
        let list = list(&["a", "b"]);
        let mut times = ReadTimes::default();
        times.note([&held("a", "id", 9_000, 1_000), &held("b", "id", 9_000, 500)]);
        assert_eq!(times.due(&list, 2_499), None);
        assert_eq!(times.due(&list, 2_500).as_deref(), Some("b"));
        times.note_name("b", 2_500);
        assert_eq!(times.due(&list, 3_000).as_deref(), Some("a"));
        // An older observation that arrives later changes nothing.
        times.note([&held("b", "id", 9_000, 600)]);
        times.note_name("a", 3_000);
        assert_eq!(times.due(&list, 4_000), None);
    }

    #[test]
    fn a_lock_that_is_not_in_the_list_is_not_due() {
        let mut times = ReadTimes::default();
        times.note([&held("a", "id", 9_000, 0)]);
        assert_eq!(times.due(&list(&["b"]), 60_000), None);
    }

    #[test]
    fn a_lock_that_is_free_leaves_the_list() {
        let mut list = list(&["a", "b"]);
        replace(&mut list, "a", []);
        assert_eq!(
            list.keys().map(|key| key.name.as_str()).collect::<Vec<_>>(),
            ["b"]
        );
    }
}
