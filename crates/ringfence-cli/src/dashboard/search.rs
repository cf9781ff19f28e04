//! The rolling search of the nodes for locks, round after round.
//!
//! A round finds all names. It reads those that are new, and those that were not read for a while
//! (`reading.rs`); what is known of the others stays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence::Locks;
use ringfence::admin::{ListError, ListStep, Listing};

use super::collector::Moments;
use super::reading;
use crate::row::{LockRow, RowKey, SeenName, millis};

/// The most rows that are kept, and about how many bytes of them. More would be too much for a page
/// and for this process.
const ROWS_MAX: usize = 20_000;
const ROWS_MAX_BYTES: usize = 32 << 20;

/// See the module.
pub(super) struct LockSearch {
    listing: Listing,
    moments: Moments,
    plan: Arc<Mutex<ReadPlan>>,
    /// What is known, from earlier rounds.
    known: BTreeMap<RowKey, LockRow>,
    /// What this round has read.
    found: BTreeMap<RowKey, LockRow>,
    /// About how many bytes that is.
    found_bytes: usize,
    began_ms: u64,
    shortened: bool,
}

/// Which names a round reads.
#[derive(Default)]
struct ReadPlan {
    /// When each name was last read.
    read_ms: HashMap<String, u64>,
    /// Names that were read before this are read again.
    due_before_ms: u64,
    /// Every name that this round found, and whether it reads it. It does not change its mind: the
    /// slots of a semaphore are found one by one.
    decided: HashMap<String, bool>,
}

impl ReadPlan {
    /// Whether the name, which was found, is to be read.
    fn decide(&mut self, name: &str) -> bool {
        if let Some(reads) = self.decided.get(name) {
            return *reads;
        }
        let last_ms = self.read_ms.get(name);
        let reads = last_ms.is_none_or(|last_ms| *last_ms <= self.due_before_ms);
        self.decided.insert(name.to_owned(), reads);
        reads
    }
}

/// What a step of the search found.
pub(super) struct SearchStep {
    /// The rows that were read in this step.
    pub(super) rows: Vec<LockRow>,
    /// The whole round, if this step was its last one.
    pub(super) round: Option<SearchRound>,
}

/// A complete round of the search.
pub(super) struct SearchRound {
    /// Every lock that existed during the whole round, and some that existed for a part of it.
    pub(super) rows: BTreeMap<RowKey, LockRow>,
    pub(super) began_ms: u64,
    /// Whether a majority of the nodes votes. Otherwise locks are missing, and what is missing is not
    /// known to be free.
    pub(super) has_quorum: bool,
    /// The names that were found and not read.
    pub(super) unread: HashSet<String>,
    /// Whether locks are missing because there are too many.
    pub(super) shortened: bool,
}

impl LockSearch {
    pub(super) fn new(locks: &Locks, moments: &Moments) -> Self {
        let plan = Arc::<Mutex<ReadPlan>>::default();
        let shared = Arc::clone(&plan);
        Self {
            listing: locks
                .list()
                .with_remnants()
                .only(move |name| lock(&shared).decide(name)),
            moments: moments.clone(),
            plan,
            known: BTreeMap::new(),
            found: BTreeMap::new(),
            found_bytes: 0,
            began_ms: moments.now_ms(),
            shortened: false,
        }
    }

    /// Begins a round now: the pause since the last one is no part of it.
    pub(super) fn begin(&mut self) {
        self.found.clear();
        (self.found_bytes, self.shortened) = (0, false);
        self.began_ms = self.moments.now_ms();
        let age = reading::read_interval(self.known.len());
        let age_ms = millis(age);
        let mut plan = lock(&self.plan);
        plan.decided.clear();
        plan.due_before_ms = self.began_ms.saturating_sub(age_ms);
    }

    /// The next step of the round. After a failure a new round begins.
    pub(super) async fn step(&mut self) -> Result<SearchStep, ListError> {
        let step = self.listing.step().await?;
        let mut rows = self.rows_of(&step);
        rows.retain(|row| self.keep(row));
        self.shortened |= step.is_shortened();
        let round = step.complete.then(|| self.end(step.has_quorum()));
        Ok(SearchStep { rows, round })
    }

    /// Keeps `row` if there is room for it.
    fn keep(&mut self, row: &LockRow) -> bool {
        let (key, bytes) = (row.key(), self.found_bytes + row.memory());
        let is_kept = bytes <= ROWS_MAX_BYTES
            && (self.found.len() < ROWS_MAX || self.found.contains_key(&key));
        if is_kept {
            self.found_bytes = bytes;
            self.found.insert(key, row.clone());
        }
        self.shortened |= !is_kept;
        is_kept
    }

    /// Ends the round: what it read, and what is known of the names that it found and did not read.
    fn end(&mut self, has_quorum: bool) -> SearchRound {
        let mut rows = std::mem::take(&mut self.found);
        let mut plan = lock(&self.plan);
        let now_ms = self.moments.now_ms();
        let ReadPlan {
            read_ms, decided, ..
        } = &mut *plan;
        read_ms.retain(|name, _| decided.contains_key(name));
        for (name, reads) in decided.iter() {
            if *reads {
                read_ms.insert(name.clone(), now_ms);
            }
        }
        let old = std::mem::take(&mut self.known).into_iter();
        let unread = decided.iter().filter(|(_, reads)| !**reads);
        let unread: HashSet<String> = unread.map(|(name, _)| name.clone()).collect();
        let mut bytes = self.found_bytes;
        for (key, row) in old.filter(|(key, _)| unread.contains(&key.name)) {
            bytes += row.memory();
            match rows.len() < ROWS_MAX && bytes <= ROWS_MAX_BYTES {
                true => drop(rows.insert(key, row)),
                false => self.shortened = true,
            }
        }
        drop(plan);
        self.known.clone_from(&rows);
        SearchRound {
            rows,
            began_ms: self.began_ms,
            has_quorum,
            unread,
            shortened: self.shortened,
        }
    }

    fn rows_of(&self, step: &ListStep) -> Vec<LockRow> {
        let now_ms = self.moments.now_ms();
        let rows = step.locks.iter();
        rows.flat_map(|listed| SeenName::listed(listed, now_ms).rows())
            .collect()
    }
}

fn lock(plan: &Mutex<ReadPlan>) -> MutexGuard<'_, ReadPlan> {
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_are_read_at_once_and_others_when_they_are_due() {
        let mut plan = ReadPlan {
            read_ms: HashMap::from([("old".to_owned(), 10), ("fresh".to_owned(), 90)]),
            due_before_ms: 50,
            ..ReadPlan::default()
        };
        assert!(plan.decide("new") && plan.decide("old") && !plan.decide("fresh"));
        // It was read meanwhile, and another part of it is found.
        plan.read_ms.insert("new".to_owned(), 100);
        assert!(plan.decide("new"));
    }
}
