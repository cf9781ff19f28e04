//! While a command runs under an embedded file, ringfence and its watchdog sleep.

use std::fs;

use super::scene::{Process, Scene};

/// How often the threads of a process have gone to sleep. Each time something woke them before.
fn sleeps(process: Process) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.pid())).expect("it runs");
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let count = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse()
                .ok()
        };
        status.lines().find_map(count)
    };
    tasks.filter_map(of_task).map(|count: u64| count).sum()
}

#[test]
fn between_two_renewals_neither_ringfence_nor_its_watchdog_wakes() {
    let scene = Scene::embedded();
    // No renewal is due during this test. The command measures the time: it is only ever too long.
    let run = scene.run(
        &["--ttl", "1h"],
        "echo $PPID > $DIR/watchdog; sleep 1; echo > $DIR/begin
         sleep 3; echo > $DIR/end; exec sleep 1000",
    );
    let both = [run.process(), scene.process("watchdog")];
    scene.line("begin");
    let before = both.map(sleeps);
    scene.line("end");
    let after = both.map(sleeps);
    // A timer that looks twice a second would wake each of them at least six times.
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before <= 3, "{before} sleeps, then {after}");
    }
    run.signal(rustix::process::Signal::TERM);
    run.finish();
}
