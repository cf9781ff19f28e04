//! The rolling search of the nodes for locks, round after round.

use std::collections::BTreeMap;

use ringfence::{ListError, ListStep, Listing, Locks};

use super::collector::Moments;
use super::rows::{LockRow, RowKey, SeenName};

/// The most rows that are kept. More would be too much for a page and for this process.
const ROWS_MAX: usize = 20_000;

/// See the module.
pub(super) struct LockSearch {
    listing: Listing,
    moments: Moments,
    /// What this round has found.
    found: BTreeMap<RowKey, LockRow>,
    began_ms: u64,
    shortened: bool,
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
    /// Whether locks are missing because there are too many.
    pub(super) shortened: bool,
}

impl LockSearch {
    pub(super) fn new(locks: &Locks, moments: &Moments) -> Self {
        Self {
            listing: locks.list().with_remnants(),
            moments: moments.clone(),
            found: BTreeMap::new(),
            began_ms: moments.now_ms(),
            shortened: false,
        }
    }

    /// Begins a round now: the pause since the last one is no part of it.
    pub(super) fn begin(&mut self) {
        self.found.clear();
        self.shortened = false;
        self.began_ms = self.moments.now_ms();
    }

    /// The next step of the round. After a failure a new round begins.
    pub(super) async fn step(&mut self) -> Result<SearchStep, ListError> {
        let step = self.listing.step().await?;
        let rows = self.rows_of(&step);
        for row in &rows {
            let key = row.key();
            if self.found.len() < ROWS_MAX || self.found.contains_key(&key) {
                self.found.insert(key, row.clone());
            } else {
                self.shortened = true;
            }
        }
        let round = step.complete.then(|| SearchRound {
            rows: std::mem::take(&mut self.found),
            began_ms: self.began_ms,
            shortened: self.shortened,
        });
        Ok(SearchStep { rows, round })
    }

    fn rows_of(&self, step: &ListStep) -> Vec<LockRow> {
        let now_ms = self.moments.now_ms();
        let rows = step.locks.iter().flat_map(|listed| {
            let age_ms = u64::try_from(listed.age().as_millis()).unwrap_or(u64::MAX);
            let named = SeenName {
                name: &listed.name,
                lock: listed.lock.as_ref(),
                semaphore: listed.semaphore.as_ref(),
                latch: listed.latch.as_ref(),
                at_ms: now_ms.saturating_sub(age_ms),
            };
            named.rows()
        });
        rows.collect()
    }
}
