//! Names that the nodes tell of and that the list does not have: they are read directly, because a
//! search among many keys finds them late. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::refresh::is_listed;
use super::rows::{LockRow, RowKey};

/// The most names that wait to be read. The search finds the others.
const NAMES_MAX: usize = 1_000;
/// A name that was free when it was read is not read again before this.
const AGAIN_AFTER_MS: u64 = 500;

/// See the module.
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
    use super::super::rows::tests::held;
    use super::*;

    fn list(names: &[&str]) -> BTreeMap<RowKey, Arc<LockRow>> {
        let rows = names.iter().map(|name| held(name, "id", 9_000, 0));
        rows.map(|row| (row.key(), Arc::new(row))).collect()
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
