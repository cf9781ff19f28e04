//! The other processes of these tests, each of which runs a task as a given user.

use std::env;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use ringfence::node::sqlite::SqliteError;

use super::*;

/// The environment of a child process: its task and its folder.
const TASK: &str = "RINGFENCE_TEST_USERS_TASK";
const FOLDER: &str = "RINGFENCE_TEST_USERS_FOLDER";

/// A copy of this program that every user may start.
pub(super) fn program(scratch: &Scratch) -> PathBuf {
    let copy = scratch.path("program");
    fs::copy(env::current_exe().unwrap(), &copy).unwrap();
    set_mode(&copy, 0o755);
    copy
}

pub(super) fn spawn(program: &Path, folder: &Path, user: u32, task: &str) -> Child {
    let mut command = command(program, folder, user, task);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Runs a task as `user`, with a umask that excludes other users: it must not affect sharing.
pub(super) fn command(program: &Path, folder: &Path, user: u32, task: &str) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={user}"), format!("--regid={user}")])
        .arg(format!("--groups={GROUP_ID}"))
        .args(["sh", "-c", "umask 077; exec \"$0\" \"$@\""])
        .arg(program)
        .args([
            "--exact",
            "nodes::sqlite_users::processes::child",
            "--nocapture",
        ])
        .env(TASK, task)
        .env(FOLDER, folder)
        .current_dir(folder);
    command
}

/// Not a test but the program of child processes; without a task it does nothing.
#[test]
fn child() {
    let (Ok(task), Some(folder)) = (env::var(TASK), env::var_os(FOLDER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let file = folder.join("locks.db");
    let has = |name: &str| folder.join(name).exists();
    let put = |name: &str| fs::write(folder.join(name), "").unwrap();
    match task.as_str() {
        "release" => {
            let node = open(&file);
            let ballot = next_ballot(&node, "x");
            let answer = ask(&node, "x", ALICE, acquire(ballot, 60_000));
            assert_eq!(answer, Answer::Granted);
            put("held");
            wait_until("a listener", PATIENCE, || has("listening"));
            assert_eq!(ask(&node, "x", ALICE, release(ballot)), Answer::Released);
            // The log files of SQLite belong to the first user: they stay until the second was
            // woken.
            wait_until("the wake", PATIENCE, || has("woken"));
        }
        "listen" => {
            wait_until("a holder", PATIENCE, || has("held"));
            let node = open(&file);
            let listener = WakeListener::at(&node, "other");
            let since_us = stamp(&node, "x").clock_us;
            ask(&node, "x", BOB, refresh(&[&ticket(since_us, "other.1")]));
            put("listening");
            assert_eq!(listener.wait(), wake("other.1", 0));
            put("woken");
        }
        "stay" => {
            let _node = open(&file);
            put("open");
            wait_until("the end", PATIENCE, || has("done"));
        }
        "fail" => {
            let error = SqliteNode::open(&file, NodeClock::system()).map(drop);
            let error = error.expect_err("opened a file of another user");
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nERROR {}", chain(&error)).unwrap();
        }
        other => panic!("no such task: {other}"),
    }
}

/// An error with its causes, as the command line shows it.
fn chain(error: &SqliteError) -> String {
    let error: &dyn std::error::Error = error;
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
