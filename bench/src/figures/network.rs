//! Servers with distance: each behind the same delay for every contender, on 3 and 5 nodes, with 1
//! and 64 tasks; and five nodes of which one is far away.

use std::time::Duration;

use ringfence_peers::Library;

use crate::arena::{Arena, Contest};
use crate::distance::Distance;
use crate::sheet::{Aim, Cell, Sheet};

/// How far away the slow one of five nodes is.
const FAR: Distance = Distance::steady(Duration::from_millis(50));
/// How far away the others are.
const NEAR: Distance = Distance::steady(Duration::from_micros(500));

/// Rate and latency over a network with distance.
pub(crate) fn measure(nodes: usize, tasks: usize, rounds: usize, ms: u64) -> Sheet {
    let arena = Arena::behind(&vec![Distance::ZONE; nodes]);
    let contest = run(&arena, tasks, rounds, ms);
    let key = match (nodes, tasks) {
        (3, 1) => "network-3-1",
        (3, _) => "network-3-64",
        (_, 1) => "network-5-1",
        _ => "network-5-64",
    };
    let title = format!(
        "Network: {nodes} nodes, 0.5 ms one way, 1 % of the segments 20 ms late, {tasks} tasks"
    );
    let mut sheet = Sheet::new(key, title, &["lock + release per s", "p50 ms", "p99 ms"]);
    for entry in &contest.entries {
        let cells = vec![
            Cell::of(entry.each(|report| report.per_second())),
            Cell::of(entry.each(|report| report.p50_us / 1000.0)),
            Cell::of(entry.each(|report| report.p99_us / 1000.0)),
        ];
        sheet.row(entry.library.name(), cells);
    }
    sheet.notes = contest.missing;
    let ours = Library::Ringfence.name();
    let others = [ours, Library::RingfencePlain.name()];
    let ratio = |column, largest| {
        Some(sheet.median(ours, column)? / sheet.best_other(&others, column, largest)?)
    };
    let (rate, p99) = (ratio(0, true), ratio(2, false));
    if nodes == 5 {
        sheet.judge("rate against the best peer", rate, Aim::AtLeast(2.0));
        sheet.judge("p99 against the best peer", p99, Aim::AtMost(0.6));
    }
    sheet
}

/// One of five nodes is far away: what that costs a lock, against five nodes that are equally near.
pub(crate) fn slow_node(rounds: usize, ms: u64) -> Sheet {
    let equal = Arena::behind(&[NEAR; 5]);
    let mixed = Arena::behind(&[NEAR, NEAR, NEAR, NEAR, FAR]);
    let (equal, mixed) = (run(&equal, 1, rounds, ms), run(&mixed, 1, rounds, ms));
    let title = "A slow node: 5 nodes 0.5 ms away, or one of them 50 ms away, 1 task";
    let columns = ["p50 ms, equal", "p50 ms, one slow", "p99 ms, one slow"];
    let mut sheet = Sheet::new("slow-node", title, &columns);
    for entry in &equal.entries {
        let same = |other: &&crate::arena::Entry| other.library == entry.library;
        let Some(slow) = mixed.entries.iter().find(same) else {
            continue;
        };
        let cells = vec![
            Cell::of(entry.each(|report| report.p50_us / 1000.0)),
            Cell::of(slow.each(|report| report.p50_us / 1000.0)),
            Cell::of(slow.each(|report| report.p99_us / 1000.0)),
        ];
        sheet.row(entry.library.name(), cells);
    }
    sheet.notes = [equal.missing, mixed.missing].concat();
    let ours = Library::Ringfence.name();
    let ratio = sheet.median(ours, 1).zip(sheet.median(ours, 0));
    sheet.judge(
        "p50 with one slow node against five equal ones",
        ratio.map(|(slow, equal)| slow / equal),
        Aim::AtMost(1.1),
    );
    sheet
}

fn run(arena: &Arena, tasks: usize, rounds: usize, ms: u64) -> Contest {
    let command = format!("cycles {tasks} {ms} bench 10000");
    arena.contest(&crate::ALL, rounds, &command)
}
