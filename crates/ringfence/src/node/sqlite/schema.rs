//! Opening the database: ours, fresh, or none of our business.

use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::clock::Clock;
use crate::node::NodeClock;

use super::SqliteError;
use super::error::is_busy;
use super::file::LockFile;
use super::past::Past;

/// `RFNC`: how we, and `file(1)`, know the database.
pub(super) const APPLICATION_ID: i64 = 0x5246_4e43;
/// The format that we write: how many of the [`STEPS`] have been taken.
pub(super) const FORMAT: i64 = STEPS.len() as i64;

/// How long other processes that open the same fresh file may keep us waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long SQLite itself tries before it reports that the database is busy.
const BUSY_MS: i32 = 50;

/// How many pages the log has before it is copied into the database, which takes several syncs: so
/// many that few calls wait for it, and so few that the log stays small.
const CHECKPOINT_PAGES: i64 = 4_000;

/// How a database came to be what it is, from a fresh one on: step n makes format n.
const STEPS: [&str; 6] = [ENTRIES, LINES, READERS, LATCHES, RULES, PROMISE];

/// One row of `node` says what the node last knew of time and which group it belongs to (see
/// `past.rs`); `entry` is the ledger, and `lapses_ms` tells where a sweep may look.
const ENTRIES: &str = "
    CREATE TABLE node (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        boot_id TEXT NOT NULL,
        boot_us INTEGER NOT NULL,
        clock_us INTEGER NOT NULL,
        window_us INTEGER,
        quarantine_us INTEGER,
        grace_us INTEGER
    ) STRICT;
    CREATE TABLE entry (
        name TEXT PRIMARY KEY,
        key_value TEXT,
        key_until_ms INTEGER,
        fence INTEGER,
        closed INTEGER,
        seat_token TEXT,
        seat_ballot INTEGER,
        seat_label TEXT,
        record_until_ms INTEGER,
        lapses_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX entry_lapses ON entry (lapses_ms);
";

/// Those who wait, a row each. The new columns have defaults, so that a process which still runs
/// the code of format 1 does no harm: it passes the line, but its locks are locks.
const LINES: &str = "
    ALTER TABLE entry ADD COLUMN seat_until_ms INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE entry ADD COLUMN stranger INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE entry ADD COLUMN free_since_ms INTEGER NOT NULL DEFAULT 0;
    UPDATE entry SET seat_until_ms = ifnull(key_until_ms, record_until_ms)
        WHERE key_value = seat_token;
    CREATE TABLE ticket (
        name TEXT NOT NULL,
        since_us INTEGER NOT NULL,
        id TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        refreshed_ms INTEGER NOT NULL,
        elsewhere INTEGER NOT NULL,
        PRIMARY KEY (name, since_us, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX ticket_until ON ticket (until_ms);
";

/// Those who share a name, a row each. A process which still runs the code of an earlier format takes
/// the marker in the key for another library's lock, so it excludes and is excluded; but it knows
/// nothing of the read fence, and its own writes forget it.
const READERS: &str = "
    ALTER TABLE entry ADD COLUMN read_fence INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE ticket ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE reader (
        name TEXT NOT NULL,
        token TEXT NOT NULL,
        ballot INTEGER NOT NULL,
        label TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        PRIMARY KEY (name, token)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX reader_until ON reader (until_ms);
";

/// Latches, and those who have arrived at them, a row each. `lasts_ms` is how long a latch had to live
/// when it was last written: after a boot, when the time on the lease clock means nothing any more, it
/// lives as long again. A process which still runs the code of an earlier format knows no latches.
const LATCHES: &str = "
    CREATE TABLE latch (
        name TEXT PRIMARY KEY,
        since_us INTEGER NOT NULL,
        until_ms INTEGER NOT NULL,
        lasts_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX latch_until ON latch (until_ms);
    CREATE TABLE party (
        name TEXT NOT NULL,
        party TEXT NOT NULL,
        PRIMARY KEY (name, party)
    ) STRICT, WITHOUT ROWID;
";

/// The same tables under a new number, so that a process which still runs the code of an earlier format
/// cannot open the file: a server's birth is decided by other rules since then, and all clients of a
/// group must have the same.
const RULES: &str = "";

/// The highest ballot that the node may have accepted, and when the machine was booted (`past.rs`). A
/// process which still runs the code of an earlier format would accept ballots without a promise, so
/// it cannot open the file.
const PROMISE: &str = "
    ALTER TABLE node ADD COLUMN promised_us INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE node ADD COLUMN boot_moment_us INTEGER;
";

#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    Fresh,
    /// Ours, in the present format or an earlier one.
    Ours(usize),
    Newer(i64),
    Other,
}

/// Opens the database in `file`, and makes it ours if it is fresh.
pub(super) fn open(file: &LockFile, clock: &NodeClock) -> Result<Connection, SqliteError> {
    let path = file.path();
    let mut connection = connect(file).map_err(|error| SqliteError::opening(path, error))?;
    if connection.is_readonly("main").unwrap_or(false) {
        return Err(SqliteError::read_only(path));
    }
    // Asked before anything is written: another application's database stays as it is.
    // One transaction, lest a file that is just being made ours look like somebody else's.
    let identity = patiently(|| identity(&*connection.unchecked_transaction()?));
    match identity.map_err(|error| SqliteError::opening(path, error))? {
        FileIdentity::Fresh | FileIdentity::Ours(_) => {}
        FileIdentity::Newer(found) => {
            return Err(SqliteError::Newer {
                path: path.to_owned(),
                found,
                known: FORMAT,
            });
        }
        FileIdentity::Other => return Err(SqliteError::OtherApplication(path.to_owned())),
    }
    patiently(|| set_up(&mut connection, clock))
        .map_err(|error| SqliteError::opening(path, error))?;
    Ok(connection)
}

fn connect(file: &LockFile) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(file.real(), flags)?;
    connection.busy_handler(Some(|tries| {
        // SQLite's own handler backs off to 100 ms; a lock is wanted sooner than that.
        thread::sleep(Duration::from_millis(1));
        tries < BUSY_MS
    }))?;
    // The file may come from anywhere: its schema gets no more rights than data.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    Ok(connection)
}

fn identity(connection: &Connection) -> rusqlite::Result<FileIdentity> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let format = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    Ok(match (application, format, tables) {
        (APPLICATION_ID, format, _) if format > FORMAT => FileIdentity::Newer(format),
        (APPLICATION_ID, format @ 1.., _) => FileIdentity::Ours(format as usize),
        (0, 0, 0) => FileIdentity::Fresh,
        _ => FileIdentity::Other,
    })
}

/// Sets the connection up and makes the tables or brings them up to date, unless another process
/// was faster.
fn set_up(connection: &mut Connection, clock: &NodeClock) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    // What makes the file ours must survive a power cut. `store.rs` decides for each transaction.
    connection.pragma_update(None, "synchronous", "full")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let taken = match identity(&transaction)? {
        FileIdentity::Fresh => 0,
        FileIdentity::Ours(format) => format,
        // Changed since it was first looked at; every call will say so.
        FileIdentity::Newer(_) | FileIdentity::Other => STEPS.len(),
    };
    for step in &STEPS[taken..] {
        transaction.execute_batch(step)?;
    }
    if taken == 0 {
        Past::beginning(clock).insert(&transaction)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    if taken < STEPS.len() {
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()
}

/// Repeats `step` while the database is busy. SQLite does not wait at every step of turning a fresh
/// file into a write-ahead logged one, and twenty processes may do it at once.
fn patiently<T>(mut step: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let patient_until = Clock::System.now() + PATIENCE;
    loop {
        match step() {
            Err(error) if is_busy(&error) && Clock::System.now() < patient_until => {
                thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome,
        }
    }
}

/// A database of the present format in memory, for tests of what is read from one.
#[cfg(test)]
pub(super) fn in_memory() -> Connection {
    let connection = Connection::open_in_memory().expect("memory");
    for step in STEPS {
        connection.execute_batch(step).expect("our own tables");
    }
    connection
}
