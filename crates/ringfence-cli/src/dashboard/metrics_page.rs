//! `/metrics`: the cluster in Prometheus' text format. Labels are nodes and fixed words, never the
//! names of locks, so the number of series is bounded.

use std::fmt::{Display, Write};

use ringfence::LockState;

use super::cards::{CardState, NodeCard};
use super::rows::RowKind;
use super::snapshot::ClusterSnapshot;

/// The page at `now_ms`.
pub(super) fn page(snapshot: &ClusterSnapshot, now_ms: u64) -> String {
    let mut page = MetricsPage::default();
    let counts = snapshot.counts();
    let states =
        CardState::ALL.map(|state| (label("state", state.word()), snapshot.in_state(state)));
    page.gauge("nodes", "Nodes by how they take part.", states);
    let quorum = u8::from(snapshot.has_quorum());
    page.gauge(
        "quorum",
        "Whether a majority of the nodes votes.",
        one(quorum),
    );
    let words = [
        ("exclusive", RowKind::Exclusive),
        ("shared", RowKind::Shared),
        ("plain", RowKind::Plain),
        ("semaphore", RowKind::Semaphore),
        ("latch", RowKind::Latch),
    ];
    let held = words.map(|(word, kind)| {
        let of_kind = |row: &&_| is_held_as(row, kind);
        let count = snapshot
            .rows
            .values()
            .filter(|row| of_kind(&&***row))
            .count();
        (label("kind", word), count)
    });
    page.gauge(
        "held",
        "Locks, semaphores and latches in use, by kind.",
        held,
    );
    page.gauge("holds", "Held locks and permits.", one(counts.held));
    page.gauge(
        "queued",
        "Clients that wait for a lock, a permit or a latch.",
        one(counts.waiting),
    );
    page.gauge(
        "split",
        "Locks on which the nodes disagree.",
        one(counts.split),
    );
    page.gauge(
        "unknown",
        "Locks, semaphores and latches of which it is unknown whether they are held.",
        one(counts.unknown),
    );
    let age = |at_ms: Option<u64>| at_ms.map(|at_ms| now_ms.saturating_sub(at_ms));
    let age = age(snapshot.list.began_ms).into_iter();
    let age = age.map(|age| (String::new(), seconds(age as f64 / 1e3)));
    page.gauge("list_age_seconds", "How old the list of locks is.", age);
    of_nodes(&mut page, snapshot, now_ms);
    page.text
}

fn is_held_as(row: &super::rows::LockRow, kind: RowKind) -> bool {
    row.state == LockState::Held && row.kind == kind
}

/// The gauges with one sample per node.
fn of_nodes(page: &mut MetricsPage, snapshot: &ClusterSnapshot, now_ms: u64) {
    let each = |value: &dyn Fn(&NodeCard) -> Option<f64>| -> Vec<(String, String)> {
        let nodes = snapshot.nodes.iter();
        let samples =
            nodes.filter_map(|node| Some((label("node", &node.node), seconds(value(node)?))));
        samples.collect()
    };
    let votes = each(&|node| Some(f64::from(u8::from(node.state == CardState::Votes))));
    page.gauge("node_votes", "Whether the vote of the node counts.", votes);
    let trip = each(&|node| node.round_trip_us.map(|us| us as f64 / 1e6));
    page.gauge(
        "node_round_trip_seconds",
        "How long the node took to answer.",
        trip,
    );
    let offset = each(&|node| node.clock_offset_us.map(|us| us as f64 / 1e6));
    let help = "How far the clock of the node is ahead of the median of all nodes.";
    page.gauge("node_clock_offset_seconds", help, offset);
    let left = each(&|node| {
        let until_ms = node.quarantine_until_ms.unwrap_or(now_ms);
        Some(until_ms.saturating_sub(now_ms) as f64 / 1e3)
    });
    page.gauge(
        "node_quarantine_seconds",
        "How long until the node votes again.",
        left,
    );
    let memory = each(&|node| node.memory_bytes.map(|bytes| bytes as f64));
    page.gauge(
        "node_memory_bytes",
        "The memory that the server uses.",
        memory,
    );
}

fn one(value: impl Display) -> [(String, String); 1] {
    [(String::new(), value.to_string())]
}

fn seconds(value: f64) -> String {
    value.to_string()
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{{{name}=\"{}\"}}", value.replace('\n', "\\n"))
}

#[derive(Default)]
struct MetricsPage {
    text: String,
}

impl MetricsPage {
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        // A string takes everything.
        let _ = writeln!(self.text, "# HELP ringfence_cluster_{name} {help}");
        let _ = writeln!(self.text, "# TYPE ringfence_cluster_{name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(self.text, "ringfence_cluster_{name}{labels} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::rows::tests::held;
    use super::*;

    #[test]
    fn a_thousand_locks_make_no_more_series_than_one() {
        let with = |count: usize| {
            let rows = (0..count).map(|n| held(&format!("lock \"{n}\""), "x", 9, 1));
            let snapshot = ClusterSnapshot {
                rows: rows.map(|row| (row.key(), Arc::new(row))).collect(),
                ..ClusterSnapshot::default()
            };
            page(&snapshot, 5)
        };
        let (few, many) = (with(1), with(1_000));
        assert_eq!(few.lines().count(), many.lines().count());
        assert!(
            many.contains("\nringfence_cluster_held{kind=\"exclusive\"} 1000\n"),
            "{many}"
        );
        assert!(many.contains("\nringfence_cluster_holds 1000\n"), "{many}");
    }
}
