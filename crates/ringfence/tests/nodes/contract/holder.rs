//! The contract of holders: their ballots and leases.

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

pub(super) fn a_plain_extend_never_shortens_a_lease(stage: &Stage) {
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

/// Alice has held `x` and released it; meanwhile Bob, and another client behind him, entered the
/// queue.
fn alice_releases_with_two_waiters(node: &dyn Node) -> (Ticket, Ticket) {
    let first = next_ballot(node, "x");
    ask(node, "x", ALICE, acquire(first, TTL_MS));
    let now_us = stamp(node, "x").clock_us;
    let (head, next) = (ticket(now_us, "b.1"), ticket(now_us + 1, "c.1"));
    for (client, ticket) in [(BOB, &head), (0xcc, &next)] {
        let ballot = next_ballot(node, "x");
        held(ask(
            node,
            "x",
            client,
            acquire_with_ticket(ballot, TTL_MS, ticket),
        ));
    }
    ask(node, "x", ALICE, release(first));
    (head, next)
}

/// Bob is granted `x` here, but loses the attempt on other nodes and undoes it. Returns his ballot.
fn bob_acquires_and_undoes(node: &dyn Node, head: &Ticket) -> Ballot {
    let ballot = next_ballot(node, "x");
    ask(node, "x", BOB, acquire_with_ticket(ballot, TTL_MS, head));
    let undo = leave(ballot, ReleaseKind::Undo, Some(head), true);
    ask(node, "x", BOB, undo);
    ballot
}

/// An undone attempt is not a hold: the name counts as free since the last release.
pub(super) fn an_undo_does_not_change_since_when_the_name_is_free(stage: &Stage) {
    let node = stage.node();
    let (head, next) = alice_releases_with_two_waiters(node);
    stage.pass_ms(Group::DEFAULT_GRACE.as_millis() as u64 + 2);
    bob_acquires_and_undoes(node, &head);
    let ballot = next_ballot(node, "x");
    assert_eq!(
        ask(node, "x", 0xcc, acquire_with_ticket(ballot, TTL_MS, &next)),
        Answer::Granted
    );
}

pub(super) fn an_undo_does_not_wake_its_own_sender(stage: &Stage) {
    let node = stage.node();
    let (bobs, carols) = (WakeListener::at(node, "b"), WakeListener::at(node, "c"));
    let (head, _) = alice_releases_with_two_waiters(node);
    assert_eq!(bobs.wait(), wake("b.1", 0));
    carols.wait();
    let ballot = bob_acquires_and_undoes(node, &head);
    // Carol's wake, when Bob leaves the queue, is the next one of all.
    ask(
        node,
        "x",
        BOB,
        leave(ballot, ReleaseKind::Undo, Some(&head), false),
    );
    carols.wait();
    assert_eq!(bobs.received(), vec![]);
}

/// A record that was written long ago demands a lower floor than the clock does now.
pub(super) fn an_old_record_does_not_hold_the_floor_down(stage: &Stage) {
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
