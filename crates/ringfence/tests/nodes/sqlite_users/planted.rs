//! Files that another user has placed beside a lock file, and files that fit no row of the table of
//! sharing.

use super::*;

/// The size of a page, and the first bytes of a rollback journal.
const PAGE: usize = 4096;
const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

#[test]
fn a_planted_journal_is_refused_and_frees_no_lock() {
    let scratch = Scratch::new();
    set_mode(scratch.folder(), 0o1777);
    let file = scratch.path("locks.db");
    drop(open(&file));
    settle(&file);
    let without_lock = fs::read(&file).unwrap();
    let node = open(&file);
    let ballot = next_ballot(&node, "x");
    let taken = ask(&node, "x", ALICE, acquire(ballot, 600_000));
    assert_eq!(taken, Answer::Granted);
    drop(node);
    settle(&file);

    let journal = scratch.path("locks.db-journal");
    for bytes in [journal_of(&without_lock), Vec::new()] {
        fs::write(&journal, bytes).unwrap();
        let opened = SqliteNode::open(&file, NodeClock::system()).map(drop);
        let looked = SqliteNode::look(&file, NodeClock::system()).map(drop);
        for outcome in [opened, looked] {
            let error = outcome.expect_err("a journal was used").to_string();
            assert!(error.contains("locks.db-journal"), "{error}");
        }
        fs::remove_file(&journal).unwrap();
    }
    let node = open(&file);
    held(ask(&node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
}

/// A journal that makes SQLite restore these pages.
fn journal_of(pages: &[u8]) -> Vec<u8> {
    let count = (pages.len() / PAGE) as u32;
    let numbers = [count, 0, count, 512, PAGE as u32];
    let mut journal = JOURNAL.to_vec();
    journal.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    journal.resize(512, 0);
    for (number, page) in (1u32..).zip(pages.chunks(PAGE)) {
        let summed = (1..PAGE).rev().filter(|at| (PAGE - at).is_multiple_of(200));
        let sum: u32 = summed.map(|at| u32::from(page[at])).sum();
        journal.extend(number.to_be_bytes());
        journal.extend(page);
        journal.extend(sum.to_be_bytes());
    }
    journal
}

/// Waits until no process uses the file, and copies its log into it.
fn settle(file: &Path) {
    wait_until("the file to be closed", PATIENCE, || {
        let other = rusqlite::Connection::open(file).unwrap();
        let _ = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        drop(other);
        !file.with_extension("db-wal").exists()
    });
}

#[test]
fn a_mode_that_is_in_no_row_of_the_table_is_refused() {
    let own_group = rustix::process::getegid().as_raw();
    let outcome = |folder_mode: u32, file: &str, mode: u32| {
        let scratch = Scratch::new();
        let folder = scratch.path("shared");
        fs::create_dir(&folder).unwrap();
        chown(&folder, None, Some(own_group)).unwrap();
        set_mode(&folder, folder_mode);
        let path = folder.join("locks.db");
        let _node = open(&path);
        set_mode(&folder.join(file), mode);
        let opened = SqliteNode::open(&path, NodeClock::system()).map(drop);
        opened.map_err(|error| error.to_string())
    };
    for folder in [0o700, 0o755, 0o777, 0o1777, 0o2770] {
        for mode in [0o640, 0o644, 0o606, 0o622, 0o700, 0o4600, 0o2660] {
            let error = outcome(folder, "locks.db", mode).unwrap_err();
            let says = format!("mode {mode:04o}");
            assert!(error.contains(&says), "{folder:o} {mode:o}: {error}");
        }
    }
    for folder in [0o700, 0o755, 0o777, 0o2755, 0o2777] {
        assert!(outcome(folder, "locks.db", 0o660).is_err(), "{folder:o}");
        assert!(outcome(folder, "locks.db", 0o666).is_err(), "{folder:o}");
    }
    assert!(outcome(0o2770, "locks.db", 0o666).is_err());
    for beside in ["locks.db-wal", "locks.db-shm"] {
        assert!(outcome(0o700, beside, 0o660).is_err(), "{beside}");
        assert!(outcome(0o2770, beside, 0o666).is_err(), "{beside}");
        assert!(outcome(0o2770, beside, 0o600).is_err(), "{beside}");
    }
    // What ringfence itself makes, and a private file anywhere.
    for (folder, file) in [(0o2770, 0o660), (0o755, 0o600), (0o777, 0o600)] {
        assert_eq!(outcome(folder, "locks.db", file), Ok(()), "{folder:o}");
    }
}

/// Without root there is no second user: then only the own user's files are checked.
#[test]
fn a_private_file_with_a_file_of_another_user_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let _node = open(&file);
    let outcome = || {
        let opened = SqliteNode::open(&file, NodeClock::system()).map(drop);
        opened.map_err(|error| error.to_string())
    };
    assert_eq!(outcome(), Ok(()));
    if !is_root() {
        return;
    }
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let planted = scratch.path(name);
        chown(&planted, Some(BOB_UID), None).unwrap();
        let error = outcome().unwrap_err();
        assert!(error.contains(name), "{error}");
        assert!(error.contains(&format!("owner {BOB_UID}")), "{error}");
        chown(&planted, Some(0), None).unwrap();
    }
    assert_eq!(outcome(), Ok(()));
}

/// Without root the planted socket differs only by its mode.
#[test]
fn a_wake_is_not_sent_to_a_planted_socket() {
    let scratch = Scratch::new();
    let node = open(&scratch.path("locks.db"));
    let planted = scratch.path("locks.db-wake-planted");
    let socket = UnixDatagram::bind(&planted).unwrap();
    socket.set_nonblocking(true).unwrap();
    if is_root() {
        set_mode(&planted, 0o600);
        chown(&planted, Some(BOB_UID), None).unwrap();
    } else {
        set_mode(&planted, 0o666);
    }
    let ballot = next_ballot(&node, "x");
    let taken = ask(&node, "x", ALICE, acquire(ballot, TTL_MS));
    assert_eq!(taken, Answer::Granted);
    let waits = ticket(stamp(&node, "x").clock_us, "planted.1");
    ask(&node, "x", BOB, refresh(&[&waits]));
    assert_eq!(ask(&node, "x", ALICE, release(ballot)), Answer::Released);
    // Wakes are sent before the reply to the next call.
    stamp(&node, "x");
    let received = socket.recv(&mut [0; 64]);
    assert!(received.is_err(), "another user's socket got the wake");
}
