//! Opens the database: one of ours, or a fresh one. Refuses databases of other applications.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::clock::Clock;
use crate::node::NodeClock;

use super::SqliteError;
use super::busy::Patience;
use super::error::is_busy;
use super::file::LockFile;
use super::node_row::NodeRow;

/// `RFNC`: identifies the database to us and to `file(1)`.
pub(super) const APPLICATION_ID: i64 = 0x5246_4e43;
/// The format that we write: the number of [`STEPS`] that were taken.
pub(super) const FORMAT: i64 = STEPS.len() as i64;

/// How long we wait for other processes that open the same fresh file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The upgrades of a database from a fresh one on: step n makes format n.
const STEPS: [&str; 9] = [
    ENTRIES, TICKETS, READERS, LATCHES, RULES, PARTS, PROMISE, SYNCS, BREAKS,
];

/// The one row of `node` has the node's clock and its group (see `node_row.rs`). `entry` is the
/// ledger, with an index on `lapses_ms` for the sweep.
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

/// One row for each ticket. The new columns have defaults, so that a process which still runs the
/// code of format 1 does no harm: it ignores the queue, but its locks are valid.
const TICKETS: &str = "
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

/// One row for each reader. A process which still runs the code of an earlier format takes the
/// marker in the key for another library's lock, so exclusion works; but its writes drop the read
/// fence.
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

/// One row for each latch and each party. `lasts_ms` is the time that a latch had left when it was
/// last written: after a boot, when times on the lease clock are invalid, it gets this time again.
/// A process which still runs the code of an earlier format knows no latches.
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

/// The same tables with a new format number, so that a process which still runs the code of an
/// earlier format cannot open the file: the rules for births have changed, and all clients of a
/// group must follow the same rules.
const RULES: &str = "";

macro_rules! rename_parts {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET name = substr(name, 1, instr(name, '}')) || CASE
                WHEN substr(name, instr(name, '}') + 1, 4) = 'gate'
                    THEN ':admission' || substr(name, instr(name, '}') + 5)
                WHEN substr(name, instr(name, '}') + 1, 4) = 'slot'
                    THEN ':slot:' || substr(name, instr(name, '}') + 5)
                ELSE ':' || substr(name, instr(name, '}') + 1)
                END
            WHERE substr(name, 1, 11) = 'ringfence:{';\n"
        )
    };
}

/// New names for the parts of semaphores and latches: `ringfence:{tag}slot3:NAME` becomes
/// `ringfence:{tag}:slot:3:NAME`. Two processes that use different names would both take the slot,
/// so a process which still runs the code of an earlier format cannot open the file. All other
/// names are those of locks, and none of them begins with `ringfence:`.
const PARTS: &str = concat!(
    rename_parts!("entry"),
    rename_parts!("ticket"),
    rename_parts!("latch"),
    rename_parts!("party"),
);

/// The highest ballot that the node may have accepted, and when the machine was booted
/// (`node_row.rs`). A process which still runs the code of an earlier format would accept ballots
/// without a promise, so it cannot open the file.
const PROMISE: &str = "
    ALTER TABLE node ADD COLUMN promised_us INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE node ADD COLUMN boot_moment_us INTEGER;
";

/// How many syncs were begun, and which was the last that succeeded (`sync.rs`). A process which
/// still runs the code of an earlier format would not notice the failed sync of another process, so
/// it cannot open the file.
const SYNCS: &str = "
    ALTER TABLE node ADD COLUMN syncs_begun INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE node ADD COLUMN syncs_done INTEGER NOT NULL DEFAULT 0;
";

/// One row for each hold that an operator broke. A process which still runs the code of an earlier
/// format would not tell its holders why they lost the lock, so it cannot open the file.
const BREAKS: &str = "
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
    /// Ours, in the present format or an earlier one.
    Ours(usize),
    Newer(i64),
    Other,
}

/// Opens the database in `file`, and creates our tables if it is fresh.
pub(super) fn open(file: &LockFile, clock: &NodeClock) -> Result<Connection, SqliteError> {
    let path = file.path();
    let mut connection = connect(file).map_err(|error| SqliteError::opening(path, error))?;
    if connection.is_readonly("main").unwrap_or(false) {
        return Err(SqliteError::read_only(path));
    }
    prepare(&mut connection, path, clock)?;
    Ok(connection)
}

/// Checks that the database of `connection` is ours or fresh, and creates or upgrades our tables.
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
        FileIdentity::Ours(format) if format == STEPS.len() => {
            return patiently(|| configure(connection))
                .map_err(|error| SqliteError::opening(path, error));
        }
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
    patiently(|| set_up(connection, clock)).map_err(|error| SqliteError::opening(path, error))
}

fn connect(file: &LockFile) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(file.real(), flags)?;
    Patience::of(&mut connection)?;
    // The file is not trusted: its schema gets no more rights than data.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    // Otherwise SQLite compiles a statement with `LIMIT ?` anew each time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
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

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // More than there are, so that none is compiled twice.
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "journal_mode", "wal")?;
    // SQLite would not report that a sync of these copies failed: `log.rs` makes them.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // The tables must survive a power cut. For other transactions `sync.rs` decides.
    connection.pragma_update(None, "synchronous", "full")
}

/// Sets the connection up, and creates or upgrades the tables, unless another process was faster.
fn set_up(connection: &mut Connection, clock: &NodeClock) -> rusqlite::Result<()> {
    configure(connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let taken = match identity(&transaction)? {
        FileIdentity::Fresh => 0,
        FileIdentity::Ours(format) => format,
        // Changed since the first check; every call will report it.
        FileIdentity::Newer(_) | FileIdentity::Other => STEPS.len(),
    };
    for step in &STEPS[taken..] {
        transaction.execute_batch(step)?;
    }
    if taken == 0 {
        NodeRow::beginning(clock).insert(&transaction)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    if taken < STEPS.len() {
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

/// A database of the present format in memory, for tests.
#[cfg(test)]
pub(super) fn in_memory() -> Connection {
    let connection = Connection::open_in_memory().expect("memory");
    for step in STEPS {
        connection.execute_batch(step).expect("our own tables");
    }
    connection
}
