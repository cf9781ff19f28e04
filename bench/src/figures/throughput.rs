//! Many tasks, each with its own name: how many locks and releases per second.

use ringfence_peers::Library;

use super::limit;
use crate::arena::Arena;
use crate::sheet::{Aim, Cell, Sheet};

const TASKS: usize = 64;

pub(crate) fn measure(nodes: usize, rounds: usize, ms: u64) -> [Sheet; 2] {
    let arena = Arena::with_nodes(nodes);
    let contest = arena.contest(
        &crate::ALL,
        rounds,
        &format!("cycles {TASKS} {ms} bench 10000"),
    );
    let title = format!("Throughput: {nodes} nodes, {TASKS} tasks, each its own name");
    let mut sheet = Sheet::new(
        "throughput",
        title,
        &["lock + release per s", "p50 µs", "p99 µs"],
    );
    for entry in &contest.entries {
        let cells = vec![
            Cell::of(entry.each(|report| report.per_second())),
            Cell::of(entry.each(|report| report.p50_us)),
            Cell::of(entry.each(|report| report.p99_us)),
        ];
        sheet.row(entry.library.name(), cells);
    }
    let limits: Vec<f64> = (0..rounds)
        .map(|_| limit::locks_per_second(&arena.fleet))
        .collect();
    let limit = Cell::of(limits);
    sheet.row(limit::NAME, vec![limit]);
    let costs = contest.costs("throughput-cost", format!("{nodes} nodes, {TASKS} tasks"));
    sheet.notes = contest.missing;
    judge(&mut sheet, nodes, limit);
    [sheet, costs]
}

fn judge(sheet: &mut Sheet, nodes: usize, limit: Option<Cell>) {
    let (fenced, plain, rslock) = (
        Library::Ringfence.name(),
        Library::RingfencePlain.name(),
        Library::Rslock.name(),
    );
    let against = |sheet: &Sheet, ours, other: Option<f64>| Some(sheet.median(ours, 0)? / other?);
    let rival = sheet.median(rslock, 0);
    let ratio = against(sheet, fenced, rival);
    // On one node nothing hides what a script costs the server.
    let wanted = if nodes == 1 { 0.75 } else { 1.05 };
    sheet.judge("ringfence against rslock", ratio, Aim::AtLeast(wanted));
    let ratio = against(sheet, plain, rival);
    sheet.judge("plain against rslock", ratio, Aim::AtLeast(2.2));
    let best = sheet.best_other(&[fenced, plain, rslock, limit::NAME], 0, true);
    let ratio = against(sheet, fenced, best);
    sheet.judge(
        "ringfence against the best of the others",
        ratio,
        Aim::AtLeast(1.0),
    );
    let ratio = against(sheet, plain, limit.map(|limit| limit.median));
    sheet.judge("plain against redis-benchmark", ratio, Aim::AtLeast(0.6));
}
