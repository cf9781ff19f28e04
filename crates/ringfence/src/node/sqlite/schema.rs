//! Opens the database: one of ours, or a fresh one. Refuses databases of other applications.
//!
//! Also how the processes that use a file take turns: only one at a time can write, and SQLite has no
//! queue for the others. Each tries again and again.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::Access;

use crate::clock::Clock;
use crate::node::NodeClock;

use super::SqliteError;
use super::error::is_busy;
use super::file::{FILE_MAX_BYTES, LockFile};
use super::node_row::NodeRow;
use super::sharing::may;

/// `RFNC`: identifies the database to us and to `file(1)`.
pub(super) const APPLICATION_ID: i64 = 0x5246_4e43;
/// The format of [`TABLES`] and of what is in them. Processes with different formats follow
/// different rules, so they must not share a file.
pub(super) const FORMAT: i64 = 13;

/// SQLite 3.51.3.
const LIBRARY_MIN: i32 = 3_051_003;

/// The longest value that is read. No value that we write is nearly as long.
const VALUE_MAX_BYTES: i32 = 64 << 10;

/// How long we wait for other processes that open the same fresh file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The one row of `node` has the node's clock and its group (see `node_row.rs`). `entry` is the
/// ledger, with an index on `lapses_ms` for the sweep; `ticket`, `reader` and `broken` have one row
/// for each ticket, each reader, and each hold that an operator broke. `lasts_ms` is the time that a
/// latch had left when it was last written: after a boot, when times on the lease clock are
/// invalid, it gets this time again.
const TABLES: &str = "
    CREATE TABLE node (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        boot_id TEXT NOT NULL,
        time_namespace TEXT NOT NULL,
        boot_us INTEGER NOT NULL,
        boot_moment_us INTEGER NOT NULL,
        clock_us INTEGER NOT NULL,
        promised_us INTEGER NOT NULL,
        syncs_begun INTEGER NOT NULL,
        syncs_done INTEGER NOT NULL,
        log_pages INTEGER NOT NULL,
        window_us INTEGER,
        quarantine_us INTEGER,
        grace_us INTEGER
    ) STRICT;
    CREATE TABLE entry (
        name TEXT PRIMARY KEY,
        key_value TEXT,
        key_until_ms INTEGER,
        fence INTEGER,
        read_fence INTEGER NOT NULL DEFAULT 0,
        closed INTEGER,
        seat_token TEXT,
        seat_ballot INTEGER,
        seat_label TEXT,
        seat_until_ms INTEGER NOT NULL DEFAULT 0,
        stranger INTEGER NOT NULL DEFAULT 0,
        free_since_ms INTEGER NOT NULL DEFAULT 0,
        record_until_ms INTEGER,
        lapses_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX entry_lapses ON entry (lapses_ms);
    CREATE TABLE ticket (
        name TEXT NOT NULL,
        since_us INTEGER NOT NULL,
        id TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        refreshed_ms INTEGER NOT NULL,
        elsewhere INTEGER NOT NULL,
        shared INTEGER NOT NULL,
        permits INTEGER NOT NULL,
        label TEXT NOT NULL,
        PRIMARY KEY (name, since_us, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX ticket_until ON ticket (until_ms);
    CREATE TABLE reader (
        name TEXT NOT NULL,
        token TEXT NOT NULL,
        ballot INTEGER NOT NULL,
        label TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        PRIMARY KEY (name, token)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX reader_until ON reader (until_ms);
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
    CREATE TABLE broken (
        name TEXT NOT NULL,
        number INTEGER NOT NULL,
        at_us INTEGER NOT NULL,
        until_us INTEGER NOT NULL,
        fence INTEGER NOT NULL,
        ballot INTEGER NOT NULL,
        id TEXT NOT NULL,
        by TEXT NOT NULL,
        label TEXT NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (name, number)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX broken_until ON broken (until_us);
";

#[derive(Debug, PartialEq, Eq)]
enum FileIdentity {
    Fresh,
    Ours,
    /// Ours, in an earlier or a later format.
    OtherFormat(i64),
    /// Ours by its number, but not by its tables.
    Changed,
    Other,
}

/// Refuses a version of SQLite in which two processes may damage the database: if one copied the log
/// while another began it anew, parts of the log were lost ("WAL-reset bug").
pub(super) fn refuse_library(number: i32) -> Result<(), SqliteError> {
    if number >= LIBRARY_MIN {
        return Ok(());
    }
    let (rest, patch) = (number / 1000, number % 1000);
    let version = format!("{}.{}.{patch}", rest / 1000, rest % 1000);
    Err(SqliteError::Library(version))
}

/// Opens the database in `file`, and creates our tables if it is fresh.
pub(super) fn open(file: &LockFile, clock: &NodeClock) -> Result<Connection, SqliteError> {
    let path = file.path();
    let mut connection = connect(file).map_err(|error| SqliteError::opening(path, error))?;
    // SQLite opens such a file for reading only.
    if !may(file.real(), Access::WRITE_OK) {
        return Err(SqliteError::read_only(path));
    }
    prepare(&mut connection, path, clock)?;
    Ok(connection)
}

/// Checks that the database of `connection` is ours or fresh, and creates our tables if it is fresh.
pub(super) fn prepare(
    connection: &mut Connection,
    path: &Path,
    clock: &NodeClock,
) -> Result<(), SqliteError> {
    // Checked before anything is written: another application's database must not be changed. In
    // one transaction, so that a file whose tables are being created does not look like another
    // application's.
    let identity = patiently(|| identity(&*connection.unchecked_transaction()?));
    match identity.map_err(|error| SqliteError::opening(path, error))? {
        FileIdentity::Ours => {
            return patiently(|| configure(connection))
                .map_err(|error| SqliteError::opening(path, error));
        }
        FileIdentity::Fresh => {}
        FileIdentity::OtherFormat(found) => return Err(SqliteError::other_format(path, found)),
        FileIdentity::Changed => return Err(SqliteError::OtherTables(path.to_owned())),
        FileIdentity::Other => return Err(SqliteError::OtherApplication(path.to_owned())),
    }
    patiently(|| set_up(connection, clock)).map_err(|error| SqliteError::opening(path, error))
}

/// A connection that can begin a transaction only if no other one has the file open, in any
/// process: in this mode SQLite needs an exclusive lock on the file, of which every open connection
/// has a shared one.
pub(super) fn connect_alone(file: &LockFile) -> rusqlite::Result<Connection> {
    let connection = connect(file)?;
    connection.pragma_update(None, "locking_mode", "exclusive")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn connect(file: &LockFile) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(file.real(), flags)?;
    // A plain function, which every version of rusqlite accepts.
    connection.busy_handler(Some(wait as fn(i32) -> bool))?;
    restrict(&connection)?;
    // Otherwise SQLite compiles a statement with `LIMIT ?` anew each time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Limits what the file can do to us. It is not trusted: its schema gets no more rights than data,
/// and no value in it needs much memory.
pub(super) fn restrict(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    // Fails for a negative limit only. Earlier versions of rusqlite return a number here.
    let _ = connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX_BYTES);
    Ok(())
}

/// Lets the database of `connection` have as many pages of the size in `source` as a lock file may
/// have.
pub(super) fn limit_size(connection: &Connection, source: &Connection) -> rusqlite::Result<()> {
    let page_bytes: i64 = source.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let most = FILE_MAX_BYTES / page_bytes.max(1);
    connection.pragma_update(None, "max_page_count", most)
}

fn identity(connection: &Connection) -> rusqlite::Result<FileIdentity> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let format = number("PRAGMA user_version")?;
    let is_fresh = || -> rusqlite::Result<bool> { Ok(tables(connection)?.is_empty()) };
    Ok(match (application, format) {
        (APPLICATION_ID, FORMAT) => match tables(connection)? == our_tables()? {
            true => FileIdentity::Ours,
            false => FileIdentity::Changed,
        },
        (APPLICATION_ID, format) => FileIdentity::OtherFormat(format),
        (0, 0) if is_fresh()? => FileIdentity::Fresh,
        _ => FileIdentity::Other,
    })
}

/// Every table, index, view and trigger, with its SQL.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<[Option<String>; 3]>> {
    let sql = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name";
    let mut schema = connection.prepare(sql)?;
    let tables = schema.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?;
    tables.collect()
}

/// Our tables, as SQLite describes them.
fn our_tables() -> rusqlite::Result<&'static [[Option<String>; 3]]> {
    static OURS: OnceLock<Vec<[Option<String>; 3]>> = OnceLock::new();
    if let Some(ours) = OURS.get() {
        return Ok(ours);
    }
    let made = Connection::open_in_memory()?;
    made.execute_batch(TABLES)?;
    let ours = tables(&made)?;
    Ok(OURS.get_or_init(|| ours))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // More than there are, so that none is compiled twice.
    connection.set_prepared_statement_cache_capacity(64);
    use_log(connection)?;
    // It never grows so large that it would be refused.
    limit_size(connection, connection)?;
    // SQLite would not report that a sync of these copies failed: `sync.rs` makes them.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // The tables must survive a power cut. For other transactions `sync.rs` decides.
    connection.pragma_update(None, "synchronous", "full")
}

/// Switches an empty file, or one that another program has changed, to a write-ahead log. A file
/// that we have made has one (`file.rs`).
fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    // Without this SQLite makes a rollback journal for the switch, and other processes refuse to
    // use a file with a journal beside it.
    connection.pragma_update(None, "journal_mode", "memory")?;
    connection.pragma_update(None, "journal_mode", "wal")
}

/// Sets the connection up, and creates the tables, unless another process was faster. If the file
/// was changed since the first check, every call will report it.
fn set_up(connection: &mut Connection, clock: &NodeClock) -> rusqlite::Result<()> {
    configure(connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if identity(&transaction)? == FileIdentity::Fresh {
        transaction.execute_batch(TABLES)?;
        NodeRow::beginning(clock).store(&transaction)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()
}

/// Repeats `step` while the database is busy. SQLite does not wait at every step of switching a
/// fresh file to a write-ahead log, and twenty processes may do that at once.
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

/// How often SQLite itself tries before it reports that the database is busy.
const BUSY_MAX: i32 = 150;

thread_local! {
    /// Whether connections wait on this thread while the file is locked.
    static WAITS: Cell<bool> = const { Cell::new(true) };
}

/// Does `work` on this thread without waiting for other processes.
pub(super) fn without_waiting<T>(work: impl FnOnce() -> T) -> T {
    WAITS.set(false);
    let done = work();
    WAITS.set(true);
    done
}

/// Waits before the next try, after `tries` that failed. Returns whether to try again.
fn wait(tries: i32) -> bool {
    if !WAITS.get() {
        return false;
    }
    match pause(tries) {
        Duration::ZERO => thread::yield_now(),
        pause => thread::sleep(pause),
    }
    tries < BUSY_MAX
}

/// The pause after `tries` that failed. (SQLite's own handler backs off up to 100 ms, which is too
/// long for a lock.)
///
/// A transaction is short, so the first pause is. If the file is still locked, other processes use
/// it all the time: then this one waits for a while, and tries often only after that. So a process
/// that has waited long has the best chance, and those that come later leave it the processor.
fn pause(tries: i32) -> Duration {
    match tries {
        0 => Duration::from_micros(50),
        1..4 => Duration::from_micros(500),
        4..100 if tries % 2 == 0 => Duration::ZERO,
        4..100 => Duration::from_micros(20),
        _ => Duration::from_millis(1),
    }
}

/// A database of the present format in memory, for tests.
#[cfg(test)]
pub(super) fn in_memory() -> Connection {
    let connection = Connection::open_in_memory().expect("memory");
    connection.execute_batch(TABLES).expect("our own tables");
    connection
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_connection_waits_for_another_one_only_if_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.db");
        let blocker = Connection::open(&path).unwrap();
        blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut connection = Connection::open(&path).unwrap();
        connection
            .busy_handler(Some(wait as fn(i32) -> bool))
            .unwrap();
        // The shortest of several: the machine may be busy.
        let shortest = || {
            let took = (0..5).map(|_| {
                let begun = Clock::System.now();
                connection.execute_batch("BEGIN IMMEDIATE").unwrap_err();
                Clock::System.now().since(begun)
            });
            took.min().unwrap()
        };
        let all_pauses: Duration = (0..BUSY_MAX).map(pause).sum();
        assert!(shortest() >= all_pauses);
        assert!(without_waiting(shortest) < all_pauses / 2);
        assert!(shortest() >= all_pauses);
    }

    #[test]
    fn a_library_that_may_damage_the_file_is_refused() {
        for number in [3_046_000, 3_050_004, 3_051_002] {
            let error = refuse_library(number).unwrap_err().to_string();
            assert!(error.contains("3.51.3"), "{error}");
        }
        let error = refuse_library(3_046_001).unwrap_err().to_string();
        assert!(error.starts_with("SQLite 3.46.1 "), "{error}");
        for number in [3_051_003, 3_053_000, 4_000_000] {
            refuse_library(number).unwrap();
        }
        refuse_library(rusqlite::version_number()).unwrap();
    }
}
