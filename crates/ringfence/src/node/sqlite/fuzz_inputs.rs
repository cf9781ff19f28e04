//! The entry point of a fuzzer (`fuzz/`) and of a test with random input: a lock file that somebody
//! else has written. Nothing may panic, and what is written to the file must be readable again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::{Clock, SteppedClock};
use crate::group::Group;
use crate::message::{
    Acquire, Arrive, Ballot, Claim, List, Mode, Op, PlainAcquire, Refresh, Release, ReleaseKind,
    Request, Ticket,
};
use crate::name::Name;
use crate::node::NodeClock;
use crate::node::embedded::Store;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

use super::file::{COMPANIONS, LockFile, beside};
use super::store::SqliteStore;
use super::sync::Durability;
use super::{boots, look, schema};

const START_US: u64 = 1_700_000_000_000_000;

/// The numeric columns of all tables, and a text of each.
const NUMBERS: [(&str, &[&str]); 7] = [
    (
        "node",
        &[
            "boot_us",
            "boot_moment_us",
            "clock_us",
            "promised_us",
            "syncs_begun",
            "syncs_done",
            "log_pages",
            "window_us",
            "quarantine_us",
            "grace_us",
        ],
    ),
    (
        "entry",
        &[
            "key_until_ms",
            "fence",
            "read_fence",
            "closed",
            "seat_ballot",
            "seat_until_ms",
            "stranger",
            "free_since_ms",
            "record_until_ms",
            "lapses_ms",
        ],
    ),
    (
        "ticket",
        &[
            "since_us",
            "until_ms",
            "refreshed_ms",
            "elsewhere",
            "shared",
            "permits",
        ],
    ),
    ("reader", &["ballot", "until_ms"]),
    ("latch", &["since_us", "until_ms", "lasts_ms"]),
    ("party", &[]),
    (
        "broken",
        &["number", "at_us", "until_us", "fence", "ballot"],
    ),
];
const TEXTS: [(&str, &[&str]); 7] = [
    ("node", &["boot_id", "time_namespace"]),
    ("entry", &["name", "key_value", "seat_token", "seat_label"]),
    ("ticket", &["name", "id", "label"]),
    ("reader", &["name", "token", "label"]),
    ("latch", &["name"]),
    ("party", &["name", "party"]),
    ("broken", &["name", "id", "by", "label", "reason"]),
];

/// A lock file in `folder` with hostile contents. The first byte of `data` decides whether the rest
/// changes bytes of a proper file or values in its rows.
pub fn lock_file(folder: &Path, data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let mut bytes = proper_file(folder).clone();
    let path = fresh_path(folder);
    if kind % 2 == 0 {
        for change in rest.chunks_exact(4) {
            let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
            let at = at % bytes.len();
            bytes[at] = change[3];
        }
    }
    LockFile::prepare(&path).expect("a new file");
    fs::write(&path, bytes).expect("a file");
    if kind % 2 == 1 {
        change_rows(&path, rest);
    }
    use_file(&path);
}

/// The bytes of a lock file that has rows in every table.
fn proper_file(folder: &Path) -> &'static Vec<u8> {
    static PROPER: OnceLock<Vec<u8>> = OnceLock::new();
    PROPER.get_or_init(|| {
        let path = fresh_path(folder);
        use_file(&path);
        let file = Connection::open(&path).expect("our own file");
        file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .expect("a copy of the log");
        file.execute_batch(
            "INSERT INTO reader VALUES ('s', 'a.b', 7, 'reader', 2000000);
             INSERT INTO broken VALUES ('x', 0, 1, 1900000000000000, 2, 1, 'id', 'me', 'l', 'r');
             UPDATE entry SET key_value = 'ringfence-shared' WHERE name LIKE '%s';",
        )
        .expect("our own tables");
        drop(file);
        fs::read(&path).expect("our own file")
    })
}

/// A path in `folder` where no file is.
fn fresh_path(folder: &Path) -> PathBuf {
    let path = folder.join("locks.db");
    for ending in [""].iter().chain(&COMPANIONS) {
        let _ = fs::remove_file(beside(&path, ending));
    }
    path
}

/// Each change is a table, a column, and a value for all rows.
fn change_rows(path: &Path, mut data: &[u8]) {
    let file = Connection::open(path).expect("our own file");
    let pick = |list: &[&'static str], at: u8| {
        let at = usize::from(at).checked_rem(list.len());
        at.map(|at| list[at])
    };
    while let Some((head, rest)) = data.split_at_checked(3) {
        let table = usize::from(head[0]) % NUMBERS.len();
        let changed = if head[2] % 2 == 0 {
            let Some((value, rest)) = rest.split_at_checked(8) else {
                return;
            };
            data = rest;
            let value = i64::from_le_bytes(value.try_into().expect("eight bytes"));
            let (table, columns) = NUMBERS[table];
            pick(columns, head[1]).map(|column| {
                let sql = format!("UPDATE OR IGNORE {table} SET {column} = ?1");
                file.execute(&sql, [value])
            })
        } else {
            let length = usize::from(head[2]).min(rest.len());
            let (value, rest) = rest.split_at(length);
            data = rest;
            let value = String::from_utf8_lossy(value);
            let (table, columns) = TEXTS[table];
            pick(columns, head[1]).map(|column| {
                let sql = format!("UPDATE OR IGNORE {table} SET {column} = ?1");
                file.execute(&sql, [&value])
            })
        };
        // SQLite refuses a value that the table does not allow.
        let _ = changed;
    }
}

/// Looks at the file, then uses it as a client would.
fn use_file(path: &Path) {
    let time = SteppedClock::starting_at(Duration::from_secs(1_000));
    let clock = NodeClock::following(Clock::Stepped(time.clone()), START_US);
    if let Ok(store) = look::copy(path, &clock) {
        carry_out(&store);
    }
    let Ok(file) = LockFile::prepare(path) else {
        return;
    };
    let opened = schema::open(&file, &clock);
    let opened = opened.and_then(|connection| boots::settle(connection, &file, &clock));
    if let Ok(connection) = opened {
        let store = SqliteStore::new(connection, file, clock);
        carry_out(&store);
        time.step(Duration::from_secs(4));
        carry_out(&store);
        store.copy_long_log();
    }
}

fn carry_out(store: &SqliteStore) {
    if let Ok(mut transaction) = store.begin_once(Durability::Unsynced) {
        let _ = transaction.probe();
        let _ = transaction.join(Group::new(1));
        let _ = transaction.commit();
    }
    for request in requests() {
        if let Ok(mut transaction) = store.begin_once(Durability::Unsynced) {
            let _ = transaction.carry_out(&request);
            if transaction.failure().is_none() {
                let _ = transaction.commit();
            }
        }
    }
}

fn requests() -> impl Iterator<Item = Request> {
    let lock = Name::new("", "x").expect("a name");
    let shared = Name::new("", "s").expect("a name");
    let list = |breaks| {
        Op::List(List {
            cursor: "".into(),
            pages: 1,
            breaks,
        })
    };
    let requests = [
        (lock.clone(), Mode::Exclusive, Op::Inspect),
        (lock.clone(), Mode::Exclusive, acquire(None)),
        (lock.clone(), Mode::Exclusive, acquire(Some(ticket(1)))),
        (shared.clone(), Mode::Shared, acquire(None)),
        (lock.clone(), Mode::Exclusive, refresh()),
        (lock.clone(), Mode::Exclusive, list(false)),
        (lock.clone(), Mode::Exclusive, list(true)),
        (lock.latch(), Mode::Exclusive, arrive()),
        (lock, Mode::Exclusive, release()),
        (
            shared,
            Mode::Exclusive,
            Op::PlainAcquire(PlainAcquire { ttl_ms: 5 }),
        ),
    ];
    requests.into_iter().map(|(name, mode, op)| Request {
        claims: Arc::new([Claim { name, mode }]),
        token: Token::from_entropy([7; TOKEN_ENTROPY_BYTES]),
        op,
    })
}

fn ballot() -> Ballot {
    Ballot::new(START_US + 1)
}

fn ticket(number: u64) -> Ticket {
    Ticket {
        since_us: START_US + number,
        id: format!("c.{number}").into(),
        first: false,
        label: "waiter".into(),
    }
}

fn acquire(ticket: Option<Ticket>) -> Op {
    Op::Acquire(Acquire {
        ballot: ballot(),
        ttl_ms: 1_000,
        label: "holder".into(),
        ticket,
        not_after_us: None,
    })
}

fn refresh() -> Op {
    Op::Refresh(Refresh {
        tickets: (2..9).map(ticket).collect(),
    })
}

fn arrive() -> Op {
    Op::Arrive(Arrive {
        parties: Arc::new(["p".into()]),
        count: 2,
        ttl_ms: 1_000,
        since_us: Some(START_US),
    })
}

fn release() -> Op {
    Op::Release(Release {
        ballot: ballot(),
        kind: ReleaseKind::Final,
        fate_unknown: true,
        ticket: Some(ticket(3)),
        stays: false,
        keep_ms: None,
        delay_ms: 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_proper_file_has_rows_in_every_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        fs::write(&path, proper_file(folder.path())).unwrap();
        let file = Connection::open(&path).unwrap();
        for (table, columns) in NUMBERS.iter().chain(&TEXTS) {
            let columns = columns.join(", ");
            let columns = if columns.is_empty() { "*" } else { &columns };
            let rows = file.query_row(&format!("SELECT {columns} FROM {table}"), [], |_| Ok(()));
            assert_eq!(rows, Ok(()), "{table}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
        #[test]
        fn no_file_makes_it_panic(data in proptest::collection::vec(any::<u8>(), 1..200)) {
            let folder = tempfile::tempdir().unwrap();
            lock_file(folder.path(), &data);
        }
    }
}
