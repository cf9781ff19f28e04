//! What is special to the SQLite node: boots, clocks that are set, and files that are damaged or of
//! other programs. Several processes on one file are tested in `sqlite_processes.rs`.

mod boots;
mod damage;
mod direct;
mod latches;
mod queue;
mod wakes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::sqlite::{SqliteError, SqliteNode};
use ringfence::node::{CallError, Node, NodeClock, Tier, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Ballot, Op, PlainAcquire, ReleaseKind, Ticket};
use rusqlite::Connection;

use crate::nodes::support::*;

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

fn take(node: &dyn Node, name: &str, client: u8) -> Ballot {
    let ballot = next_ballot(node, name);
    assert_eq!(
        ask(node, name, client, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
    ballot
}

fn take_in_queue(node: &dyn Node, name: &str, client: u8, ticket: &Ticket) -> Ballot {
    let ballot = next_ballot(node, name);
    let op = acquire_with_ticket(ballot, TTL_MS, ticket);
    assert_eq!(ask(node, name, client, op), Answer::Granted);
    ballot
}

#[test]
fn a_sqlite_node_is_durable_votes_at_once_and_must_be_the_only_node() {
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
fn locks_are_held_after_a_restart() {
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
    // Further than the window, the retention and the tolerated step, one after the other.
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
fn a_record_expires_only_when_the_clock_floor_has_passed_its_fence() {
    let machine = Machine::new();
    let fence = take(&machine.open(machine.clock()), "x", ALICE);
    // As if the node's clock was set back in the file itself.
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
fn another_boot_ends_holds_but_keeps_fences() {
    let machine = Machine::new();
    let clock = machine.clock().with_boot_id("first");
    let node = machine.open(clock);
    let ballot = plus(next_ballot(&node, "x"), 4_000_000);
    ask(&node, "x", ALICE, acquire(ballot, u64::from(u32::MAX)));
    ask(
        &node,
        "plain",
        ALICE,
        Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
    );
    drop(node);

    // The clock since boot starts again, and the wall clock is wrong until it is set.
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US - 10_000_000);
    let node = machine.open(clock.with_boot_id("second"));
    assert!(stamp(&node, "x").floor >= ballot);
    assert_eq!(ask(&node, "x", ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(ask(&node, "x", BOB, acquire(ballot, TTL_MS)), Answer::Stale);
    assert!(take(&node, "x", BOB) > ballot);
    take(&node, "plain", BOB);
}

#[test]
fn two_boot_ids_within_one_boot_are_refused() {
    let machine = Machine::new();
    let node = machine.open(machine.clock().with_boot_id("of a container"));
    take(&node, "x", ALICE);
    let clock = machine.clock().with_boot_id("of another");
    clock.step_us(1_900_000);
    let other = SqliteNode::open(machine.file(), clock).unwrap();
    let error = probe(&other).wait().unwrap_err();
    assert!(error.to_string().contains("boot ids"), "{error}");
    // The holder is alive and keeps its lock.
    held(ask(
        &node,
        "x",
        BOB,
        acquire(next_ballot(&node, "x"), TTL_MS),
    ));
}

#[test]
fn without_a_boot_id_a_clock_that_went_back_is_another_boot() {
    let machine = Machine::new();
    let ballot = take(&machine.open(machine.clock().with_boot_id("")), "x", ALICE);
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US);
    let node = machine.open(clock.with_boot_id(""));
    assert!(take(&node, "x", BOB) > ballot);
}

#[test]
fn a_clock_that_goes_back_within_one_boot_is_an_error() {
    let machine = Machine::new();
    take(&machine.open(machine.clock()), "x", ALICE);
    let time = SteppedClock::starting_at(Duration::from_secs(5));
    let clock = NodeClock::following(Clock::Stepped(time), WALL_US);
    let node = SqliteNode::open(machine.file(), clock).unwrap();
    let error = probe(&node).wait().unwrap_err();
    assert!(error.to_string().contains("time namespaces"), "{error}");
}

#[test]
fn expired_names_are_deleted_from_the_file() {
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
fn calls_are_answered_although_the_last_handle_is_dropped() {
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

fn count(machine: &Machine, sql: &str) -> u64 {
    let file = Connection::open(machine.file()).unwrap();
    let count: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
    count.try_into().unwrap()
}
