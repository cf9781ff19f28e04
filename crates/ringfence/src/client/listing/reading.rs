//! Inspects the names that a search found: what a majority of the nodes has of them.

use std::sync::Arc;
use std::time::Duration;

use crate::message::Claim;
use crate::name::Name;
use crate::node::CallError;
use crate::protocol::Vote;

use super::super::error::{InspectError, ListError};
use super::super::inspect::{claims_of, majority};
use super::super::inspection::Inspection;
use super::super::{Locks, PERMITS_MAX};
use super::{ListedLock, UnreadableName};

/// How many names one request inspects: a fraction of a millisecond of a server. If all of them had
/// as many readers as a reply lists, the reply would still be within its limits.
pub(super) const NAMES_AT_ONCE: usize = 48;

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
    pub(super) async fn read(
        &self,
        names: Vec<(Parts, Name)>,
        remnants: bool,
    ) -> Result<(Vec<ListedLock>, Vec<UnreadableName>), ListError> {
        let keys = names.iter().flat_map(|(parts, name)| parts.keys(name));
        let keys: Vec<Name> = keys.collect();
        let mut seen = self.inspect_keys(&keys).await?.into_iter();
        let (mut locks, mut unreadable) = (Vec::new(), Vec::new());
        for (parts, name) in names {
            let count = parts.keys(&name).len();
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
            lock: lock
                .filter(|lock| lock.held || lock.waiting > 0 || remnants && is_on_some_node(lock)),
            semaphore: semaphore.filter(|one| one.taken() > 0 || one.waiting > 0),
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
            let shown = |at: usize| Name::to_string(&range[at]);
            let seen: Result<Vec<_>, _> = (0..range.len())
                .map(|at| look.of_claim(at, shown(at)))
                .collect();
            match seen {
                Ok(seen) => views.extend(seen.into_iter().map(Ok)),
                Err(error) if !is_refused(&error) => return Err(no_quorum(error)),
                Err(error) if range.len() == 1 => views.push(Err(error)),
                Err(_) => {
                    let (first, second) = range.split_at(range.len() / 2);
                    todo.extend([second, first]);
                }
            }
        }
        Ok(views)
    }
}

fn is_on_some_node(lock: &Inspection) -> bool {
    let views = lock.nodes.iter().filter_map(|node| node.view.as_ref().ok());
    views.into_iter().any(|view| view.holder.is_some())
}

/// Whether a node refused to show a name, as it does if its user may not read it.
fn is_refused(error: &InspectError) -> bool {
    let votes = error.votes().into_iter().flat_map(|votes| votes.iter());
    let mut votes = votes.map(|vote| &vote.vote);
    votes.any(|vote| matches!(vote, Vote::Failed(CallError::Refused(_))))
}

fn no_quorum(error: InspectError) -> ListError {
    match error {
        InspectError::NoQuorum { votes, .. } => ListError::NoQuorum { votes },
        InspectError::Invalid(error) => ListError::Invalid(error),
    }
}
