//! One task: how long a lock and its release take, on 1, 3 and 5 nodes.

use ringfence_peers::Library;

use crate::arena::Arena;
use crate::sheet::{Aim, Cell, Sheet};

pub(crate) fn measure(nodes: usize, rounds: usize, ms: u64) -> [Sheet; 2] {
    let arena = Arena::with_nodes(nodes);
    let contest = arena.contest(&crate::ALL, rounds, &format!("cycles 1 {ms} bench 10000"));
    let (key, cost_key) = match nodes {
        1 => ("latency-1", "latency-1-cost"),
        3 => ("latency-3", "latency-3-cost"),
        _ => ("latency-5", "latency-5-cost"),
    };
    let title = format!("Latency: lock + release, {nodes} nodes, 1 task");
    let mut sheet = Sheet::new(key, title, &["p50 µs", "p99 µs"]);
    for entry in &contest.entries {
        let cells = vec![
            Cell::of(entry.each(|report| report.p50_us)),
            Cell::of(entry.each(|report| report.p99_us)),
        ];
        sheet.row(entry.library.name(), cells);
    }
    let costs = contest.costs(cost_key, format!("{nodes} nodes, 1 task"));
    sheet.notes = contest.missing;
    judge(&mut sheet, nodes);
    [sheet, costs]
}

fn judge(sheet: &mut Sheet, nodes: usize) {
    let ours = Library::Ringfence.name();
    let rslock = Library::Rslock.name();
    let ratio =
        |sheet: &Sheet, column| Some(sheet.median(ours, column)? / sheet.median(rslock, column)?);
    let (p50, p99) = (ratio(sheet, 0), ratio(sheet, 1));
    // On one node nothing hides what a script costs the server.
    let wanted = if nodes == 1 { 1.2 } else { 1.0 };
    sheet.judge("p50 against rslock", p50, Aim::AtMost(wanted));
    if nodes > 1 {
        sheet.judge("p99 against rslock", p99, Aim::AtMost(1.0));
    }
}
