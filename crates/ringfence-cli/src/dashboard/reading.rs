//! When the nodes are searched for locks, and when a single lock is read: as often as one per cent of a
//! server's time allows, and not more often than a person can see. Pure.
//!
//! A search costs a server about a fifth of what it costs to read all locks that it finds. So new locks
//! are noticed sooner than changes of old ones. Single locks are read while a round of the search is
//! long: among many keys, or on busy servers, it may take many times as long as a lock may stay unread.
//! Names that the nodes tell of and that the list does not have are read directly, too.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::row::{LockRow, RowKey, RowPart};

/// The shortest time between two searches, and between two readings of a lock.
const SHORTEST: Duration = Duration::from_millis(250);
/// The longest time between two searches.
const LONGEST_SEARCH: Duration = Duration::from_secs(2);
/// What a search costs a server for each lock, times 250.
const SEARCH_FOR_EACH: Duration = Duration::from_millis(1);
/// What the reading of a lock costs a server, times 250.
const READ_FOR_EACH: Duration = Duration::from_millis(5);

/// The time from the beginning of a round that found `locks` to the beginning of the next one. Twice
/// as long if the nodes tell of new locks, which costs them about as much as that saves.
pub(super) fn search_interval(locks: usize, told_of_new: bool) -> Duration {
    let times = if told_of_new { 2 } else { 1 };
    let interval = SEARCH_FOR_EACH.saturating_mul(count(locks).saturating_mul(times));
    interval.clamp(SHORTEST, LONGEST_SEARCH)
}

/// The time after which a lock is read again, if there are `locks` of them.
pub(super) fn read_interval(locks: usize) -> Duration {
    READ_FOR_EACH.saturating_mul(count(locks)).max(SHORTEST)
}

/// How long a lock may stay unread while a round of the search goes on, if there are `locks` of them.
pub(super) fn longest_unread(locks: usize) -> Duration {
    let interval = read_interval(locks).saturating_mul(2);
    interval.max(LONGEST_SEARCH)
}

/// The pause after a lock was read directly.
pub(super) fn pause_of_a_read() -> Duration {
    READ_FOR_EACH
}

fn count(locks: usize) -> u32 {
    u32::try_from(locks).unwrap_or(u32::MAX)
}

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
        (age >= longest_unread(self.0.len())).then(|| name.clone())
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

/// The most names that wait to be read. The search finds the others.
const NAMES_MAX: usize = 1_000;
/// A name that was free when it was read is not read again before this.
const AGAIN_AFTER_MS: u64 = 500;

/// Names that the nodes tell of and that the list does not have.
#[derive(Debug, Default)]
pub(super) struct NewNames {
    /// When each name is to be read.
    due_ms: BTreeMap<String, u64>,
    /// When each name was read, lately.
    read_ms: HashMap<String, u64>,
}

impl NewNames {
    /// Notes that the nodes told of `names` at `now_ms`.
    pub(super) fn note(
        &mut self,
        names: impl IntoIterator<Item = String>,
        list: &BTreeMap<RowKey, Arc<LockRow>>,
        now_ms: u64,
    ) {
        for name in names {
            if self.due_ms.len() >= NAMES_MAX {
                return;
            }
            if !is_listed(list, &name) {
                let read_ms = self.read_ms.get(&name);
                let due_ms = read_ms.map_or(now_ms, |read_ms| read_ms + AGAIN_AFTER_MS);
                self.due_ms.entry(name).or_insert(due_ms);
            }
        }
    }

    /// The next name to read, which counts as read then.
    pub(super) fn due(
        &mut self,
        list: &BTreeMap<RowKey, Arc<LockRow>>,
        now_ms: u64,
    ) -> Option<String> {
        self.read_ms
            .retain(|_, read_ms| *read_ms + AGAIN_AFTER_MS > now_ms);
        self.due_ms.retain(|name, _| !is_listed(list, name));
        let next = self.due_ms.iter().min_by_key(|(_, due_ms)| **due_ms);
        let (name, _) = next.filter(|(_, due_ms)| **due_ms <= now_ms)?;
        let name = name.clone();
        self.due_ms.remove(&name);
        self.read_ms.insert(name.clone(), now_ms);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::held;

    #[test]
    fn few_locks_are_looked_at_often_and_many_less_often() {
        let ms = Duration::from_millis;
        for (locks, search, search_if_told, read) in [
            (0, ms(250), ms(250), ms(250)),
            (50, ms(250), ms(250), ms(250)),
            (400, ms(400), ms(800), ms(2_000)),
            (1_000, ms(1_000), ms(2_000), ms(5_000)),
            (20_000, ms(2_000), ms(2_000), ms(100_000)),
        ] {
            assert_eq!(search_interval(locks, false), search);
            assert_eq!(search_interval(locks, true), search_if_told);
            assert_eq!(read_interval(locks), read);
        }
    }

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

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_name_that_is_not_in_the_list_is_read_once() {
        let (mut new, list) = (NewNames::default(), list(&["known"]));
        new.note(names(&["known", "new"]), &list, 100);
        assert_eq!(new.due(&list, 100).as_deref(), Some("new"));
        assert_eq!(new.due(&list, 100), None);
    }

    #[test]
    fn a_name_that_the_search_finds_meanwhile_is_not_read() {
        let mut new = NewNames::default();
        new.note(names(&["new"]), &list(&[]), 100);
        assert_eq!(new.due(&list(&["new"]), 100), None);
        assert_eq!(new.due(&list(&[]), 100), None);
    }

    #[test]
    fn a_name_that_is_taken_again_and_again_is_read_twice_a_second() {
        let (mut new, list) = (NewNames::default(), list(&[]));
        let mut reads = 0;
        for now_ms in 0..10_000 {
            new.note(names(&["busy"]), &list, now_ms);
            reads += u32::from(new.due(&list, now_ms).is_some());
        }
        assert_eq!(reads, 20);
    }

    #[test]
    fn the_name_that_was_told_of_first_is_read_first_and_too_many_are_left_to_the_search() {
        let (mut new, list) = (NewNames::default(), list(&[]));
        new.note(names(&["z"]), &list, 1);
        new.note((0..2 * NAMES_MAX).map(|n| format!("a{n}")), &list, 2);
        assert_eq!(new.due(&list, 2).as_deref(), Some("z"));
        let rest = std::iter::from_fn(|| new.due(&list, 2));
        assert_eq!(rest.count(), NAMES_MAX - 1);
    }
}
