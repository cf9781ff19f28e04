//! SQLite files that an older version wrote.

use ringfence_core::name::Name;

use super::*;

/// The first format, without wait queues. Alice holds `held`, and `old` has a fence.
const FORMAT_1: &str = "
    CREATE TABLE node (
        one INTEGER PRIMARY KEY CHECK (one = 1), boot_id TEXT NOT NULL, boot_us INTEGER NOT NULL,
        clock_us INTEGER NOT NULL, window_us INTEGER, quarantine_us INTEGER, grace_us INTEGER
    ) STRICT;
    CREATE TABLE entry (
        name TEXT PRIMARY KEY, key_value TEXT, key_until_ms INTEGER, fence INTEGER, closed INTEGER,
        seat_token TEXT, seat_ballot INTEGER, seat_label TEXT, record_until_ms INTEGER,
        lapses_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX entry_lapses ON entry (lapses_ms);
    PRAGMA application_id = 0x52464e43;
    PRAGMA user_version = 1;
    INSERT INTO node VALUES
        (1, 'a test''s boot', 1000000000, 1700000000000000, 5000000, 35000000, 1500000);
    INSERT INTO entry VALUES
        ('old', NULL, NULL, 1700000000000007, 1700000000000007, NULL, NULL, NULL, 1060000, 1060000);
";

fn format_1(machine: &Machine) -> Ballot {
    let file = Connection::open(machine.file()).unwrap();
    file.execute_batch(FORMAT_1).unwrap();
    let fence = Ballot::new(WALL_US + 5);
    file.execute(
        "INSERT INTO entry VALUES ('held', ?1, 1010000, ?2, 0, ?1, ?2, 'job', 1060000, 1060000)",
        rusqlite::params![token(ALICE).expose(), fence.get().cast_signed()],
    )
    .unwrap();
    fence
}

#[test]
fn a_file_of_the_first_format_is_upgraded_with_its_locks_and_fences() {
    let machine = Machine::new();
    let fence = format_1(&machine);
    let node = machine.open(machine.clock());
    assert_eq!(stamp(&node, "old").floor, Ballot::new(WALL_US + 7));
    let bob = ticket(WALL_US, "b.1");
    let waiting = acquire_with_ticket(plus(fence, 1), TTL_MS, &bob);
    let holder = held(ask(&node, "held", BOB, waiting.clone()));
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.id.as_deref(), Some(token(ALICE).id()));
    assert_eq!(holder.for_ms, Some(10_000));
    // The lease of before the upgrade determines when the name became free.
    machine.time.step(Duration::from_millis(10_100));
    let carol = ticket(WALL_US + 1, "c.1");
    ask(&node, "held", BOB, refresh(&[&bob, &carol]));
    let late = acquire_with_ticket(plus(fence, 20_000_000), TTL_MS, &carol);
    let behind = Answer::Behind {
        ahead: 1,
        for_ms: Some(1_500 - 99),
    };
    assert_eq!(ask(&node, "held", 3, late), behind);
    assert!(take_in_queue(&node, "held", BOB, &bob) > fence);
    let fresh = Machine::new();
    drop(fresh.open(fresh.clock()));
    assert_eq!(format(&machine), format(&fresh));
}

/// Until format 5 the parts of semaphores and latches had other names in the file.
#[test]
fn semaphores_and_latches_of_format_5_keep_their_holders_and_parties() {
    let machine = Machine::new();
    drop(machine.open(machine.clock()));
    let file = Connection::open(machine.file()).unwrap();
    file.execute_batch(
        "INSERT INTO entry (name, key_value, key_until_ms, lapses_ms) VALUES
            ('ringfence:{s}slot1:s', 'theirs', 1010000, 1060000),
            ('ringfence:{s}gate:s', '2', 1060000, 1060000),
            ('slot}gate:', 'theirs', 1010000, 1060000);
        INSERT INTO ticket VALUES ('ringfence:{s}gate:s', 5, 'c.1', 1010000, 1000000, 0, 0);
        INSERT INTO latch VALUES ('ringfence:{x}latch:a{x}', 5, 1010000, 10000);
        INSERT INTO party VALUES ('ringfence:{x}latch:a{x}', 'p');
        ALTER TABLE node DROP COLUMN promised_us;
        ALTER TABLE node DROP COLUMN boot_moment_us;
        ALTER TABLE node DROP COLUMN syncs_begun;
        ALTER TABLE node DROP COLUMN syncs_done;
        DROP TABLE broken;
        PRAGMA user_version = 5;",
    )
    .unwrap();
    drop(machine.open(machine.clock()));
    let names = |table| -> Vec<String> {
        let mut rows = file
            .prepare(&format!("SELECT name FROM {table} ORDER BY name"))
            .unwrap();
        let names = rows.query_map([], |row| row.get(0)).unwrap();
        names.collect::<Result<_, _>>().unwrap()
    };
    let (name, latch) = (
        Name::new("", "s").unwrap(),
        Name::new("", "a{x}").unwrap().latch(),
    );
    let (gate, slot) = (name.admission(), name.slot(1));
    assert_eq!(names("entry"), [gate.as_str(), slot.as_str(), "slot}gate:"]);
    assert_eq!(names("ticket"), [gate.as_str()]);
    assert_eq!(names("latch"), [latch.as_str()]);
    assert_eq!(names("party"), [latch.as_str()]);
}

/// The format number in a file.
fn format(machine: &Machine) -> i64 {
    let file = Connection::open(machine.file()).unwrap();
    file.query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn a_file_whose_upgrade_fails_stays_unchanged() {
    let machine = Machine::new();
    format_1(&machine);
    let file = Connection::open(machine.file()).unwrap();
    file.execute_batch("CREATE TABLE ticket (mine)").unwrap();
    let error = SqliteNode::open(machine.file(), machine.clock()).unwrap_err();
    assert!(matches!(error, SqliteError::Database { .. }), "{error:?}");
    let (format, columns): (i64, i64) = file
        .query_row(
            "SELECT (SELECT user_version FROM pragma_user_version),
                    (SELECT count(*) FROM pragma_table_info('entry'))",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((format, columns), (1, 10));
}
