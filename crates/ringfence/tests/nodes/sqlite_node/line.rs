//! The line in a SQLite file.

use super::*;

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
