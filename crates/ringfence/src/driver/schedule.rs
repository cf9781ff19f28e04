//! What is due when, for one client: a sorted map behind a mutex, so that taking and releasing a
//! lock costs two short insertions and no message to a task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::message::{Claim, Mode};
use crate::time::Timestamp;

use super::hold::Hold;
use super::lock;
use super::strays::Strays;
use super::withdraw::Withdrawing;

/// What is due when.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    entries: Mutex<Entries>,
    /// Something is due earlier than the keeper thinks, or the client is gone.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    map: BTreeMap<Key, Due>,
    next: u64,
}

/// Where an entry stands; needed to take it out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Timestamp, u64);

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    /// A hold is to be renewed, or has reached its deadline.
    Hold(Arc<Hold>),
    /// A release or undo has to be looked at.
    Withdrawal(Arc<Withdrawing>),
    /// Nodes that have not said which slot they gave have had their time.
    Strays(Arc<Strays>),
    /// Those who wait in line have to show that they still do.
    Line,
}

impl Schedule {
    /// Has `due` done at `at`.
    pub(crate) fn insert(&self, at: Timestamp, due: Due) -> Key {
        let mut entries = lock(&self.entries);
        let earliest = entries.map.first_key_value().map(|(key, _)| key.0);
        entries.next += 1;
        let key = Key(at, entries.next);
        entries.map.insert(key, due);
        drop(entries);
        if earliest.is_none_or(|earliest| at < earliest) {
            self.changed.notify_one();
        }
        key
    }

    /// Takes an entry out before it is due.
    pub(crate) fn remove(&self, key: Key) {
        // Dropped after the lock is: what was due may itself come back here when it is dropped.
        let removed = lock(&self.entries).map.remove(&key);
        drop(removed);
    }

    /// The next thing that is due at `now`.
    pub(crate) fn pop(&self, now: Timestamp) -> Option<Due> {
        let mut entries = lock(&self.entries);
        let first = entries.map.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the next thing is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let entries = lock(&self.entries);
        entries.map.first_key_value().map(|(key, _)| key.0)
    }

    /// A hold of this client that is in the way of any of `claims`. Looks through all of them: for warnings only.
    pub(crate) fn hold_of(&self, claims: &[Claim]) -> Option<Arc<Hold>> {
        let entries = lock(&self.entries);
        entries.map.values().find_map(|due| match due {
            Due::Hold(hold) => {
                let ours = &hold.traces().claims;
                let clash = |a: &Claim, b: &Claim| {
                    a.name == b.name && (a.mode, b.mode) != (Mode::Shared, Mode::Shared)
                };
                let same = ours.iter().any(|a| claims.iter().any(|b| clash(a, b)));
                same.then(|| Arc::clone(hold))
            }
            Due::Withdrawal(_) | Due::Strays(_) | Due::Line => None,
        })
    }

    /// Completes when the earliest entry may have changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Has the keeper look again.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
    }
}
