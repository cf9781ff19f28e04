//! Inspects the names that a search found: what a majority of the nodes has of them.

use std::sync::Arc;
use std::time::Duration;

use crate::message::Claim;
use crate::name::Name;
use crate::protocol::quorum;

use super::super::error::{InspectError, ListError};
use super::super::inspect::{claims_of, majority};
use super::super::inspection::{Inspection, LockState};
use super::super::{Locks, PERMITS_MAX};
use super::{ListedLock, UnreadableName};

/// How many names one request inspects: a fraction of a millisecond of a server. If all of them had
/// as many readers as a reply lists, the reply would still be within its limits.
pub(super) const NAMES_AT_ONCE: usize = 48;

/// How many keys one step inspects: a name that a hostile node makes up may have a semaphore with
/// hundreds of slots.
pub(super) const KEYS_AT_ONCE: usize = 16 * NAMES_AT_ONCE;

/// Between two requests to several nodes there is a pause, as long as the request took but no longer
/// than this.
const PAUSE_MAX: Duration = Duration::from_millis(60);

/// Which parts of a name were found: the lock, the semaphore, the latch.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    given: Arc<str>,
    lock: bool,
    /// The semaphore was found, and how many of its slots are to be inspected.
    slots: Option<u32>,
    latch: bool,
}

impl Parts {
    pub(super) fn new(given: Arc<str>) -> Self {
        Self {
            given,
            lock: false,
            slots: None,
            latch: false,
        }
    }

    /// Adds the part at `key`. Returns whether it is new.
    pub(super) fn add(&mut self, key: &Name) -> bool {
        match key.part_word() {
            None => !std::mem::replace(&mut self.lock, true),
            Some("latch") => !std::mem::replace(&mut self.latch, true),
            // An admission record.
            Some(_) => {
                let slots = key.slot_number().map_or(0, |slot| slot.saturating_add(1));
                if slots > PERMITS_MAX {
                    return false;
                }
                let before = self.slots.replace(self.slots.unwrap_or(0).max(slots));
                before.is_none_or(|before| before < slots)
            }
        }
    }

    /// How many keys [`Parts::keys`] has.
    pub(super) fn key_count(&self) -> usize {
        let slots = self.slots.map_or(0, |slots| slots as usize + 1);
        usize::from(self.lock) + usize::from(self.latch) + slots
    }

    /// The keys to be inspected: of the lock, of the latch, of the admission record, and of the
    /// slots.
    fn keys(&self, name: &Name) -> Vec<Name> {
        let lock = self.lock.then(|| name.clone());
        let latch = self.latch.then(|| name.latch());
        let admission = self.slots.map(|_| name.admission());
        let slots = (0..self.slots.unwrap_or(0)).map(|slot| name.slot(slot));
        lock.into_iter()
            .chain(latch)
            .chain(admission)
            .chain(slots)
            .collect()
    }
}

impl Locks {
    /// Inspects `names`. Leaves out those that are free by now, and without `remnants` those that
    /// only a minority of the nodes has.
    ///
    /// `searched` tells which nodes could be searched. They answer, so if one of them refuses to
    /// show a name, that is because of the name.
    pub(super) async fn read(
        &self,
        names: Vec<(Parts, Name)>,
        searched: &[bool],
        remnants: bool,
    ) -> Result<(Vec<ListedLock>, Vec<UnreadableName>), ListError> {
        let keys = names.iter().flat_map(|(parts, name)| parts.keys(name));
        let keys: Vec<Name> = keys.collect();
        let mut seen = self.inspect_keys(&keys, searched).await?.into_iter();
        let (mut locks, mut unreadable) = (Vec::new(), Vec::new());
        for (parts, name) in names {
            let count = parts.key_count();
            let seen: Result<Vec<_>, _> = seen.by_ref().take(count).collect();
            match seen {
                Ok(seen) => locks.extend(self.listed(&parts, &name, seen, remnants)),
                Err(error) => unreadable.push(UnreadableName {
                    name: parts.given.to_string(),
                    error,
                }),
            }
        }
        Ok((locks, unreadable))
    }

    /// The list's entry for `name`, from the views of its keys; `None` if it is free.
    fn listed(
        &self,
        parts: &Parts,
        name: &Name,
        seen: Vec<Inspection>,
        remnants: bool,
    ) -> Option<ListedLock> {
        let clock = &self.runtime().sender.clock;
        let mut seen = seen.into_iter();
        let lock = seen.by_ref().take(usize::from(parts.lock)).next();
        let latch = seen.by_ref().take(usize::from(parts.latch)).next();
        let semaphore = seen.next().and_then(|admission| {
            majority::semaphore(name.to_string(), &admission, seen.collect())
        });
        let listed = ListedLock {
            name: parts.given.to_string(),
            lock: lock.filter(|lock| is_listed(lock, remnants)),
            semaphore: semaphore.filter(|one| {
                let mut slots = one.slots.iter();
                one.waiting > 0 || slots.any(|slot| is_listed(slot, false))
            }),
            latch: latch.and_then(|latch| majority::latch(&latch)),
            read_at: clock.now(),
            clock: clock.clone(),
        };
        let is_listed =
            listed.lock.is_some() || listed.semaphore.is_some() || listed.latch.is_some();
        is_listed.then_some(listed)
    }

    /// A majority's view of each key. Keys that the nodes refuse to show do not hide the others.
    async fn inspect_keys(
        &self,
        keys: &[Name],
        searched: &[bool],
    ) -> Result<Vec<Result<Inspection, InspectError>>, ListError> {
        let clock = &self.runtime().sender.clock;
        let mut ready = clock.now();
        let mut views = Vec::with_capacity(keys.len());
        // The ranges still to be inspected, the first one last.
        let mut todo: Vec<&[Name]> = keys.chunks(NAMES_AT_ONCE).rev().collect();
        while let Some(range) = todo.pop() {
            let claims: Arc<[Claim]> = claims_of(range.iter().cloned());
            // One node that makes up names must not make us occupy the others.
            if self.node_names().len() > 1 {
                clock.sleep_until(ready).await;
            }
            let asked = clock.now();
            let look = self.look_at(claims).await;
            let answered = clock.now();
            ready = answered + answered.since(asked).min(PAUSE_MAX);
            let refuses = |(node, searched): (usize, &bool)| *searched && look.refused(node);
            let is_refused = look.answered() < quorum(searched.len())
                && searched.iter().enumerate().any(refuses);
            let shown = |at: usize| Name::to_string(&range[at]);
            match range {
                _ if !is_refused && look.answered() == 0 => {
                    return Err(ListError::NoQuorum {
                        votes: look.votes(),
                    });
                }
                _ if !is_refused => {
                    let seen = (0..range.len()).map(|at| look.of_claim(at, shown(at)));
                    views.extend(seen.map(Ok));
                }
                [_] => views.push(Err(InspectError::NoQuorum {
                    name: shown(0),
                    votes: look.votes(),
                })),
                _ => {
                    let (first, second) = range.split_at(range.len() / 2);
                    todo.extend([second, first]);
                }
            }
        }
        Ok(views)
    }
}

/// Whether a list shows the lock: it is held or queued for, or that is unknown and a node has a
/// holder. With `remnants` also if a minority has one.
fn is_listed(lock: &Inspection, remnants: bool) -> bool {
    let is_held = match lock.state {
        LockState::Held => true,
        LockState::Free => remnants && !lock.reported.is_empty(),
        LockState::Unknown => !lock.reported.is_empty(),
    };
    is_held || lock.waiting > 0
}
