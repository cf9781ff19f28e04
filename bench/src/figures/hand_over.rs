//! Sixteen tasks that take one name repeatedly, each for a millisecond: the steady hand-over, in one
//! process and in four.

use ringfence_peers::Library;

use crate::arena::Arena;
use crate::sheet::{Aim, Cell, Sheet};

const TASKS: usize = 16;

pub(crate) fn measure(nodes: usize, processes: usize, rounds: usize, ms: u64) -> Sheet {
    let arena = Arena::with_nodes(nodes);
    let each = TASKS / processes;
    let command = format!("share {each} {ms} bench:one 10000 1000");
    let contest = arena.contest_of_processes(&crate::ALL, processes, rounds, &command);
    let title = format!(
        "Steady hand-over: {nodes} nodes, {TASKS} tasks in {processes} processes, one name, 1 ms \
         holds"
    );
    let columns = ["grants per s", "Jain's index", "wait p50 ms", "wait p99 ms"];
    let key = match (nodes, processes) {
        (1, 1) => "hand-over-1",
        (1, _) => "hand-over-1-processes",
        (_, 1) => "hand-over",
        _ => "hand-over-processes",
    };
    let mut sheet = Sheet::new(key, title, &columns);
    for entry in &contest.entries {
        let cells = vec![
            Cell::of(entry.each(|report| report.per_second())),
            Cell::of(entry.each(|report| report.fairness())),
            Cell::of(entry.each(|report| report.p50_us / 1000.0)),
            Cell::of(entry.each(|report| report.p99_us / 1000.0)),
        ];
        sheet.row(entry.library.name(), cells);
    }
    sheet.notes = contest.missing;
    judge(&mut sheet);
    sheet
}

fn judge(sheet: &mut Sheet) {
    let ours = Library::Ringfence.name();
    let others = [ours, Library::RingfencePlain.name()];
    let ratio = |sheet: &Sheet, column, largest| {
        Some(sheet.median(ours, column)? / sheet.best_other(&others, column, largest)?)
    };
    let rate = ratio(sheet, 0, true);
    // These wake their waiters; this aim is about clients that poll.
    let waking = [
        Library::PythonRedisLock,
        Library::RedissonLock,
        Library::RedissonFairLock,
        Library::RedissonFencedLock,
        Library::RedissonRedLock,
    ];
    let polling = [&others[..], &waking.map(Library::name)].concat();
    let wait = sheet
        .median(ours, 3)
        .zip(sheet.best_other(&polling, 3, false))
        .map(|(ours, best)| ours / best);
    let fairness = sheet.median(ours, 1);
    sheet.judge(
        "grants per second against the best peer",
        rate,
        Aim::AtLeast(1.1),
    );
    sheet.judge("Jain's index", fairness, Aim::AtLeast(0.99));
    sheet.judge(
        "p99 of the wait against the best polling peer",
        wait,
        Aim::AtMost(0.1),
    );
}
