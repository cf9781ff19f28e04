//! A PostgreSQL for the test alone, also where the tests run as root.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ringfence_testkit::{Postgres, wait_until};

#[test]
fn sessions_see_each_other_s_commits_and_wait_for_each_other_s_rows() {
    let postgres = Postgres::start();
    let (mut one, mut other) = (postgres.session(), postgres.session());
    one.must("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    assert_eq!(other.must("SELECT n, n + 1 FROM t"), "1|2");

    assert_eq!(one.must("BEGIN; UPDATE t SET n = 2"), "BEGIN\nUPDATE 1");
    other.send("UPDATE t SET n = n + 10");
    let mut watcher = postgres.session();
    wait_until("the row to be waited for", Duration::from_secs(10), || {
        watcher.must("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1"
    });
    one.must("COMMIT");
    assert_eq!(other.answer().unwrap(), "UPDATE 1");
    assert_eq!(one.must("SELECT n FROM t"), "12");

    let error = one.run("SELECT nonsense").unwrap_err();
    assert!(error.contains("does not exist"), "{error}");
    assert_eq!(one.must("SELECT 3"), "3", "the session ended with an error");
}

#[test]
fn a_dropped_database_leaves_no_process_and_no_folder() {
    let postgres = Postgres::start();
    let _open = postgres.session();
    let (pid, folder) = (postgres.pid(), postgres.host().to_owned());
    let family = children(pid);
    assert!(!family.is_empty() && folder.exists());
    drop(postgres);
    for pid in family.into_iter().chain([pid]) {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} lives");
    }
    assert!(!folder.exists(), "the folder is still there");
}

#[test]
fn the_database_of_a_panicking_test_ends() {
    let (send_pid, pid) = std::sync::mpsc::channel();
    let test = thread::spawn(move || {
        let postgres = Postgres::start();
        send_pid.send(postgres.pid()).expect("the test receives it");
        panic!("as a failed assertion would");
    });
    assert!(test.join().is_err());
    let pid = pid.recv().expect("the server had started");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect()
}
