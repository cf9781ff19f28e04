//! Several processes on one SQLite file, some of them killed.
//!
//! The processes are this test program, started again: see `child`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{env, thread};

use ringfence::clock::Clock;
use ringfence::node::sqlite::SqliteNode;
use ringfence::node::{CallError, Node, NodeClock};
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Ballot, Op, PlainAcquire};
use ringfence_testkit::wait_until;
use rusqlite::Connection;

use crate::nodes::support::*;

/// The environment of a child process: its task, its folder, and the number of its token.
const TASK: &str = "RINGFENCE_TEST_TASK";
const FOLDER: &str = "RINGFENCE_TEST_FOLDER";
const CLIENT: &str = "RINGFENCE_TEST_CLIENT";

#[test]
fn twenty_processes_open_a_fresh_file_at_once() {
    let scratch = Scratch::new();
    let children: Vec<_> = (0..20).map(|_| spawn(&scratch, "open")).collect();
    fs::write(scratch.path("go"), "").unwrap();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn processes_never_hold_at_once_and_their_fences_rise() {
    let scratch = Scratch::new();
    let children: Vec<_> = (0..4).map(|_| spawn(&scratch, "count")).collect();
    fs::write(scratch.path("go"), "").unwrap();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let fences = fences(&scratch);
    assert_eq!(fences.len(), 4 * ROUNDS);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[test]
fn killed_processes_leave_a_sound_file_and_fences_rise() {
    let scratch = Scratch::new();
    fs::write(scratch.path("go"), "").unwrap();
    let mut children: Vec<_> = (0..3).map(|_| spawn(&scratch, "churn")).collect();
    for kill in 0..12 {
        let before = fences(&scratch).len();
        wait_until("more fences", PATIENCE, || {
            fences(&scratch).len() > before + 5
        });
        let victim = kill % children.len();
        stop(&mut children[victim]);
        children[victim] = spawn(&scratch, "churn");
    }
    children.iter_mut().for_each(stop);
    let fences = fences(&scratch);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    let file = Connection::open(scratch.path("locks.db")).unwrap();
    let check: String = file
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let node = SqliteNode::open(scratch.path("locks.db"), NodeClock::system()).unwrap();
    assert!(stamp(&node, "x").floor.get() >= *fences.last().unwrap());
}

#[test]
fn a_full_disk_is_an_error_and_nothing_confirmed_is_lost() {
    let scratch = Scratch::new();
    fs::write(scratch.path("go"), "").unwrap();
    drop(SqliteNode::open(scratch.path("locks.db"), NodeClock::system()).unwrap());
    // Files of this child cannot grow beyond 256 KiB: for SQLite that is a disk error.
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", limited]).arg(env::current_exe().unwrap());
    assert!(
        spawn_by(&mut shell, &scratch, "fill")
            .wait()
            .unwrap()
            .success()
    );
    let node = SqliteNode::open(scratch.path("locks.db"), NodeClock::system()).unwrap();
    let confirmed = fences(&scratch);
    assert!(!confirmed.is_empty());
    for (i, fence) in confirmed.into_iter().enumerate() {
        let name = format!("lock-{i}");
        held(ask(
            &node,
            &name,
            BOB,
            acquire(next_ballot(&node, &name), TTL_MS),
        ));
        assert_eq!(stamp(&node, &name).floor.get(), fence);
    }
}

#[test]
fn the_default_file_and_its_folders_are_created_for_the_user_alone() {
    let scratch = Scratch::new();
    fs::write(scratch.path("go"), "").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("XDG_STATE_HOME", scratch.path("new/state"));
    let mut child = spawn_by(&mut command, &scratch, "open default");
    assert!(child.wait().unwrap().success());
    let mode = |path: &str| {
        let metadata = fs::metadata(scratch.path(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("new/state/ringfence"), 0o700);
    assert_eq!(mode("new/state/ringfence/locks.db"), 0o600);
}

#[test]
fn a_release_in_one_process_wakes_a_waiter_in_another_that_does_not_poll() {
    let scratch = Scratch::new();
    fs::write(scratch.path("go"), "").unwrap();
    let node = SqliteNode::open(scratch.path("locks.db"), NodeClock::system()).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    let mut ballot = lock(&node, ALICE, 60_000);
    let mut child = spawn(&scratch, "listen");
    wait_until("a listener", PATIENCE, || {
        scratch.path("listening").exists()
    });

    // A listener does not touch the file: no transaction, and no byte in the log.
    let file = Connection::open(scratch.path("locks.db")).unwrap();
    let version = || -> i64 {
        file.query_row("PRAGMA data_version", [], |row| row.get(0))
            .unwrap()
    };
    let written = || fs::metadata(scratch.path("locks.db-wal")).unwrap();
    let look = || (version(), written().len(), written().modified().unwrap());
    let (mut last, mut alike) = (look(), 0);
    wait_until("a file that stays unchanged", PATIENCE, || {
        let now = look();
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
        alike >= QUIET_LOOKS
    });

    let since_us = fs::read_to_string(scratch.path("listening")).unwrap();
    let since_us = since_us.parse().unwrap();
    for round in 1..=WAKES {
        if round > 1 {
            // The child stays in the queue, so only a plain lock can be acquired.
            let plain = Op::PlainAcquire(PlainAcquire { ttl_ms: 60_000 });
            assert_eq!(ask(&node, "x", ALICE, plain), Answer::Granted);
        }
        // On behalf of the child, which only waits for wakes.
        ask(&node, "x", BOB, refresh(&[&ticket(since_us, "other.1")]));
        ballot = plus(ballot, 1);
        let freed = Clock::System.now();
        assert_eq!(ask(&node, "x", ALICE, release(ballot)), Answer::Released);
        wait_until("the wake", PATIENCE, || fences(&scratch).len() >= round);
        let took = Clock::System.now().since(freed);
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_killed_listener_delays_no_release_and_can_be_replaced() {
    let scratch = Scratch::new();
    fs::write(scratch.path("go"), "").unwrap();
    let node = SqliteNode::open(scratch.path("locks.db"), NodeClock::system()).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    let ballot = lock(&node, ALICE, 60_000);
    for _ in 0..2 {
        let mut child = spawn(&scratch, "listen");
        wait_until("a listener", PATIENCE, || {
            scratch.path("listening").exists()
        });
        stop(&mut child);
        fs::remove_file(scratch.path("listening")).unwrap();
        assert!(scratch.path("locks.db-wake-other").exists());
    }
    assert_eq!(ask(&node, "x", ALICE, release(ballot)), Answer::Released);
    assert_eq!(fences(&scratch), [0; 0]);
}

/// The number of consecutive looks that find the file unchanged if it is not polled. `wait_until`
/// looks this often within a third of a second.
const QUIET_LOOKS: usize = 150;

/// The number of wakes for which the process of the listening test waits.
const WAKES: usize = 5;

/// Enters the queue of `x`, then only waits for wakes and logs each of them.
fn listen(node: &dyn Node, folder: &Path) {
    let listener = WakeListener::at(node, "other");
    let since_us = stamp(node, "x").clock_us;
    ask(node, "x", BOB, refresh(&[&ticket(since_us, "other.1")]));
    fs::write(folder.join("new"), since_us.to_string()).unwrap();
    fs::rename(folder.join("new"), folder.join("listening")).unwrap();
    for _ in 0..WAKES {
        assert_eq!(listener.wait(), wake("other.1", 0));
        append_to_log(folder, Ballot::new(1));
    }
}

/// How often a process of the counting test takes the lock.
const ROUNDS: usize = 25;

/// Not a test but the program of child processes; without a task it does nothing.
#[test]
fn child() {
    let (Ok(task), Some(folder)) = (env::var(TASK), env::var_os(FOLDER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    wait_until("the start signal", PATIENCE, || folder.join("go").exists());
    let file = match task.as_str() {
        "open default" => SqliteNode::default_path().unwrap(),
        _ => folder.join("locks.db"),
    };
    let node = SqliteNode::open(file, NodeClock::system()).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    let client = env::var(CLIENT).unwrap().parse().unwrap();
    match task.as_str() {
        "open" | "open default" => {}
        "count" => (0..ROUNDS).for_each(|_| {
            let fence = lock(&node, client, TTL_MS);
            // Only one process at a time gets past this.
            let inside = folder.join("inside");
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&inside)
                .unwrap();
            append_to_log(&folder, fence);
            fs::remove_file(inside).unwrap();
            assert_eq!(ask(&node, "x", client, release(fence)), Answer::Released);
        }),
        "churn" => loop {
            let fence = lock(&node, client, 100);
            append_to_log(&folder, fence);
            ask(&node, "x", client, release(fence));
        },
        "fill" => fill(&node, &folder),
        "listen" => listen(&node, &folder),
        other => panic!("no such task: {other}"),
    }
}

/// Takes locks until the disk is full, and logs those that were granted.
fn fill(node: &dyn Node, folder: &Path) {
    for i in 0..100_000 {
        let name = format!("lock-{i}");
        let inspect = send(node, request(&[&name], ALICE, Op::Inspect), NEVER).wait();
        let Ok(stamp) = inspect.map(|reply| reply.stamp.unwrap()) else {
            return;
        };
        let ballot = Ballot::new(stamp.clock_us);
        let acquire = acquire(ballot, 600_000);
        match send(node, request(&[&name], ALICE, acquire), NEVER).wait() {
            Ok(reply) => assert_eq!(reply.answer, Answer::Granted),
            Err(CallError::Refused(_) | CallError::Unknown(_)) => return,
            Err(other) => panic!("{other:?}"),
        }
        append_to_log(folder, ballot);
    }
    panic!("the disk never filled up");
}

fn lock(node: &dyn Node, client: u8, ttl_ms: u64) -> Ballot {
    loop {
        let ballot = next_ballot(node, "x");
        match ask(node, "x", client, acquire(ballot, ttl_ms)) {
            Answer::Granted => return ballot,
            Answer::Held(_) | Answer::Stale => thread::sleep(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
    }
}

/// Logs the fence in one write, so that a killed process leaves a whole line or none.
fn append_to_log(folder: &Path, fence: Ballot) {
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(folder.join("log"))
        .unwrap();
    log.write_all(format!("{fence}\n").as_bytes()).unwrap();
}

fn fences(scratch: &Scratch) -> Vec<u64> {
    let log = fs::read_to_string(scratch.path("log")).unwrap_or_default();
    log.lines().map(|line| line.parse().unwrap()).collect()
}

fn spawn(scratch: &Scratch, task: &str) -> Child {
    spawn_by(
        &mut Command::new(env::current_exe().unwrap()),
        scratch,
        task,
    )
}

fn spawn_by(command: &mut Command, scratch: &Scratch, task: &str) -> Child {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let client = NEXT.fetch_add(1, Ordering::Relaxed);
    command
        .args(["--exact", "nodes::sqlite_processes::child", "--nocapture"])
        .env(TASK, task)
        .env(FOLDER, scratch.folder())
        .env(CLIENT, client.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// SIGKILL.
fn stop(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
