//! Fenced rows: which transaction waits for which, and the effect of isolation levels and of
//! `BEGIN`.

use std::time::Duration;

use ringfence::resource::sql::{POSTGRES, SQLITE};
use ringfence_testkit::{Postgres, Psql, wait_until};
use rusqlite::{Connection, ErrorCode, params};

const PATIENCE: Duration = Duration::from_secs(20);

struct Database {
    server: Postgres,
}

impl Database {
    fn start() -> Self {
        let server = Postgres::start();
        let mut session = server.session();
        session.must(POSTGRES.create);
        session.must("CREATE TABLE account (balance int); INSERT INTO account VALUES (100)");
        Self { server }
    }

    fn session(&self) -> Psql {
        let mut session = self.server.session();
        crate::resource::stores::prepare(&mut session);
        session
    }

    fn until_a_session_waits(&self) {
        let mut watcher = self.server.session();
        let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        wait_until("a session to wait", PATIENCE, || watcher.must(count) == "1");
    }
}

const ADMITTED: &str = "INSERT 0 1";
const REFUSED: &str = "INSERT 0 0";

#[test]
fn between_admission_and_commit_no_other_transaction_is_admitted() {
    let database = Database::start();
    let (mut older, mut newer) = (database.session(), database.session());
    // The first admission creates the row, the others find it.
    for (old_fence, new_fence, balance) in [(5, 7, "90|150"), (8, 9, "90|150")] {
        older.must("BEGIN");
        let admit = format!("EXECUTE admit_write('a', {old_fence})");
        assert_eq!(older.must(&admit), ADMITTED);
        newer.must("BEGIN");
        newer.send(&format!("EXECUTE admit_write('a', {new_fence})"));
        database.until_a_session_waits();
        older.must("UPDATE account SET balance = 90; COMMIT");
        assert_eq!(newer.answer().unwrap(), ADMITTED);
        let seen = newer.must("SELECT balance, balance + 60 FROM account");
        assert_eq!(seen, balance, "the second transaction read old data");
        newer.must("UPDATE account SET balance = balance + 60; COMMIT");
    }
}

#[test]
fn a_transaction_that_waited_for_a_higher_fence_is_refused() {
    let database = Database::start();
    let (mut older, mut newer) = (database.session(), database.session());
    newer.must("BEGIN");
    assert_eq!(newer.must("EXECUTE admit_read('a', 7)"), ADMITTED);
    older.must("BEGIN");
    older.send("EXECUTE admit_write('a', 5)");
    database.until_a_session_waits();
    newer.must("COMMIT");
    assert_eq!(older.answer().unwrap(), REFUSED);
    // The mark that refused it can be read for the error.
    assert_eq!(older.must("EXECUTE marks('a')"), "7|0");
    older.must("ROLLBACK");
}

/// A rolled back transaction counts as never admitted.
#[test]
fn a_rolled_back_admission_leaves_no_mark() {
    let database = Database::start();
    let (mut one, mut other) = (database.session(), database.session());
    one.must("BEGIN; EXECUTE admit_write('a', 7); ROLLBACK");
    assert_eq!(other.must("EXECUTE admit_write('a', 5)"), ADMITTED);
}

#[test]
fn with_stricter_isolation_a_waiting_admission_fails_to_serialize() {
    let database = Database::start();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (mut older, mut newer) = (database.session(), database.session());
        let begin = format!("BEGIN ISOLATION LEVEL {level}");
        older.must(&begin);
        assert_eq!(
            older.must(&format!("EXECUTE admit_write('{level}', 5)")),
            ADMITTED
        );
        newer.must(&begin);
        newer.send(&format!("EXECUTE admit_write('{level}', 7)"));
        database.until_a_session_waits();
        older.must("UPDATE account SET balance = balance - 10; COMMIT");
        let error = newer.answer().unwrap_err();
        assert!(error.contains("could not serialize access"), "{error}");
        newer.must("ROLLBACK");
        newer.must(&begin);
        assert_eq!(
            newer.must(&format!("EXECUTE admit_write('{level}', 7)")),
            ADMITTED
        );
        newer.must("COMMIT");
    }
}

/// Why admission comes first: otherwise an update is lost, although both fences are in order.
#[test]
fn reading_before_admission_loses_an_update() {
    let database = Database::start();
    let (mut older, mut newer) = (database.session(), database.session());
    newer.must("BEGIN");
    assert_eq!(newer.must("SELECT balance FROM account"), "100");
    assert_eq!(older.must("EXECUTE admit_write('a', 5)"), ADMITTED);
    older.must("UPDATE account SET balance = 90");
    assert_eq!(newer.must("EXECUTE admit_write('a', 7)"), ADMITTED);
    newer.must("UPDATE account SET balance = 100 + 50; COMMIT");
    assert_eq!(older.must("SELECT balance FROM account"), "150");
}

#[test]
fn in_sqlite_an_immediate_transaction_waits_and_one_that_read_first_fails() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let database = Connection::open(folder.path().join("data.db")).unwrap();
        database.pragma_update(None, "journal_mode", "wal").unwrap();
        database.busy_timeout(PATIENCE).unwrap();
        database
    };
    let (older, newer) = (open(), open());
    older.execute(SQLITE.create, []).unwrap();
    let admit = |database: &Connection, fence: i64| {
        database.execute(SQLITE.admit_write, params!["a", fence])
    };

    newer.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(admit(&newer, 7), Ok(1));
    let waits = std::thread::spawn(move || {
        older.execute_batch("BEGIN IMMEDIATE").unwrap();
        let admitted = admit(&older, 5);
        older.execute_batch("ROLLBACK").unwrap();
        (admitted, older)
    });
    newer.execute_batch("COMMIT").unwrap();
    let (admitted, older) = waits.join().unwrap();
    assert_eq!(admitted, Ok(0));

    // With a plain BEGIN the admission must be the first statement.
    older.execute_batch("BEGIN").unwrap();
    assert_eq!(admit(&older, 8), Ok(1));
    older.execute_batch("COMMIT").unwrap();
    older.execute_batch("BEGIN").unwrap();
    let read = older.query_row(SQLITE.marks, ["a"], |row| row.get::<_, i64>(1));
    assert_eq!(read, Ok(8));
    assert_eq!(admit(&newer, 9), Ok(1));
    let error = admit(&older, 10).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
}

/// The mark may be in the row itself if an exclusive lock guards it: see the guide.
#[test]
fn one_column_is_enough_for_rows_under_an_exclusive_lock() {
    let database = Connection::open_in_memory().unwrap();
    database
        .execute_batch(
            "CREATE TABLE account (id integer PRIMARY KEY, balance bigint);
             INSERT INTO account VALUES (1, 100);
             ALTER TABLE account ADD COLUMN fence bigint NOT NULL DEFAULT 0;",
        )
        .unwrap();
    let read = |fence: i64| -> Option<i64> {
        let raise = "UPDATE account SET fence = ?1 WHERE id = ?2 AND fence <= ?1 RETURNING balance";
        let row = database.query_row(raise, params![fence, 1], |row| row.get(0));
        row.ok()
    };
    let write = |fence: i64, balance: i64| -> bool {
        let update = "UPDATE account SET balance = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2";
        database
            .execute(update, params![balance, fence, 1])
            .unwrap()
            == 1
    };
    assert_eq!(read(5), Some(100));
    assert_eq!(read(7), Some(100));
    assert!(!write(5, 90), "data that fence 7 has read was changed");
    assert!(write(7, 150));
    assert_eq!(read(6), None);
    assert_eq!(read(8), Some(150));
}
