//! The stream of events of one viewer: one JSON object per line, first everything, then what
//! changed.
//!
//! Every viewer compares the latest snapshot with the last one that it was sent. A viewer that reads
//! slowly skips snapshots, so it costs a bounded amount of memory.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use futures_core::Stream;
use ringfence::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::collector::Moments;
use super::snapshot::ClusterSnapshot;
use crate::row::{LockRow, RowKey};

/// A line is sent this often even if nothing changed, so that a page notices a lost connection.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct EventStream {
    next: Pin<Box<dyn Future<Output = (Bytes, Viewer)> + Send>>,
}

/// What one viewer was sent.
struct Viewer {
    snapshots: watch::Receiver<Arc<ClusterSnapshot>>,
    sent: Option<Arc<ClusterSnapshot>>,
    moments: Moments,
    clock: Clock,
    /// Its place among the viewers.
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    pub(super) fn new(
        snapshots: watch::Receiver<Arc<ClusterSnapshot>>,
        moments: Moments,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let viewer = Viewer {
            snapshots,
            sent: None,
            moments,
            clock: Clock::default(),
            _place: place,
        };
        Self {
            next: Box::pin(viewer.next()),
        }
    }
}

impl Stream for EventStream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (line, viewer) = std::task::ready!(self.next.as_mut().poll(context));
        self.next = Box::pin(viewer.next());
        Poll::Ready(Some(Ok(line)))
    }
}

impl Viewer {
    /// The next line, at the latest after [`HEARTBEAT`].
    async fn next(mut self) -> (Bytes, Self) {
        if self.sent.is_some() {
            let until = self.clock.now() + HEARTBEAT;
            tokio::select! {
                _ = self.snapshots.changed() => {}
                () = self.clock.sleep_until(until) => {}
            }
        }
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        let line = event(self.sent.as_deref(), &snapshot, self.moments.now_ms());
        self.sent = Some(snapshot);
        (Bytes::from(line), self)
    }
}

/// The line that turns what was `sent` into `snapshot`.
fn event(sent: Option<&ClusterSnapshot>, snapshot: &ClusterSnapshot, now_ms: u64) -> String {
    let none = BTreeMap::new();
    let before = sent.map_or(&none, |sent| &sent.rows);
    let changed: Vec<&LockRow> = changed(before, &snapshot.rows);
    let gone = before.keys().filter(|key| !snapshot.rows.contains_key(key));
    let gone: Vec<Value> = gone
        .map(|key| json!({"name": key.name, "part": key.part}))
        .collect();
    let mut value = json!({
        "event": if sent.is_none() { "all" } else { "change" },
        "cluster": snapshot.cluster(now_ms),
        "changed": changed,
        "gone": gone,
    });
    if sent.is_some_and(|sent| Arc::ptr_eq(&sent.nodes, &snapshot.nodes)) {
        // Nothing new of the nodes.
        if let Some(cluster) = value["cluster"].as_object_mut() {
            cluster.remove("nodes");
        }
    }
    format!("{value}\n")
}

fn changed<'a>(
    before: &BTreeMap<RowKey, Arc<LockRow>>,
    now: &'a BTreeMap<RowKey, Arc<LockRow>>,
) -> Vec<&'a LockRow> {
    let is_new = |(key, row): &(&RowKey, &Arc<LockRow>)| {
        let known = before.get(key);
        known.is_none_or(|known| !Arc::ptr_eq(known, row))
    };
    now.iter().filter(is_new).map(|(_, row)| &**row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::held;

    fn snapshot(rows: &[&Arc<LockRow>]) -> ClusterSnapshot {
        ClusterSnapshot {
            rows: rows
                .iter()
                .map(|row| (row.key(), Arc::clone(row)))
                .collect(),
            ..ClusterSnapshot::default()
        }
    }

    #[test]
    fn the_first_event_has_everything_and_the_next_ones_what_changed() {
        let [a, b, c] = ["a", "b", "c"].map(|name| Arc::new(held(name, "x", 9, 1)));
        let first = snapshot(&[&a, &b]);
        let names = |value: &Value| -> Vec<String> {
            let rows = value.as_array().unwrap();
            rows.iter()
                .map(|row| row["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let line: Value = serde_json::from_str(&event(None, &first, 5)).unwrap();
        assert_eq!(
            (&line["event"], names(&line["changed"])),
            (&json!("all"), vec!["a".into(), "b".into()])
        );
        let new = Arc::new(held("b", "y", 9, 1));
        let line = event(Some(&first), &snapshot(&[&a, &new, &c]), 5);
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(names(&line["changed"]), ["b", "c"]);
        assert_eq!(names(&line["gone"]), [""; 0]);
        let line: Value = serde_json::from_str(&event(Some(&first), &snapshot(&[&b]), 5)).unwrap();
        assert_eq!(
            (names(&line["changed"]).len(), names(&line["gone"])),
            (0, vec!["a".into()])
        );
    }
}
