//! Sixty-four tasks that start at once on one name, each for a millisecond and once: the time until
//! the last is done.

use std::time::Duration;

use ringfence_peers::Library;

use super::limit;
use crate::arena::Arena;
use crate::sheet::{Aim, Cell, Sheet};

const TASKS: usize = 64;
const HOLD: Duration = Duration::from_millis(1);

pub(crate) fn measure(nodes: usize, rounds: usize) -> Sheet {
    let arena = Arena::with_nodes(nodes);
    let command = format!("drain {TASKS} bench:one 10000 {}", HOLD.as_micros());
    let contest = arena.contest(&crate::ALL, rounds, &command);
    let key = if nodes == 1 { "drain-1" } else { "drain-5" };
    let title = format!("Drain: {nodes} nodes, {TASKS} tasks start at once on one name, 1 ms each");
    let mut sheet = Sheet::new(key, title, &["ms until the last"]);
    for entry in &contest.entries {
        sheet.row(
            entry.library.name(),
            vec![Cell::of(entry.each(|report| report.took_us / 1000.0))],
        );
    }
    let runtime = crate::runtime();
    let limit = (0..rounds).map(|_| runtime.block_on(limit::drain(TASKS, HOLD)));
    let limit = limit.map(|took| took.as_secs_f64() * 1000.0);
    sheet.row(limit::MUTEX, vec![Cell::of(limit)]);
    sheet.notes = contest.missing;
    let ours = Library::Ringfence.name();
    let others = [ours, Library::RingfencePlain.name(), limit::MUTEX];
    let best = sheet.best_other(&others, 0, false);
    let ratio = best.and_then(|best| Some(best / sheet.median(ours, 0)?));
    let wanted = if nodes == 1 { 1.8 } else { 3.0 };
    sheet.judge("shorter than the best peer by", ratio, Aim::AtLeast(wanted));
    sheet
}
