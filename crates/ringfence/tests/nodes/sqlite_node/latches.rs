//! Latches in a SQLite file.

use ringfence_core::message::Arrive;

use super::*;

fn arrive(node: &dyn Node, name: &str, party: &str, ttl_ms: u64) -> Vec<String> {
    let op = Op::Arrive(Arrive {
        parties: Arc::from([Arc::from(party)]),
        since_us: Some(WALL_US),
        count: 9,
        ttl_ms,
    });
    match ask(node, name, ALICE, op) {
        Answer::Arrivals(all) => all.parties.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// A boot ends holders, but not the arrivals at a latch.
#[test]
fn a_latch_keeps_its_remaining_time_after_another_boot() {
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
fn expired_latches_are_deleted() {
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
