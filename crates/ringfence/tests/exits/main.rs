//! A program that ends while it holds a lock leaves no lock: real processes, real servers.

#![allow(missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LockResult, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use ringfence_testkit::{Certificates, Flavor, Fleet, Server, wait_until};

/// Far below the TTL of the program's locks: a key that is gone by then did not expire.
const SOON: Duration = Duration::from_secs(8);
/// How often each program is run, so that a release that is sent only by luck is lost in one of the
/// runs.
const RUNS: usize = 10;

/// Cargo builds the program, an example target, beside the folder of this test, unless only this
/// test is built.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/exits");
    assert!(
        program.is_file(),
        "{} was not built: run cargo build --examples --all-features",
        program.display()
    );
    program
}

/// A program that ends gives its releases 100 ms, or 200 ms with a file. A program with hundreds of
/// them runs alone, without the other tests here.
struct Turn {
    _shared: Option<LockResult<RwLockReadGuard<'static, ()>>>,
    _alone: Option<LockResult<RwLockWriteGuard<'static, ()>>>,
}

impl Turn {
    fn to_run(how: &str) -> Self {
        static MACHINE: RwLock<()> = RwLock::new(());
        let is_large = how.ends_with("many");
        Self {
            _shared: (!is_large).then(|| MACHINE.read()),
            _alone: is_large.then(|| MACHINE.write()),
        }
    }
}

/// Runs the program once. Its exit code must be the one of a panic, or zero.
fn run(how: &str, nodes: &str) {
    let mut command = Command::new(program());
    command.args([how, nodes]).stdin(Stdio::null());
    // The backtrace of an intended panic is not read, and takes longer than everything else.
    command.env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    let expected = if how.ends_with("panic") { 101 } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{how}: {output:?}");
}

fn lock_keys(server: &Server) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let keys = keys.lines().filter(|key| !key.starts_with("ringfence:"));
    keys.map(str::to_owned).collect()
}

/// Runs the program again and again; each time its locks must disappear from every server.
#[track_caller]
fn leaves_nothing_on(servers: &[&Server], how: &str, nodes: &str) {
    let _turn = Turn::to_run(how);
    for _ in 0..RUNS {
        run(how, nodes);
        wait_until(&format!("the keys of `{how}` to disappear"), SOON, || {
            servers.iter().all(|server| lock_keys(server).is_empty())
        });
    }
}

#[track_caller]
fn leaves_nothing(how: &str) {
    let fleet = Fleet::start(3);
    let servers: Vec<&Server> = fleet.iter().collect();
    leaves_nothing_on(&servers, how, &fleet.urls_without_quarantine());
}

#[test]
fn a_guard_dropped_at_the_end_of_main_is_released_current_thread() {
    leaves_nothing("current-return");
}

#[test]
fn a_guard_dropped_at_the_end_of_main_is_released_multi_thread() {
    leaves_nothing("multi-return");
}

#[test]
fn a_guard_dropped_by_a_panic_in_main_is_released_current_thread() {
    leaves_nothing("current-panic");
}

#[test]
fn a_guard_dropped_by_a_panic_in_main_is_released_multi_thread() {
    leaves_nothing("multi-panic");
}

#[test]
fn a_guard_dropped_right_before_the_process_exits_is_released() {
    // On a multi-thread runtime another thread may be writing when the process ends.
    leaves_nothing("current-exit");
}

#[test]
fn a_guard_in_a_task_that_the_ending_tokio_runtime_drops_is_released() {
    leaves_nothing("current-task");
    leaves_nothing("multi-task");
}

#[test]
fn a_guard_that_outlives_its_tokio_runtime_is_released_when_it_is_dropped() {
    leaves_nothing("current-outlive");
    leaves_nothing("multi-outlive");
}

#[test]
fn hundreds_of_guards_dropped_at_the_end_of_main_are_released() {
    leaves_nothing("current-many");
    leaves_nothing("multi-many");
}

#[test]
fn the_blocking_api_releases_before_the_process_ends() {
    leaves_nothing("blocking-return");
    leaves_nothing("blocking-panic");
}

#[test]
fn over_tls_a_guard_dropped_at_the_end_of_main_is_released() {
    let certificates = Certificates::generate();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let authority = certificates.authority_file();
    let nodes = format!("{}?ca={}", server.url(), authority.display());
    for how in [
        "current-return",
        "multi-return",
        "multi-task",
        "current-outlive",
    ] {
        leaves_nothing_on(&[&server], how, &nodes);
    }
}

#[test]
fn the_ticket_of_a_waiting_caller_is_removed_when_the_process_ends() {
    let fleet = Fleet::start(3);
    let nodes = fleet.urls_without_quarantine();
    for server in fleet.iter() {
        server.command(&["SET", "held-by-the-test", "foreign", "PX", "60000"]);
    }
    let _turn = Turn::to_run("current-cancel");
    for _ in 0..RUNS {
        run("current-cancel", &nodes);
        wait_until("the ticket to disappear", Duration::from_secs(1), || {
            fleet.iter().all(|server| {
                let rank = "ringfence:{held-by-the-test}:queue-order:held-by-the-test";
                server.command(&["EXISTS", rank]) == "0"
            })
        });
    }
}

#[test]
fn an_embedded_node_executes_a_queued_release_before_the_process_ends() {
    for how in [
        "current-return",
        "multi-return",
        "current-panic",
        "multi-panic",
        "current-exit",
        "multi-task",
        "current-outlive",
        "blocking-return",
    ] {
        leaves_nothing_in_a_file(how);
    }
}

#[test]
fn an_embedded_node_executes_hundreds_of_queued_releases_before_the_process_ends() {
    leaves_nothing_in_a_file("current-many");
}

fn leaves_nothing_in_a_file(how: &str) {
    use ringfence::blocking::Locks;
    let _turn = Turn::to_run(how);
    let folder = tempfile::tempdir().unwrap();
    let nodes = format!("sqlite:{}", folder.path().join("locks.db").display());
    let name = if how.ends_with("many") {
        "many-299"
    } else {
        "x"
    };
    for _ in 0..RUNS {
        run(how, &nodes);
        // No process is left that could release it later.
        let locks = Locks::connect(&nodes).unwrap();
        let held = locks.mutex(name).try_lock();
        assert!(held.is_ok(), "{how}: {held:?}");
        held.unwrap().release().unwrap();
        locks.close();
    }
}

#[test]
fn the_thread_of_late_renewals_starts_with_a_client_sleeps_and_ends_after_it() {
    run("current-idle", "memory:");
    let server = Server::start(Flavor::Redis);
    run("current-idle", &server.url());
}
