//! Reads the nodes for all viewers, and publishes what it saw. Nothing is written to the nodes.
//!
//! Four loops run beside each other, so that a node that hangs delays only what needs it: the state
//! of the nodes, the list of locks, single locks that the list is slow to find or to read again, and
//! the slow facts (memory, Sentinels).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence::Locks;
use ringfence::admin::{ChangedNames, ListError, NodeStatus};
use ringfence::clock::{Clock, Timestamp};
use tokio::sync::watch;

use super::cards::{self, ExaminedParts};
use super::reading::{self, NewNames, ReadTimes};
use super::search::{LockSearch, SearchStep};
use super::snapshot::{ClusterSnapshot, ListState};
use super::timeline::{SeenCard, Timeline};
use crate::report::with_causes;
use crate::row::{LockRow, RowKey, SeenName};

/// How often the nodes are asked how they are.
const NODES_EVERY: Duration = Duration::from_secs(1);
/// How often they are examined. An examination makes a connection of its own.
const EXAMINED_EVERY: Duration = Duration::from_secs(20);

/// Our own clock, in milliseconds since the dashboard began.
#[derive(Debug, Clone)]
pub(super) struct Moments {
    clock: Clock,
    began: Timestamp,
}

impl Moments {
    fn begin() -> Self {
        let clock = Clock::default();
        let began = clock.now();
        Self { clock, began }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.of(self.clock.now())
    }

    pub(super) fn of(&self, at: Timestamp) -> u64 {
        u64::try_from(at.since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

/// What the collector publishes.
#[derive(Debug, Clone)]
pub(super) struct Published {
    pub(super) snapshots: watch::Receiver<Arc<ClusterSnapshot>>,
    pub(super) timeline: Arc<Mutex<Timeline>>,
    pub(super) moments: Moments,
}

impl Published {
    pub(super) fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub(super) struct ClusterCollector {
    locks: Locks,
    /// Names that the nodes tell of, before the list finds them.
    changed: ChangedNames,
    /// The URLs of the nodes, for examinations.
    urls: String,
    snapshots: watch::Sender<Arc<ClusterSnapshot>>,
    published: Published,
    /// The slow facts of each node, in node order.
    examined: Mutex<Vec<ExaminedParts>>,
    read_times: Mutex<ReadTimes>,
}

impl ClusterCollector {
    /// A collector that has seen nothing yet, and what it will publish.
    pub(super) fn new(locks: Locks, urls: &str) -> (Self, Published) {
        let (snapshots, receiver) = watch::channel(Arc::default());
        let published = Published {
            snapshots: receiver,
            timeline: Arc::default(),
            moments: Moments::begin(),
        };
        let collector = Self {
            changed: locks.changed_names(),
            locks,
            urls: urls.to_owned(),
            snapshots,
            published: published.clone(),
            examined: Mutex::default(),
            read_times: Mutex::default(),
        };
        (collector, published)
    }

    /// Collects for ever.
    pub(super) async fn run(&self) {
        tokio::join!(
            self.watch_nodes(),
            self.watch_locks(),
            self.refresh_locks(),
            self.examine_nodes()
        );
    }

    async fn watch_nodes(&self) {
        loop {
            let next = self.clock().now() + NODES_EVERY;
            let nodes = self.locks.nodes().await;
            self.saw_nodes(&nodes);
            self.clock().sleep_until(next).await;
        }
    }

    fn saw_nodes(&self, nodes: &[NodeStatus]) {
        let at_ms = self.published.moments.now_ms();
        let cards = cards::cards(nodes, &self.examined(), at_ms);
        for (index, card) in cards.iter().enumerate() {
            let seen = SeenCard { state: card.state };
            self.published.timeline().saw_node(index, at_ms, seen);
        }
        let answered = nodes.iter().any(|node| node.facts.is_ok());
        self.publish(|snapshot| {
            snapshot.nodes = cards.into();
            if answered {
                snapshot.nodes_seen_ms = Some(at_ms);
            }
        });
    }

    fn examined(&self) -> MutexGuard<'_, Vec<ExaminedParts>> {
        self.examined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch_locks(&self) {
        let mut search = LockSearch::new(&self.locks, &self.published.moments);
        loop {
            let began = self.clock().now();
            search.begin();
            let rows = self.search_round(&mut search).await;
            let interval = reading::search_interval(rows, self.changed.covers_all());
            self.clock().sleep_until(began + interval).await;
        }
    }

    /// One round of the search, also if no node answers. Returns the number of rows.
    async fn search_round(&self, search: &mut LockSearch) -> usize {
        match self.search_once(search).await {
            Ok(rows) => rows,
            Err(error) => {
                let problem = with_causes(&error);
                self.publish(|snapshot| {
                    snapshot.list.problem = Some(problem);
                    snapshot.rows = unknown_beside(snapshot, BTreeMap::new());
                });
                self.snapshots.borrow().rows.len()
            }
        }
    }

    /// Looks at the nodes and at the locks once.
    #[cfg(test)]
    pub(super) async fn collect_once(&self) {
        self.saw_nodes(&self.locks.nodes().await);
        let mut search = LockSearch::new(&self.locks, &self.published.moments);
        search.begin();
        self.search_round(&mut search).await;
    }

    /// One round of the search. Returns the number of rows.
    async fn search_once(&self, search: &mut LockSearch) -> Result<usize, ListError> {
        loop {
            let SearchStep { rows, round } = search.step().await?;
            self.published.timeline().saw_rows(&rows);
            self.read_times().note(&rows);
            let Some(round) = round else {
                // A round among many keys takes long. What it finds is shown at once.
                if !rows.is_empty() {
                    self.publish(|snapshot| {
                        let before = std::mem::take(&mut snapshot.rows);
                        let new = steady(&before, rows);
                        snapshot.rows = before;
                        snapshot.rows.extend(new);
                    });
                }
                continue;
            };
            let ended_ms = self.published.moments.now_ms();
            let count = round.rows.len();
            if !round.has_quorum {
                self.publish(|snapshot| {
                    let rows = newest(&snapshot.rows, round.rows, round.began_ms);
                    let rows = steady(&snapshot.rows, rows);
                    snapshot.rows = unknown_beside(snapshot, rows);
                    let problem = "no majority of the nodes votes".to_owned();
                    snapshot.list.problem = Some(problem);
                });
                return Ok(count);
            }
            // What is missing in a list that is not complete is not known to be free.
            if !round.shortened {
                self.published
                    .timeline()
                    .saw_round(round.began_ms, ended_ms, &round.unread);
            }
            self.publish(|snapshot| {
                let rows = newest(&snapshot.rows, round.rows, round.began_ms);
                snapshot.rows = steady(&snapshot.rows, rows);
                snapshot.list = ListState {
                    began_ms: Some(round.began_ms),
                    ended_ms: Some(ended_ms),
                    shortened: round.shortened,
                    problem: None,
                };
            });
            return Ok(count);
        }
    }

    /// Reads the locks that the search has not found yet, and those that it has not read for too long.
    async fn refresh_locks(&self) {
        let mut new_names = NewNames::default();
        loop {
            let list = Arc::clone(&self.snapshots.borrow());
            let now_ms = self.published.moments.now_ms();
            new_names.note(self.changed.take(), &list.rows, now_ms);
            let new = new_names.due(&list.rows, now_ms);
            let due = new.or_else(|| self.read_times().due(&list.rows, now_ms));
            if let Some(name) = due {
                self.refresh(&name).await;
                let pause = reading::pause_of_a_read();
                self.clock().sleep_until(self.clock().now() + pause).await;
                continue;
            }
            let pause = self.clock().now() + NODES_EVERY / 4;
            tokio::select! {
                names = self.changed.next() => new_names.note(names, &list.rows, now_ms),
                () = self.clock().sleep_until(pause) => {}
            }
        }
    }

    async fn refresh(&self, name: &str) {
        let seen = self.locks.inspect_all(name).await;
        let at_ms = self.published.moments.now_ms();
        self.read_times().note_name(name, at_ms);
        let Ok(seen) = seen else {
            // The list tells of the nodes that do not answer.
            return;
        };
        let rows = SeenName::inspected(&seen, at_ms).rows();
        self.published.timeline().saw_rows(&rows);
        self.read_times().note(&rows);
        self.publish(|snapshot| {
            let rows = steady(&snapshot.rows, rows);
            let rows = match seen.lock.has_quorum() {
                true => rows,
                false => {
                    let mut all = unknown_beside(snapshot, rows);
                    all.retain(|key, _| key.name == name);
                    all
                }
            };
            reading::replace(&mut snapshot.rows, name, rows);
        });
    }

    fn read_times(&self) -> MutexGuard<'_, ReadTimes> {
        let times = self.read_times.lock();
        times.unwrap_or_else(PoisonError::into_inner)
    }

    async fn examine_nodes(&self) {
        loop {
            let next = self.clock().now() + EXAMINED_EVERY;
            let examined = Locks::builder().nodes(&self.urls).examine(None).await;
            match examined {
                Ok(nodes) => {
                    *self.examined() = cards::examined(&nodes);
                }
                Err(error) => {
                    tracing::debug!(target: "ringfence", %error, "the nodes were not examined");
                }
            }
            self.clock().sleep_until(next).await;
        }
    }

    fn publish(&self, change: impl FnOnce(&mut ClusterSnapshot)) {
        let at_ms = self.published.moments.now_ms();
        self.snapshots.send_modify(|snapshot| {
            let mut next = ClusterSnapshot::clone(snapshot);
            next.at_ms = at_ms;
            change(&mut next);
            *snapshot = Arc::new(next);
        });
    }

    fn clock(&self) -> &Clock {
        &self.published.moments.clock
    }
}

/// The rows of a round that began at `began_ms`. What was read directly since then is newer than the
/// round.
fn newest(
    shown: &BTreeMap<RowKey, Arc<LockRow>>,
    mut round: BTreeMap<RowKey, LockRow>,
    began_ms: u64,
) -> impl Iterator<Item = LockRow> {
    for (key, row) in shown {
        let found_ms = round.get(key).map_or(began_ms, |found| found.seen_ms);
        if row.seen_ms > found_ms {
            round.insert(key.clone(), LockRow::clone(row));
        }
    }
    round.into_values()
}

/// `rows`, which too few nodes know, and the rows that were shown before and are not among them.
/// Those may be held on the other nodes.
fn unknown_beside(
    snapshot: &ClusterSnapshot,
    mut rows: BTreeMap<RowKey, Arc<LockRow>>,
) -> BTreeMap<RowKey, Arc<LockRow>> {
    for (key, row) in &snapshot.rows {
        if !rows.contains_key(key) {
            let unknown = row.unknown(snapshot.marks());
            let is_same = unknown.is_like(row);
            let row = if is_same {
                Arc::clone(row)
            } else {
                Arc::new(unknown)
            };
            rows.insert(key.clone(), row);
        }
    }
    rows
}

/// The new rows by their keys. A row that shows what it showed `before` is the same row, so that
/// viewers are not sent it again.
fn steady(
    before: &BTreeMap<RowKey, Arc<LockRow>>,
    rows: impl IntoIterator<Item = LockRow>,
) -> BTreeMap<RowKey, Arc<LockRow>> {
    let rows = rows.into_iter().map(|row| {
        let key = row.key();
        let row = match before.get(&key) {
            None => Arc::new(row),
            Some(old) => {
                let row = row.after(old);
                match row.is_like(old) {
                    true => Arc::clone(old),
                    false => Arc::new(row),
                }
            }
        };
        (key, row)
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::held;

    #[test]
    fn what_was_read_directly_since_a_round_began_is_newer_than_the_round() {
        let rows = |seen: &[(&str, u64)]| {
            let rows = seen.iter().map(|(name, ms)| held(name, "id", 9_000, *ms));
            rows.map(|row| (row.key(), row)).collect::<BTreeMap<_, _>>()
        };
        let shown = rows(&[("again", 300), ("gone", 100), ("late", 300), ("old", 50)]);
        let shown = shown.into_iter().map(|(key, row)| (key, Arc::new(row)));
        let shown = shown.collect();
        let round = rows(&[("again", 200), ("old", 200)]);
        let kept = newest(&shown, round, 150);
        let kept: Vec<_> = kept.map(|row| (row.name, row.seen_ms)).collect();
        let expected = [("again", 300), ("late", 300), ("old", 200)];
        assert_eq!(kept, expected.map(|(name, ms)| (name.to_owned(), ms)));
    }
}
