//! The wait queue in a SQLite file.

use super::*;

#[test]
fn the_queue_survives_a_restart_but_not_another_boot() {
    let machine = Machine::new();
    let clock = || machine.clock().with_boot_id("first");
    let node = machine.open(clock());
    let ballot = take(&node, "x", ALICE);
    let (bob, carol) = (ticket(WALL_US, "b.1"), ticket(WALL_US, "c.1"));
    let dave = ticket(WALL_US, "d.1");
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
    // The time when the name became free is of the clock of the other boot, so it delays no waiter.
    assert!(take_in_queue(&node, "x", 3, &carol) > ballot);
}

#[test]
fn expired_tickets_are_deleted() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    for round in 0..4 {
        let tickets: Vec<_> = (0..100)
            .map(|i| ticket(WALL_US, &format!("t.{round}-{i}")))
            .collect();
        let name = format!("n{round}");
        ask(
            &node,
            &name,
            BOB,
            refresh(&tickets.iter().collect::<Vec<_>>()),
        );
        machine.time.step(Duration::from_millis(3_001));
    }
    let left = count(&machine, "SELECT count(*) FROM ticket");
    assert_eq!(left, 100, "only the last ones remain");
}

#[test]
fn an_attempt_in_a_long_queue_writes_only_its_own_ticket() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    take(&node, "x", ALICE);
    let tickets: Vec<_> = (0..1000)
        .map(|i| ticket(WALL_US, &format!("t.{i:03}")))
        .collect();
    ask(
        &node,
        "x",
        BOB,
        refresh(&tickets.iter().collect::<Vec<_>>()),
    );
    machine.time.step(Duration::from_millis(10));
    held(ask(
        &node,
        "x",
        BOB,
        acquire_with_ticket(Ballot::new(WALL_US), 1, &tickets[500]),
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
        acquire_with_ticket(Ballot::new(WALL_US), 1, &tickets[500]),
    ));
    assert_eq!(wal(), before, "nothing changed, so nothing is written");
    machine.time.step(Duration::from_millis(10));
    held(ask(
        &node,
        "x",
        BOB,
        acquire_with_ticket(Ballot::new(WALL_US), 1, &tickets[500]),
    ));
    assert!(wal() - before < 10 * 4_200, "{} bytes", wal() - before);
}

#[test]
fn a_queue_that_another_connection_has_changed_is_read_anew() {
    let machine = Machine::new();
    let (a, b) = (machine.open(machine.clock()), machine.open(machine.clock()));
    let ballot = take(&a, "x", ALICE);
    let tickets: Vec<_> = (0..100)
        .map(|i| ticket(WALL_US, &format!("t.{i:03}")))
        .collect();
    let all: Vec<_> = tickets.iter().collect();
    ask(&a, "x", BOB, refresh(&all));
    let ahead = |node: &dyn Node| held(ask(node, "x", 3, acquire(ballot, 1))).ahead;
    assert_eq!((ahead(&a), ahead(&b)), (100, 100));
    // The other one gives up the first three, and a new one comes.
    for gone in &tickets[..3] {
        ask(
            &b,
            "x",
            BOB,
            leave(ballot, ReleaseKind::Undo, Some(gone), false),
        );
    }
    ask(&b, "x", BOB, refresh(&[&ticket(WALL_US, "t.0005")]));
    assert_eq!((ahead(&a), ahead(&b)), (98, 98));
    ask(&a, "x", BOB, refresh(&[&tickets[0]]));
    assert_eq!((ahead(&a), ahead(&b)), (99, 99));
}

#[test]
fn a_grant_that_passes_dead_waiters_removes_them_from_a_long_queue() {
    let machine = Machine::new();
    let node = machine.open(machine.clock());
    let ballot = take(&node, "x", ALICE);
    let tickets: Vec<_> = (0..40)
        .map(|i| ticket(WALL_US, &format!("t.{i:03}")))
        .collect();
    ask(
        &node,
        "x",
        BOB,
        refresh(&tickets.iter().collect::<Vec<_>>()),
    );
    machine.time.step(Duration::from_millis(10));
    assert_eq!(ask(&node, "x", ALICE, release(ballot)), Answer::Released);
    // The first one is dead, and its grace of 1.5 s passes.
    machine.time.step(Duration::from_millis(1_600));
    take_in_queue(&node, "x", BOB, &tickets[1]);
    assert_eq!(count(&machine, "SELECT count(*) FROM ticket"), 38);
}
