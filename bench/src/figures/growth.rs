//! How the cost of a lock grows with nodes, tasks, waiters and names.

use ringfence_peers::{Library, Report};

use crate::arena::Arena;
use crate::sheet::{Cell, Sheet};

/// The cost of a workload.
struct Cost {
    report: Report,
    client_us: f64,
    /// Of one server.
    server_us: f64,
}

/// How often each step is measured at most, because there are many.
const ROUNDS_MAX: usize = 3;

pub(crate) fn measure(rounds: usize, ms: u64) -> Vec<Sheet> {
    let rounds = rounds.min(ROUNDS_MAX);
    let cycles = |tasks: usize| format!("cycles {tasks} {ms} bench 10000");
    let waiting = |waiters: usize| format!("share {waiters} {ms} bench:one 10000 1000");
    vec![
        sheet(
            "growth-nodes",
            "Growth in nodes (64 tasks)",
            &[1, 3, 5, 7, 9],
            rounds,
            |nodes| run(nodes, 0, &cycles(64)),
        ),
        sheet(
            "growth-tasks",
            "Growth in tasks (5 nodes)",
            &[1, 4, 16, 64, 256, 1024],
            rounds,
            |tasks| run(5, 0, &cycles(tasks)),
        ),
        sheet(
            "growth-waiters",
            "Growth in waiters (5 nodes, 1 ms holds)",
            &[1, 4, 16, 64, 256, 1024],
            rounds,
            |waiters| run(5, 0, &waiting(waiters)),
        ),
        sheet(
            "growth-names",
            "Growth in names on the servers (3 nodes, 64 tasks)",
            &[1, 1_000, 100_000, 1_000_000],
            rounds,
            |names| run(3, names, &cycles(64)),
        ),
    ]
}

fn sheet(
    key: &'static str,
    title: &str,
    steps: &[usize],
    rounds: usize,
    measure: impl Fn(usize) -> Cost,
) -> Sheet {
    let columns: Vec<String> = steps.iter().map(|step| step.to_string()).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut sheet = Sheet::new(key, title, &columns);
    sheet.grows = true;
    // In turn, so that a slow moment of the machine does not affect one step alone.
    let costs: Vec<Vec<Cost>> = (0..rounds)
        .map(|_| steps.iter().map(|&step| measure(step)).collect())
        .collect();
    let row = |figure: fn(&Cost) -> f64| -> Vec<Option<Cell>> {
        let cell = |step: usize| Cell::of(costs.iter().map(|round| figure(&round[step])));
        (0..steps.len()).map(cell).collect()
    };
    sheet.row("client, core µs per lock", row(|cost| cost.client_us));
    sheet.row("one server, core µs per lock", row(|cost| cost.server_us));
    let rates = row(|cost| cost.report.per_second()).into_iter().flatten();
    let rates: Vec<String> = rates.map(|rate| format!("{:.0}", rate.median)).collect();
    sheet.notes = vec![format!("grants per s: {}", rates.join(", "))];
    sheet
}

/// Runs `command` with ringfence on `nodes` servers that have `names` records already.
fn run(nodes: usize, names: usize, command: &str) -> Cost {
    let arena = Arena::with_nodes(nodes);
    for server in arena.fleet.iter() {
        // Records as a release leaves them.
        server.command(&[
            "EVAL",
            "for i = 1, tonumber(ARGV[1]) do \
             redis.call('SET', 'ringfence:{known:' .. i .. '}:record:known:' .. i, \
             '2:1794731796997730:1794731796997730:1794731796997:0', 'PX', 600000) end return 1",
            "0",
            &names.to_string(),
        ]);
    }
    let mut peer = arena.start(Library::Ringfence).expect("ours");
    let patience = std::time::Duration::from_secs(120);
    peer.run_within(patience, command)
        .expect("a round to warm up");
    let meter = arena.meter(std::slice::from_ref(&peer));
    let report = peer.run_within(patience, command).expect("a report");
    let each = meter.per_lock(report.total());
    Cost {
        client_us: each.client_us,
        server_us: each.servers_us / nodes as f64,
        report,
    }
}

/// The memory of a released name on a server, until its record expires.
pub(crate) fn memory() -> Sheet {
    const NAMES: usize = 20_000;
    let arena = Arena::with_nodes(1);
    let used = || -> f64 {
        let info = arena.fleet[0].command(&["INFO", "memory"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|bytes| bytes.trim().parse().ok())
            .expect("the server's memory")
    };
    let before = used();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(touch(&arena.fleet.urls_without_quarantine(), NAMES));
    let mut sheet = Sheet::new(
        "memory",
        "Server memory per released name, for 60 s",
        &["bytes"],
    );
    sheet.row(
        "ringfence",
        vec![Cell::of([(used() - before) / NAMES as f64])],
    );
    sheet
}

async fn touch(urls: &str, names: usize) {
    const AT_ONCE: usize = 64;
    let locks = ringfence::Locks::connect(urls).await.expect("a client");
    let tasks = (0..AT_ONCE).map(|task| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for number in (task..names).step_by(AT_ONCE) {
                let guard = locks
                    .mutex(format!("bench:{number}"))
                    .lock()
                    .await
                    .expect("a lock");
                guard.release().await.expect("a release");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}
