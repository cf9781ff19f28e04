//! What is particular to the SQLite node: boots, clocks that are set, and files that are not what
//! they should be. Several processes on one file are `sqlite_processes.rs`' matter.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use ringfence::clock::{Clock, SteppedClock};
use ringfence::group::Group;
use ringfence::ledger::{self, Entry, Moment, Rules};
use ringfence::message::{Answer, Ballot, Op, Place, ReleaseKind, Request};
use ringfence::name::Name;
use ringfence::node::sqlite::{SqliteError, SqliteNode};
use ringfence::node::{CallError, Node, NodeClock, Tier, TroubleKind};
use rusqlite::Connection;

use crate::support::*;

const WALL_US: u64 = 1_700_000_000_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// A machine whose clocks a test can set.
struct Machine {
    time: SteppedClock,
    scratch: Scratch,
}

impl Machine {
    fn new() -> Self {
        Self {
            time: SteppedClock::starting_at(Duration::from_secs(1_000)),
            scratch: Scratch::new(),
        }
    }

    fn file(&self) -> PathBuf {
        self.scratch.path("locks.db")
    }

    fn clock(&self) -> NodeClock {
        NodeClock::following(Clock::Stepped(self.time.clone()), WALL_US)
    }

    fn open(&self, clock: NodeClock) -> SqliteNode {
        let node = SqliteNode::open(self.file(), clock).unwrap();
        join(&node, Group::new(1)).wait().unwrap();
        node
    }
}

fn take(node: &dyn Node, name: &str, who: u8) -> Ballot {
    let ballot = next_ballot(node, name);
    assert_eq!(
        ask(node, name, who, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
    ballot
}

#[test]
fn it_is_durable_grown_up_and_alone() {
    let machine = Machine::new();
    let node = SqliteNode::open(machine.file(), machine.clock()).unwrap();
    let quorum = join(&node, Group::new(3)).wait().unwrap_err();
    assert_eq!(quorum.trouble().kind, TroubleKind::Group);
    let facts = join(&node, Group::new(1)).wait().unwrap();
    assert_eq!(facts.tier, Tier::Durable);
    assert_eq!(facts.standing.unwrap().born_us, 0);
}

#[test]
fn only_its_owner_may_read_the_file_and_its_companions() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    take(&node, "x", ALICE);
    for file in fs::read_dir(machine.scratch.folder()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", file.path());
    }
}

#[test]
fn what_was_granted_is_there_after_a_restart() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let ballot = take(&node, "x", ALICE);
    drop(node);
    let node = machine.open(machine.clock());
    held(ask(&node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
    assert_eq!(
        ask(&node, "x", ALICE, extend(ballot, TTL_MS)),
        Answer::Extended
    );
}

#[test]
fn two_nodes_on_one_file_see_each_other() {
    let machine = Machine::new();
    let (a, b) = (machine.open(machine.clock()), machine.open(machine.clock()));
    let ballot = take(&a, "x", ALICE);
    held(ask(&b, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
    ask(&a, "x", ALICE, release(ballot));
    assert!(take(&b, "x", BOB) > ballot);
}

#[test]
fn a_wall_clock_set_back_keeps_fences_rising() {
    let machine = Machine::new();
    let mut fence = take(&machine.open(machine.clock()), "x", ALICE);
    // Beyond the window, the retention and the tolerated step, one after the other.
    for (set_back_us, pass) in [(HOUR_US, 11), (2 * HOUR_US, 70), (3 * HOUR_US, 700)] {
        machine.time.step(Duration::from_secs(pass));
        let clock = machine.clock();
        clock.step_us(-set_back_us);
        let node = machine.open(clock);
        assert!(stamp(&node, "x").clock_us > fence.get());
        let next = take(&node, "x", BOB);
        assert!(next > fence, "{next:?} after {fence:?}");
        fence = next;
        ask(&node, "x", BOB, release(fence));
    }
}

#[test]
fn a_record_lapses_only_when_the_ground_has_overtaken_its_fence() {
    let machine = Machine::new();
    let fence = take(&machine.open(machine.clock()), "x", ALICE);
    // As if somebody had put the node's clock back in the file itself.
    let file = Connection::open(machine.file()).unwrap();
    file.execute("UPDATE node SET clock_us = clock_us - 3600000000", [])
        .unwrap();
    machine.time.step(Duration::from_secs(70));
    let clock = machine.clock();
    clock.step_us(-HOUR_US);
    let node = machine.open(clock);
    take(&node, "y", ALICE);
    assert_eq!(stamp(&node, "x").floor, fence);
}

#[test]
fn another_boot_frees_holders_but_keeps_fences() {
    let machine = Machine::new();
    let clock = machine.clock().with_boot_id("first");
    let node = machine.open(clock);
    let ballot = plus(next_ballot(&node, "x"), 4_000_000);
    ask(&node, "x", ALICE, acquire(ballot, u64::from(u32::MAX)));
    ask(&node, "plain", ALICE, Op::PlainAcquire { ttl_ms: TTL_MS });
    drop(node);

    // The clock since boot begins again, and the wall clock is wrong until somebody sets it.
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US - 10_000_000);
    let node = machine.open(clock.with_boot_id("second"));
    assert_eq!(stamp(&node, "x").floor, ballot);
    assert_eq!(ask(&node, "x", ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(ask(&node, "x", BOB, acquire(ballot, TTL_MS)), Answer::Stale);
    assert!(take(&node, "x", BOB) > ballot);
    take(&node, "plain", BOB);
}

#[test]
fn where_boots_have_no_id_a_clock_that_went_back_is_another_boot() {
    let machine = Machine::new();
    let ballot = take(&machine.open(machine.clock().with_boot_id("")), "x", ALICE);
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US);
    let node = machine.open(clock.with_boot_id(""));
    assert!(take(&node, "x", BOB) > ballot);
}

#[test]
fn a_clock_that_goes_back_within_one_boot_frees_nobody() {
    let machine = Machine::new();
    take(&machine.open(machine.clock()), "x", ALICE);
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US);
    let node = SqliteNode::open(machine.file(), clock).unwrap();
    let error = probe(&node).wait().unwrap_err();
    assert!(error.to_string().contains("time namespaces"), "{error}");
}

#[test]
fn the_file_does_not_grow_with_names_that_have_lapsed() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    for round in 0..4 {
        let ballot = next_ballot(&node, "x");
        let calls = (0..300).map(|i| {
            let name = format!("{round}-{i}");
            send(&node, request(&[&name], ALICE, acquire(ballot, 50)), NEVER)
        });
        for pending in calls.collect::<Vec<_>>() {
            assert_eq!(pending.wait().unwrap().answer, Answer::Granted);
        }
        machine.time.step(Duration::from_secs(61));
    }
    take(&node, "x", ALICE);
    let file = Connection::open(machine.file()).unwrap();
    let rows: u32 = file
        .query_row("SELECT count(*) FROM entry", [], |row| row.get(0))
        .unwrap();
    assert!(rows <= 301, "{rows}");
}

#[test]
fn a_refusal_writes_nothing_to_the_disk() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let ballot = take(&node, "x", ALICE);
    let wal = machine.scratch.path("locks.db-wal");
    let before = fs::metadata(&wal).unwrap().len();
    for _ in 0..20 {
        held(ask(&node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
    }
    assert_eq!(fs::metadata(&wal).unwrap().len(), before);
}

#[test]
fn dropping_the_last_handle_answers_what_was_asked() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let ballot = next_ballot(&node, "x");
    let calls = (0..200).map(|i| {
        let op = acquire(plus(ballot, i), TTL_MS);
        send(&node, request(&["x"], ALICE, op), NEVER)
    });
    let calls: Vec<_> = calls.collect();
    drop(node);
    for pending in calls {
        assert_eq!(pending.wait().unwrap().answer, Answer::Granted);
    }
}

#[test]
fn a_call_that_expires_behind_another_process_is_not_sent() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let node = SqliteNode::open(&file, NodeClock::system()).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    let blocker = Connection::open(&file).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let expires = Clock::System.now() + Duration::from_millis(60);
    let op = acquire(Ballot::new(1), TTL_MS);
    let error = send(&node, request(&["x"], ALICE, op), expires)
        .wait()
        .unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
    blocker.execute_batch("COMMIT").unwrap();
    take(&node, "x", ALICE);
}

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
        ask(&node, "x", BOB, refresh(&[&place(WALL_US, "b.1")]));
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
fn a_damaged_node_row_stops_the_node_and_says_so() {
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
fn scrambled_pages_are_errors_and_never_a_panic() {
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
            // Any answer will do, as long as there is one.
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
fn what_is_no_lock_file_of_ours_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let open = |path: &Path| SqliteNode::open(path, NodeClock::system()).unwrap_err();

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

    let newer = scratch.path("newer.db");
    drop(SqliteNode::open(&newer, NodeClock::system()).unwrap());
    Connection::open(&newer)
        .unwrap()
        .pragma_update(None, "user_version", 7)
        .unwrap();
    let error = open(&newer);
    assert!(
        matches!(error, SqliteError::Newer { found: 7, .. }),
        "{error:?}"
    );
}

#[test]
fn the_name_memory_is_a_file_like_any_other() {
    let scratch = Scratch::new();
    let path = scratch.path(":memory:");
    let node = SqliteNode::open(&path, NodeClock::system()).unwrap();
    assert_eq!(node.path(), path);
    assert!(path.exists());
}

/// The first format: no lines yet. Alice holds `held`, and `old` has a fence.
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
fn a_file_of_the_first_format_is_brought_up_to_date_with_its_locks_and_fences() {
    let machine = Machine::new();
    let fence = format_1(&machine);
    let node = machine.open(machine.clock());
    assert_eq!(stamp(&node, "old").floor, Ballot::new(WALL_US + 7));
    let bob = place(WALL_US, "b.1");
    let waiting = come(plus(fence, 1), TTL_MS, &bob);
    let holder = held(ask(&node, "held", BOB, waiting.clone()));
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.id.as_deref(), Some(token(ALICE).id()));
    assert_eq!(holder.for_ms, Some(10_000));
    // The lease that was granted before the upgrade tells when the name became free.
    machine.time.step(Duration::from_millis(10_100));
    let carol = place(WALL_US + 1, "c.1");
    ask(&node, "held", BOB, refresh(&[&bob, &carol]));
    let late = come(plus(fence, 20_000_000), TTL_MS, &carol);
    let behind = Answer::Behind {
        ahead: 1,
        for_ms: Some(1_500 - 99),
    };
    assert_eq!(ask(&node, "held", 3, late), behind);
    assert!(take_in_line(&node, "held", BOB, &bob) > fence);
    let fresh = Machine::new();
    drop(fresh.open(fresh.clock()));
    assert_eq!(format(&machine), format(&fresh));
}

/// The format that a file says it has.
fn format(machine: &Machine) -> i64 {
    let file = Connection::open(machine.file()).unwrap();
    file.query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn a_file_of_the_first_format_that_cannot_be_brought_up_to_date_stays_as_it_is() {
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

fn take_in_line(node: &dyn Node, name: &str, who: u8, place: &Place) -> Ballot {
    let ballot = next_ballot(node, name);
    let op = come(ballot, TTL_MS, place);
    assert_eq!(ask(node, name, who, op), Answer::Granted);
    ballot
}

fn count(machine: &Machine, sql: &str) -> u64 {
    let file = Connection::open(machine.file()).unwrap();
    let count: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
    count.try_into().unwrap()
}

#[test]
fn the_line_is_there_after_a_restart_but_not_after_another_boot() {
    let machine = Machine::new();
    let clock = || machine.clock().with_boot_id("first");
    let node = machine.open(clock());
    let ballot = take(&node, "x", ALICE);
    let (bob, carol) = (place(WALL_US, "b.1"), place(WALL_US, "c.1"));
    let dave = place(WALL_US, "d.1");
    ask(&node, "x", BOB, refresh(&[&carol, &bob]));
    ask(&node, "y", BOB, refresh(&[&dave]));
    drop(node);

    let node = machine.open(clock());
    assert_eq!(held(ask(&node, "x", BOB, acquire(ballot, 1))).ahead, 2);
    drop(node);

    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US);
    let node = machine.open(clock.with_boot_id("second"));
    ask(&node, "x", BOB, refresh(&[&bob, &carol]));
    assert_eq!(count(&machine, "SELECT count(*) FROM ticket"), 2);
    // When the name became free was told by a clock that has begun anew: nobody waits for that.
    assert!(take_in_line(&node, "x", 3, &carol) > ballot);
}

fn arrive(node: &dyn Node, name: &str, party: &str, ttl_ms: u64) -> Vec<String> {
    let op = Op::Arrive {
        parties: Arc::from([Arc::from(party)]),
        since_us: Some(WALL_US),
        count: 9,
        ttl_ms,
    };
    match ask(node, name, ALICE, op) {
        Answer::Arrivals(all) => all.parties.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// A holder is dead after a boot; who had arrived has arrived.
#[test]
fn a_latch_outlives_another_boot_by_as_long_as_it_had_to_live() {
    let machine = Machine::new();
    let node = machine.open(machine.clock().with_boot_id("first"));
    arrive(&node, "x", "a", 10_000);
    drop(node);
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time.clone()), WALL_US);
    let node = machine.open(clock.with_boot_id("second"));
    time.step(Duration::from_millis(10_000));
    assert_eq!(arrive(&node, "x", "b", 1), ["a", "b"]);
    time.step(Duration::from_millis(2));
    assert_eq!(arrive(&node, "x", "d", 1), ["d"]);
}

#[test]
fn latches_that_are_over_are_cleared_away() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    for round in 0..20 {
        for party in ["a", "b"] {
            arrive(&node, &format!("round {round}"), party, 10);
        }
        machine.time.step(Duration::from_millis(11));
    }
    assert!(count(&machine, "SELECT count(*) FROM latch") <= 2);
    assert!(count(&machine, "SELECT count(*) FROM party") <= 4);
}

#[test]
fn tickets_that_have_lapsed_are_cleared_away() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    for round in 0..4 {
        let places: Vec<_> = (0..100)
            .map(|i| place(WALL_US, &format!("t.{round}-{i}")))
            .collect();
        let name = format!("n{round}");
        ask(
            &node,
            &name,
            BOB,
            refresh(&places.iter().collect::<Vec<_>>()),
        );
        machine.time.step(Duration::from_millis(3_001));
    }
    let left = count(&machine, "SELECT count(*) FROM ticket");
    assert_eq!(left, 100, "the last ones only");
}

#[test]
fn an_attempt_in_a_long_line_writes_its_own_ticket_only() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    take(&node, "x", ALICE);
    let places: Vec<_> = (0..1000)
        .map(|i| place(WALL_US, &format!("t.{i:03}")))
        .collect();
    ask(&node, "x", BOB, refresh(&places.iter().collect::<Vec<_>>()));
    machine.time.step(Duration::from_millis(10));
    held(ask(
        &node,
        "x",
        BOB,
        come(Ballot::new(WALL_US), 1, &places[500]),
    ));
    let refreshed = "SELECT count(*) FROM ticket WHERE refreshed_ms >
                         (SELECT min(refreshed_ms) FROM ticket)";
    assert_eq!(count(&machine, refreshed), 1);
    let wal = || {
        fs::metadata(machine.scratch.path("locks.db-wal"))
            .unwrap()
            .len()
    };
    let before = wal();
    held(ask(
        &node,
        "x",
        BOB,
        come(Ballot::new(WALL_US), 1, &places[500]),
    ));
    assert_eq!(wal(), before, "nothing is new");
    machine.time.step(Duration::from_millis(10));
    held(ask(
        &node,
        "x",
        BOB,
        come(Ballot::new(WALL_US), 1, &places[500]),
    ));
    assert!(wal() - before < 10 * 4_200, "{} bytes", wal() - before);
}

#[test]
fn a_wake_reaches_another_node_on_the_same_file() {
    let machine = Machine::new();
    let (a, b) = (machine.open(machine.clock()), machine.open(machine.clock()));
    let ear = Ear::at(&b, "b");
    let ballot = take(&a, "x", ALICE);
    ask(
        &b,
        "x",
        BOB,
        refresh(&[&place(WALL_US, "b.1"), &place(WALL_US, "c.1")]),
    );
    ask(&a, "x", ALICE, release(ballot));
    assert_eq!(ear.wait(), wake("b.1", 0));
    assert_eq!(ear.heard(), []);
}

#[test]
fn hundreds_of_wakes_for_one_client_arrive() {
    let machine = Machine::new();
    let (a, b) = (machine.open(machine.clock()), machine.open(machine.clock()));
    let ear = Ear::at(&b, "b");
    let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ballot = next_ballot(&a, "x");
    reply(&a, &names, ALICE, acquire(ballot, TTL_MS));
    let padding = "x".repeat(100);
    for (i, name) in names.iter().enumerate() {
        let place = place(WALL_US, &format!("b.{padding}{i:03}"));
        ask(&b, name, BOB, refresh(&[&place]));
    }
    reply(&a, &names, ALICE, release(ballot));
    for i in 0..100 {
        assert_eq!(ear.wait(), wake(&format!("b.{padding}{i:03}"), 0));
    }
}

#[test]
fn a_deep_folder_is_no_obstacle_to_wakes() {
    let machine = Machine::new();
    let folder = machine.scratch.path(&"deep".repeat(50));
    fs::create_dir(&folder).unwrap();
    let open = || {
        let node = SqliteNode::open(folder.join("locks.db"), machine.clock()).unwrap();
        join(&node, Group::new(1)).wait().unwrap();
        node
    };
    let (a, b) = (open(), open());
    let ear = Ear::at(&b, "0123456789abcdef");
    let ballot = take(&a, "x", ALICE);
    ask(
        &b,
        "x",
        BOB,
        refresh(&[&place(WALL_US, "0123456789abcdef.1")]),
    );
    ask(&a, "x", ALICE, release(ballot));
    assert_eq!(ear.wait(), wake("0123456789abcdef.1", 0));
}

#[test]
fn a_ticket_cannot_lead_a_wake_out_of_the_folder() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let outside = machine.scratch.path("outside");
    let socket = std::os::unix::net::UnixDatagram::bind(&outside).unwrap();
    socket.set_nonblocking(true).unwrap();
    fs::create_dir(machine.scratch.path("locks.db-wake-y")).unwrap();
    let ballot = take(&node, "x", ALICE);
    ask(
        &node,
        "x",
        BOB,
        refresh(&[&place(WALL_US, "y/../outside.1")]),
    );
    ask(&node, "x", ALICE, release(ballot));
    assert!(socket.recv(&mut [0; 16]).is_err());
}

#[test]
fn a_node_that_is_gone_leaves_no_socket_and_clears_away_those_of_killed_processes() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let sockets = || {
        let files = fs::read_dir(machine.scratch.folder()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.contains("-wake-")).collect();
        names.sort();
        names
    };
    // Closing a socket leaves its file: all that remains of a process that was killed.
    for (client, age) in [("old", 60), ("young", 0)] {
        let path = machine.scratch.path(&format!("locks.db-wake-{client}"));
        drop(std::os::unix::net::UnixDatagram::bind(&path).unwrap());
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        set_modified(&path, modified - Duration::from_secs(age));
    }
    let ear = Ear::at(&node, "b");
    assert_eq!(sockets(), ["locks.db-wake-b", "locks.db-wake-young"]);
    ear.listen(&node, "young");
    assert_eq!(sockets(), ["locks.db-wake-b", "locks.db-wake-young"]);
    drop(node);
    assert_eq!(sockets(), [""; 0]);
}

fn set_modified(path: &Path, to: std::time::SystemTime) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let since_1970 = to
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let time = Timespec {
        tv_sec: since_1970.as_secs().try_into().unwrap(),
        tv_nsec: since_1970.subsec_nanos().into(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

/// One random step of the comparison with the ledger.
#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    request: Request,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ballot = prop_oneof![
        3 => (0u64..40).prop_map(|by| Ballot::new(WALL_US + by)),
        1 => (0u64..80_000_000).prop_map(|by| Ballot::new(WALL_US - 6_000_000 + by)),
    ];
    let ttl = prop_oneof![2 => 0u64..30, 1 => 0u64..100_000];
    let ticket = (0u64..3, 0u64..4, any::<bool>()).prop_map(|(since, id, first)| Place {
        first,
        ..place(WALL_US + since, &format!("t.{id}"))
    });
    let release_kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let op = (0..15, ballot, ttl, ticket, release_kind, any::<bool>()).prop_map(
        |(kind, ballot, ttl_ms, ticket, release_kind, stays)| match kind {
            0 | 1 => acquire(ballot, ttl_ms),
            2 => extend(ballot, ttl_ms),
            3 => release(ballot),
            4 => undo(ballot, false),
            5 => undo(ballot, true),
            6 => restore(ballot),
            7 => Op::PlainAcquire { ttl_ms },
            8 => Op::PlainRelease,
            9..12 => come(ballot, ttl_ms, &ticket),
            12 => refresh(&[&ticket, &place(WALL_US + 1, "t.9")]),
            13 => Op::Inspect,
            _ => leave(ballot, release_kind, Some(&ticket), stays),
        },
    );
    let names = prop_oneof![Just(vec!["a"]), Just(vec!["b"]), Just(vec!["a", "b"])];
    let pass = prop_oneof![
        8 => 0u64..5, 3 => 0u64..2_000, 1 => 0u64..20_000, 1 => 55_000u64..65_000
    ];
    let step = (pass, 1u8..4, names, op).prop_map(|(pass_ms, who, names, op)| Step {
        pass_ms,
        request: request(&names, who, op),
    });
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn it_answers_as_the_ledger_does(steps in steps()) {
        let machine = Machine::new();
        let node = machine.open(machine.clock());
        let ear = Ear::at(&node, "t");
        let rules = Rules::of_group(&Group::new(1));
        let mut model: BTreeMap<Name, Entry> = BTreeMap::new();
        let mut now = Moment { clock_us: WALL_US, lease_ms: 1_000_000 };
        for step in steps {
            machine.time.step(Duration::from_millis(step.pass_ms));
            now.clock_us += step.pass_ms * 1000;
            now.lease_ms += step.pass_ms;
            let names = || step.request.claims.iter().map(|claim| claim.name.clone());
            let load = |name| model.get(&name).cloned().unwrap_or_default();
            let mut entries: Vec<Entry> = names().map(load).collect();
            let outcome = ledger::apply(&rules, now, &mut entries, &step.request);
            model.extend(names().zip(entries));
            let reply = send(&node, step.request.clone(), NEVER).wait().unwrap();
            prop_assert_eq!(&reply.answer, &outcome.answer);
            if let Some(told) = reply.stamp {
                prop_assert_eq!(told, outcome.stamp);
            }
            // Those who are told are told before the answer.
            prop_assert_eq!(ear.heard(), outcome.wakes);
        }
    }
}
