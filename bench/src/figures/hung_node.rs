//! One task, and a node that stops answering after the connections are open.

use std::time::Duration;

use ringfence_peers::{Library, Peer};

use crate::arena::Arena;
use crate::sheet::{Aim, Cell, Sheet};

/// A contender that has not finished a round of a second by then hangs.
const PATIENCE: Duration = Duration::from_secs(25);

pub(crate) fn measure(nodes: usize, rounds: usize, ms: u64) -> Sheet {
    let title = format!("A hung node: {nodes} nodes, one SIGSTOPped, 1 task, lock + release");
    let columns = ["p99 healthy µs", "p99 hung µs", "p50 hung µs"];
    let mut sheet = Sheet::new("hung-node", title, &columns);
    for library in crate::ALL
        .into_iter()
        .filter(|library| !library.is_single())
    {
        // Our own figures need all rounds; one round is enough for the others, and some take long.
        let rounds = if is_ours(library) { rounds } else { 1 };
        match one(library, nodes, rounds, ms) {
            Ok(cells) => sheet.row(library.name(), cells),
            Err(why) => sheet.notes.push(format!("{library}: {why}")),
        }
    }
    for ours in [Library::Ringfence, Library::RingfencePlain] {
        let ours = ours.name();
        let ratio = sheet
            .median(ours, 1)
            .and_then(|hung| Some(hung / sheet.median(ours, 0)?));
        sheet.judge(
            format!("{ours}: p99 hung against healthy"),
            ratio,
            Aim::AtMost(1.5),
        );
    }
    sheet
}

fn is_ours(library: Library) -> bool {
    matches!(library, Library::Ringfence | Library::RingfencePlain)
}

fn one(
    library: Library,
    nodes: usize,
    rounds: usize,
    ms: u64,
) -> Result<Vec<Option<Cell>>, String> {
    let arena = Arena::with_nodes(nodes);
    let mut peer = arena
        .start(library)
        .map_err(|missing| missing.to_string())?;
    let command = format!("cycles 1 {ms} bench 10000");
    let run = |peer: &mut Peer| peer.run_within(PATIENCE, &command);
    run(&mut peer)?;
    let (mut healthy, mut hung) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        healthy.push(run(&mut peer)?);
        arena.fleet[0].pause();
        let report = run(&mut peer);
        arena.fleet[0].resume();
        hung.push(report?);
        // The node has answered again before it counts as healthy.
        run(&mut peer)?;
    }
    Ok(vec![
        Cell::of(healthy.iter().map(|report| report.p99_us)),
        Cell::of(hung.iter().map(|report| report.p99_us)),
        Cell::of(hung.iter().map(|report| report.p50_us)),
    ])
}
