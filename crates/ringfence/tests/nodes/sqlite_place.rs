//! Where a lock file may be: not at a mount point of its own, under one name, and in one time
//! namespace.
//!
//! The processes in other namespaces are this test program, started again: see `child`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, str};

use ringfence::node::NodeClock;
use ringfence::node::sqlite::SqliteNode;
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Op};
use ringfence_testkit::unshared;
use rusqlite::Connection;

use crate::nodes::support::*;

/// The environment of a child process: its lock file.
const FILE: &str = "RINGFENCE_TEST_PLACE_FILE";

fn open(path: &Path) -> SqliteNode {
    let node = SqliteNode::open(path, NodeClock::system()).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    node
}

#[test]
fn a_lock_file_that_is_mounted_without_its_folder_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let node = open(&file);
    let ballot = next_ballot(&node, "x");
    let taken = ask(&node, "x", ALICE, acquire(ballot, 600_000));
    assert_eq!(taken, Answer::Granted);
    let container = scratch.path("con tainer");
    fs::create_dir(&container).unwrap();
    let mounted = container.join("locks.db");
    fs::write(&mounted, "").unwrap();
    for (found, how) in found_in(bound(&file, &mounted), &mounted) {
        assert!(found.contains("mount the folder"), "{how}: {found}");
    }
    // A folder that is mounted has the log in it.
    for (found, how) in found_in(bound(scratch.folder(), &container), &mounted) {
        assert_eq!(found, "held", "{how}");
    }
}

/// A process that sees `from` at `to`.
fn bound(from: &Path, to: &Path) -> Command {
    let mut command = unshared(&["--mount"]);
    let script = "from=$1 to=$2; shift 2; mount --bind \"$from\" \"$to\" && exec \"$@\"";
    command.args(["sh", "-c", script, "sh"]).args([from, to]);
    command
}

#[test]
fn a_lock_file_with_a_second_hard_link_is_refused_in_any_folder() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let node = open(&file);
    let second = scratch.path("second.db");
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        fs::hard_link(scratch.path(name), &second).unwrap();
        let opened = SqliteNode::open(&file, NodeClock::system()).unwrap_err();
        let looked = SqliteNode::look(&file, NodeClock::system()).unwrap_err();
        for error in [opened, looked] {
            let text = error.to_string();
            assert!(
                text.contains(&format!("{name}: has a second hard link")),
                "{text}"
            );
        }
        if name == "locks.db" {
            let error = SqliteNode::open(&second, NodeClock::system()).unwrap_err();
            assert!(error.to_string().contains("second hard link"), "{error}");
        }
        fs::remove_file(&second).unwrap();
    }
    drop(node);
    open(&file);
}

#[test]
fn another_time_namespace_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let node = open(&file);
    let ballot = next_ballot(&node, "x");
    let taken = ask(&node, "x", ALICE, acquire(ballot, 600_000));
    assert_eq!(taken, Answer::Granted);
    let watch = Connection::open(&file).unwrap();
    let version = || -> i64 {
        watch
            .query_row("PRAGMA data_version", [], |row| row.get(0))
            .unwrap()
    };
    let before = version();
    // Ahead, all leases look ended. Behind is refused, too.
    for boot_time in ["1000", "-1"] {
        for (found, how) in found_in(in_time(boot_time), &file) {
            assert!(found.contains("time namespace"), "{how}: {found}");
        }
    }
    assert_eq!(version(), before);
    held(ask(&node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));

    // A file that was made in another time namespace.
    let file = scratch.path("theirs.db");
    let [(opened, _), _] = found_in(in_time("1000"), &file);
    assert!(opened.contains("holder: None"), "{opened}");
    let node = SqliteNode::open(&file, NodeClock::system()).unwrap();
    let error = probe(&node).wait().unwrap_err().to_string();
    assert!(error.contains("time namespace"), "{error}");
}

/// A process whose clock since boot is so many seconds ahead.
fn in_time(boot_time: &str) -> Command {
    unshared(&["--time", "--fork", "--boottime", boot_time])
}

/// Starts [`child`] by `command`. Returns what it found by opening `file`, and by looking.
fn found_in(mut command: Command, file: &Path) -> [(String, &'static str); 2] {
    command
        .arg(env::current_exe().unwrap())
        .args(["--exact", "nodes::sqlite_place::child", "--nocapture"])
        .env(FILE, file);
    let output = command.output().unwrap();
    let text = str::from_utf8(&output.stdout).unwrap();
    ["OPEN ", "LOOK "].map(|how| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(how));
        let found = lines.next().unwrap_or_else(|| panic!("{output:?}"));
        (found.to_owned(), how)
    })
}

/// Not a test but the program of child processes; without a file it does nothing.
#[test]
fn child() {
    let Some(file) = env::var_os(FILE).map(PathBuf::from) else {
        return;
    };
    let clock = NodeClock::system;
    for (how, node) in [
        ("OPEN", SqliteNode::open(&file, clock())),
        ("LOOK", SqliteNode::look(&file, clock())),
    ] {
        let found = match node {
            Ok(node) => match join(&node, Group::new(1)).wait() {
                Ok(_) => holder(&node),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        println!("\n{how} {found}");
    }
}

/// Whether the lock is held, as this process sees it.
fn holder(node: &SqliteNode) -> String {
    match ask(node, "x", BOB, Op::Inspect) {
        Answer::Views(views) if views[0].holder.is_some() => "held".to_owned(),
        other => format!("{other:?}"),
    }
}
