//! `/metrics`: the cluster in Prometheus' text format. Labels are nodes and fixed words, never the
//! names of locks, so the number of series is bounded.

use std::fmt::{Display, Write};

use ringfence::admin::LockState;

use super::cards::{CardState, NodeCard};
use super::snapshot::ClusterSnapshot;
use crate::row::RowKind;

/// The page at `now_ms`.
pub(super) fn page(snapshot: &ClusterSnapshot, now_ms: u64) -> String {
    let mut page = MetricsPage::default();
    let counts = snapshot.counts();
    let states =
        CardState::ALL.map(|state| (label("state", state.word()), snapshot.in_state(state)));
    page.gauge("nodes", "Nodes by how they take part.", states);
    let kinds = [
        RowKind::Exclusive,
        RowKind::Shared,
        RowKind::Plain,
        RowKind::Semaphore,
        RowKind::Latch,
    ];
    let held = kinds.map(|kind| {
        let rows = snapshot.rows.values();
        let held = rows.filter(|row| row.state == LockState::Held && row.kind == kind);
        (label("kind", kind.word()), held.count())
    });
    let help = "Locks, semaphores and latches in use, by kind.";
    page.gauge("held", help, held);
    for (name, help, value) in [
        (
            "quorum",
            "Whether a majority of the nodes votes.",
            u64::from(snapshot.has_quorum()),
        ),
        ("holds", "Held locks and permits.", counts.held),
        (
            "queued",
            "Clients that wait for a lock, a permit or a latch.",
            counts.waiting,
        ),
        ("split", "Locks on which the nodes disagree.", counts.split),
        (
            "unknown",
            "Locks, semaphores and latches of which it is unknown whether they are held.",
            counts.unknown,
        ),
    ] {
        page.gauge(name, help, [(String::new(), value)]);
    }
    let age = snapshot.list.began_ms;
    let age = age.map(|at_ms| now_ms.saturating_sub(at_ms) as f64 / 1e3);
    let age = age.map(|age| (String::new(), age));
    page.gauge("list_age_seconds", "How old the list of locks is.", age);
    of_nodes(&mut page, snapshot, now_ms);
    page.text
}

/// The gauges with one sample per node.
fn of_nodes(page: &mut MetricsPage, snapshot: &ClusterSnapshot, now_ms: u64) {
    let micros = |us: i64| us as f64 / 1e6;
    type NodeValue<'a> = &'a dyn Fn(&NodeCard) -> Option<f64>;
    let gauges: [(&str, &str, NodeValue<'_>); 5] = [
        (
            "node_votes",
            "Whether the vote of the node counts.",
            &|node| Some(f64::from(u8::from(node.state == CardState::Votes))),
        ),
        (
            "node_round_trip_seconds",
            "How long the node took to answer.",
            &|node| node.round_trip_us.map(|us| micros(us.cast_signed())),
        ),
        (
            "node_clock_offset_seconds",
            "How far the clock of the node is ahead of the median of all nodes.",
            &|node| node.clock_offset_us.map(micros),
        ),
        (
            "node_quarantine_seconds",
            "How long until the node votes again.",
            &|node| {
                let until_ms = node.quarantine_until_ms.unwrap_or(now_ms);
                Some(until_ms.saturating_sub(now_ms) as f64 / 1e3)
            },
        ),
        (
            "node_memory_bytes",
            "The memory that the server uses.",
            &|node| node.memory_bytes.map(|bytes| bytes as f64),
        ),
    ];
    for (name, help, value) in gauges {
        let nodes = snapshot.nodes.iter();
        let samples = nodes.filter_map(|node| Some((label("node", &node.node), value(node)?)));
        page.gauge(name, help, samples);
    }
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

    use super::*;
    use crate::row::tests::held;

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
