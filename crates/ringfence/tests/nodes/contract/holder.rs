//! The contract of one who holds: under which ballot, and until when.

use ringfence_core::message::{PlainAcquire, PlainExtend};

use super::*;

pub(super) fn an_extend_raises_the_ballot_of_its_holder(stage: &Stage) {
    let node = stage.node();
    let first = next_ballot(node, "x");
    let second = plus(first, 1);
    ask(node, "x", ALICE, acquire(first, TTL_MS));
    ask(node, "x", ALICE, extend(second, TTL_MS));
    assert_eq!(ask(node, "x", ALICE, undo(first, false)), Answer::Newer);
    assert_eq!(ask(node, "x", ALICE, release(first)), Answer::Newer);
    assert_eq!(ask(node, "x", ALICE, release(second)), Answer::Released);
}

pub(super) fn a_plain_extend_never_shortens(stage: &Stage) {
    let node = stage.node();
    ask(
        node,
        "x",
        ALICE,
        Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
    );
    let shorter = Op::PlainExtend(PlainExtend { ttl_ms: 50 });
    assert_eq!(ask(node, "x", ALICE, shorter), Answer::Extended);
    stage.pass_ms(52);
    held(ask(
        node,
        "x",
        BOB,
        Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
    ));
}

pub(super) fn a_ballot_above_the_ceiling_is_never_stored(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    let far = plus(ballot, 3_600_000_000);
    ask(node, "x", ALICE, acquire(ballot, TTL_MS));
    ask(node, "x", ALICE, extend(far, TTL_MS));
    ask(node, "x", BOB, undo(far, true));
    assert_eq!(stamp(node, "x").floor, ballot);
    ask(node, "x", ALICE, release(far));
    assert!(stamp(node, "x").floor < far);
}

/// Alice has held `x` and let go, while Bob and behind him another came to stand in line.
fn alice_leaves_two_in_line(node: &dyn Node) -> (Place, Place) {
    let first = next_ballot(node, "x");
    ask(node, "x", ALICE, acquire(first, TTL_MS));
    let now_us = stamp(node, "x").clock_us;
    let (head, next) = (place(now_us, "b.1"), place(now_us + 1, "c.1"));
    for (who, place) in [(BOB, &head), (0xcc, &next)] {
        let ballot = next_ballot(node, "x");
        held(ask(node, "x", who, come(ballot, TTL_MS, place)));
    }
    ask(node, "x", ALICE, release(first));
    (head, next)
}

/// Under which ballot he came.
fn bob_comes_and_loses_elsewhere(node: &dyn Node, head: &Place) -> Ballot {
    let ballot = next_ballot(node, "x");
    ask(node, "x", BOB, come(ballot, TTL_MS, head));
    let undo = leave(ballot, ReleaseKind::Undo, Some(head), true);
    ask(node, "x", BOB, undo);
    ballot
}

/// Whoever undoes an attempt has not held: those in line have had all the time since it was free.
pub(super) fn an_undo_leaves_the_time_since_it_is_free_alone(stage: &Stage) {
    let node = stage.node();
    let (head, next) = alice_leaves_two_in_line(node);
    stage.pass_ms(Group::DEFAULT_GRACE.as_millis() as u64 + 2);
    bob_comes_and_loses_elsewhere(node, &head);
    let ballot = next_ballot(node, "x");
    assert_eq!(
        ask(node, "x", 0xcc, come(ballot, TTL_MS, &next)),
        Answer::Granted
    );
}

pub(super) fn an_undo_does_not_wake_its_own_sender(stage: &Stage) {
    let node = stage.node();
    let (bobs, carols) = (Ear::at(node, "b"), Ear::at(node, "c"));
    let (head, _) = alice_leaves_two_in_line(node);
    assert_eq!(bobs.wait(), wake("b.1", 0));
    carols.wait();
    let ballot = bob_comes_and_loses_elsewhere(node, &head);
    // Her wake, when Bob is gone for good, is the next that anybody hears.
    ask(
        node,
        "x",
        BOB,
        leave(ballot, ReleaseKind::Undo, Some(&head), false),
    );
    carols.wait();
    assert_eq!(bobs.heard(), vec![]);
}

/// A record that was written long ago demands less than the clock does by now.
pub(super) fn a_record_does_not_pin_the_floor(stage: &Stage) {
    let node = stage.node();
    let old = Ballot::new(stamp(node, "x").clock_us - 60_000_000);
    assert_eq!(ask(node, "x", ALICE, restore(old)), Answer::Restored);
    assert_eq!(ask(node, "x", ALICE, release(old)), Answer::Released);
    let floor = stamp(node, "x").floor;
    stage.pass_ms(52);
    assert_eq!(
        ask(node, "x", BOB, acquire(plus(floor, 1), TTL_MS)),
        Answer::Stale
    );
}
