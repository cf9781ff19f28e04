//! Boots of the machine, and what only looks like one.

use std::thread;

use ringfence_core::message::{Claim, Mode, Release};

use super::*;

/// The machine under another boot id, after its wall clock was set.
fn set_clock(machine: &Machine, boot_id: &str) -> NodeClock {
    let clock = machine.clock().with_boot_id(boot_id);
    clock.step_us(60_000_000);
    clock
}

#[test]
fn another_boot_id_and_a_clock_that_was_set_free_no_lock_of_a_live_process() {
    let machine = Machine::new();
    let node = machine.open(machine.clock().with_boot_id("of a container"));
    let ballot = take(&node, "x", ALICE);
    machine.time.step(Duration::from_secs(1));
    let refused = match SqliteNode::open(machine.file(), set_clock(&machine, "of another")) {
        Err(error) => error.to_string(),
        Ok(node) => probe(&node).wait().unwrap_err().to_string(),
    };
    assert!(refused.contains("boot id"), "{refused}");
    held(ask(&node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
    let extended = ask(&node, "x", ALICE, extend(ballot, TTL_MS));
    assert_eq!(extended, Answer::Extended);
}

/// The holders of receipts and kept locks need no process.
#[test]
fn locks_without_a_process_keep_their_whole_lease_if_a_boot_is_not_certain() {
    let machine = Machine::new();
    let node = machine.open(machine.clock().with_boot_id("first"));
    let left = take(&node, "left", ALICE);
    let kept = take(&node, "kept", ALICE);
    let mut keep = release(kept);
    if let Op::Release(Release { keep_ms, .. }) = &mut keep {
        *keep_ms = Some(TTL_MS);
    }
    assert_eq!(ask(&node, "kept", ALICE, keep), Answer::Released);
    let mut read = request(
        &["read"],
        ALICE,
        acquire(next_ballot(&node, "read"), TTL_MS),
    );
    read.claims = read.claims.iter().map(Claim::shared).collect();
    assert_eq!(read.claims[0].mode, Mode::Shared);
    let read = send(&node, read, NEVER).wait().unwrap();
    assert_eq!(read.answer, Answer::Granted);
    drop(node);

    machine.time.step(Duration::from_secs(3));
    let node = machine.open(set_clock(&machine, "second"));
    let mut highest = left.max(kept);
    for name in ["left", "kept", "read"] {
        let ballot = next_ballot(&node, name);
        let holder = held(ask(&node, name, BOB, acquire(ballot, TTL_MS)));
        assert_eq!(holder.for_ms, Some(TTL_MS), "{name}");
        highest = highest.max(ballot);
    }
    let extended = ask(&node, "left", ALICE, extend(left, TTL_MS));
    assert_eq!(extended, Answer::Extended);
    machine.time.step(Duration::from_millis(TTL_MS + 1));
    for name in ["left", "kept", "read"] {
        assert!(take(&node, name, BOB) > highest, "{name}");
    }
}

#[test]
fn many_processes_open_the_file_at_once_after_a_boot() {
    let machine = Machine::new();
    let left = take(
        &machine.open(machine.clock().with_boot_id("first")),
        "x",
        ALICE,
    );
    machine.time.step(Duration::from_secs(1));
    let nodes: Vec<_> = thread::scope(|scope| {
        let opening = (0..8).map(|_| scope.spawn(|| machine.open(set_clock(&machine, "second"))));
        let opening: Vec<_> = opening.collect();
        opening
            .into_iter()
            .map(|node| node.join().unwrap())
            .collect()
    });
    for node in &nodes {
        held(ask(node, "x", BOB, acquire(plus(left, 70_000_000), TTL_MS)));
    }
}
