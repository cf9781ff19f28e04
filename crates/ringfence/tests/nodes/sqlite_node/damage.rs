//! SQLite files that are damaged, removed, or not ours.

use super::*;

#[test]
fn a_damaged_row_is_an_error_that_names_the_file_and_the_lock() {
    let damages = [
        "UPDATE entry SET fence = -1",
        "UPDATE entry SET fence = 9007199254740992",
        "UPDATE entry SET closed = NULL",
        "UPDATE entry SET record_until_ms = -5",
        "UPDATE entry SET seat_label = NULL",
        "UPDATE entry SET key_until_ms = -1",
        "UPDATE entry SET key_value = NULL",
        "UPDATE entry SET key_value = CAST(x'ff' AS TEXT)",
        "UPDATE entry SET seat_until_ms = -1",
        "UPDATE entry SET free_since_ms = -1",
        "UPDATE ticket SET since_us = -1",
        "UPDATE ticket SET until_ms = -1",
        "UPDATE ticket SET refreshed_ms = -1",
        "UPDATE ticket SET id = CAST(x'ff' AS TEXT)",
    ];
    for damage in damages {
        let machine = Machine::new();
        let node = machine.open(machine.clock());
        take(&node, "x", ALICE);
        ask(&node, "x", BOB, refresh(&[&ticket(WALL_US, "b.1")]));
        Connection::open(machine.file())
            .unwrap()
            .execute(damage, [])
            .unwrap();
        let outcome = send(&node, request(&["x"], ALICE, Op::Inspect), NEVER).wait();
        let Err(CallError::Refused(trouble)) = outcome else {
            panic!("{damage}: {outcome:?}");
        };
        assert_eq!(trouble.kind, TroubleKind::Garbage, "{damage}");
        let text = trouble.to_string();
        assert!(text.contains("locks.db") && text.contains("`x`"), "{text}");
        take(&node, "healthy", ALICE);
    }
}

#[test]
fn a_damaged_node_row_is_an_error_that_names_the_file() {
    for damage in [
        "DELETE FROM node",
        "UPDATE node SET clock_us = -1",
        "UPDATE node SET clock_us = 9223372036854775807",
        "UPDATE node SET boot_us = -1",
        "UPDATE node SET window_us = NULL",
        "DROP TABLE node",
    ] {
        let machine = Machine::new();
        let node = machine.open(machine.clock());
        Connection::open(machine.file())
            .unwrap()
            .execute(damage, [])
            .unwrap();
        let error = probe(&node).wait().unwrap_err();
        assert!(
            matches!(error, CallError::Refused(_)),
            "{damage}: {error:?}"
        );
        assert!(error.to_string().contains("locks.db"), "{error}");
    }
}

#[test]
fn scrambled_pages_never_cause_a_panic() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    for i in 0..50 {
        take(&node, &format!("lock-{i}"), ALICE);
    }
    drop(node);
    let file = Connection::open(machine.file()).unwrap();
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(file);
    let intact = fs::read(machine.file()).unwrap();
    for from in (100..intact.len()).step_by(701) {
        let mut bytes = intact.clone();
        let to = bytes.len().min(from + 97);
        bytes[from..to].fill(0xa5);
        let path = machine.scratch.path(&format!("scrambled-{from}.db"));
        fs::write(&path, bytes).unwrap();
        let Ok(node) = SqliteNode::open(&path, machine.clock()) else {
            continue;
        };
        for i in 0..50 {
            let op = acquire(Ballot::new(WALL_US + 1), TTL_MS);
            let call = request(&[&format!("lock-{i}")], BOB, op);
            // Any reply is correct, as long as there is one.
            let _ = send(&node, call, NEVER).wait();
        }
        probe(&node).wait().map(drop).unwrap_or_default();
    }
}

#[test]
fn a_file_that_is_removed_while_in_use_is_noticed() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    take(&node, "x", ALICE);
    fs::remove_file(machine.file()).unwrap();
    let error = probe(&node).wait().unwrap_err();
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_not_changed() {
    let scratch = Scratch::new();
    let open = |path: &Path| {
        if path.is_file() {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        SqliteNode::open(path, NodeClock::system()).unwrap_err()
    };

    assert!(matches!(open(scratch.folder()), SqliteError::NotAFile(_)));
    let nowhere = open(&scratch.path("missing/locks.db"));
    assert!(matches!(nowhere, SqliteError::File { .. }), "{nowhere:?}");

    let text = scratch.path("notes.txt");
    for contents in ["x".to_owned(), "x".repeat(511), "my notes\n".repeat(200)] {
        fs::write(&text, &contents).unwrap();
        let error = open(&text);
        assert!(matches!(error, SqliteError::NotADatabase(_)), "{error:?}");
        assert_eq!(fs::read_to_string(&text).unwrap(), contents);
    }

    let other = scratch.path("other.db");
    let database = Connection::open(&other).unwrap();
    database.execute_batch("CREATE TABLE notes (text)").unwrap();
    let before = fs::read(&other).unwrap();
    assert!(matches!(open(&other), SqliteError::OtherApplication(_)));
    assert_eq!(fs::read(&other).unwrap(), before);

    let of_format = |format: i64| {
        let file = scratch.path(&format!("format-{format}.db"));
        drop(SqliteNode::open(&file, NodeClock::system()).unwrap());
        let changed = Connection::open(&file).unwrap();
        changed.pragma_update(None, "user_version", format).unwrap();
        open(&file)
    };
    let newer = of_format(99);
    assert!(
        matches!(newer, SqliteError::Newer { found: 99, .. }),
        "{newer:?}"
    );
    let older = of_format(1);
    assert!(
        matches!(older, SqliteError::Older { found: 1, .. }),
        "{older:?}"
    );
}

#[test]
fn a_file_named_memory_is_an_ordinary_file() {
    let scratch = Scratch::new();
    let path = scratch.path(":memory:");
    let node = SqliteNode::open(&path, NodeClock::system()).unwrap();
    assert_eq!(node.path(), path);
    assert!(path.exists());
}

#[test]
fn a_schema_that_is_not_ours_is_refused() {
    for change in [
        "CREATE VIEW big AS SELECT hex(zeroblob(900000000)) AS seat_label",
        "ALTER TABLE entry RENAME TO kept; CREATE VIEW entry AS SELECT * FROM kept",
        "CREATE TRIGGER t AFTER INSERT ON entry BEGIN DELETE FROM entry; END",
        "CREATE TABLE notes (text)",
        "CREATE INDEX mine ON entry (fence)",
        "DROP INDEX entry_lapses",
        "ALTER TABLE entry ADD COLUMN mine TEXT",
        "DROP TABLE node",
    ] {
        let machine = Machine::new();
        drop(machine.open(machine.clock()));
        let file = Connection::open(machine.file()).unwrap();
        file.execute_batch(change).unwrap();
        let opened = SqliteNode::open(machine.file(), machine.clock());
        let error = opened.map(drop).expect_err(change).to_string();
        assert!(error.contains("another program"), "{change}: {error}");
        let look = SqliteNode::look(machine.file(), machine.clock()).unwrap();
        let error = probe(&look).wait().expect_err(change).to_string();
        assert!(error.contains("another program"), "{change}: {error}");
    }
}

#[test]
fn a_value_that_is_too_long_is_an_error_and_is_not_read() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    take(&node, "x", ALICE);
    let file = Connection::open(machine.file()).unwrap();
    let long = "UPDATE entry SET seat_label = hex(zeroblob(100000)) WHERE name = 'x'";
    file.execute(long, []).unwrap();
    let look = SqliteNode::look(machine.file(), machine.clock()).unwrap();
    for node in [&node, &look] {
        let outcome = send(node, request(&["x"], ALICE, Op::Inspect), NEVER).wait();
        let error = outcome.expect_err("a label of 200,000 bytes").to_string();
        assert!(error.contains("too big"), "{error}");
    }
    take(&node, "y", ALICE);
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let machine = Machine::new();
    drop(machine.open(machine.clock()));
    let file = fs::OpenOptions::new().write(true).open(machine.file());
    file.unwrap().set_len(40 << 30).unwrap();
    let opened = SqliteNode::open(machine.file(), machine.clock());
    let error = opened.map(drop).expect_err("40 GB").to_string();
    assert!(error.contains("larger than"), "{error}");
    let looked = SqliteNode::look(machine.file(), machine.clock());
    let error = looked.map(drop).expect_err("40 GB").to_string();
    assert!(error.contains("larger than"), "{error}");
}
