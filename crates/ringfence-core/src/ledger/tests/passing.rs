//! Passing a dead head of the queue: when it is allowed, which tickets are dropped, and since when
//! a name counts as free.

use super::*;

/// Alice holds; Bob, Carol and Dave wait, in this order.
fn three_wait() -> (TestNode, [Ticket; 3]) {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let tickets = ["b.1", "c.1", "d.1"].map(|id| node.ticket(id));
    for (who, ticket) in [BOB, CAROL, DAVE].into_iter().zip(&tickets) {
        node.acquire_queued(who, ticket);
    }
    (node, tickets.map(|ticket| reentered(&ticket)))
}

fn waits_for(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Behind { for_ms, .. } => *for_ms,
        other => panic!("expected Behind, got {other:?}"),
    }
}

#[test]
fn a_dead_head_is_passed_after_its_grace() {
    let (mut node, [_, carol, dave]) = three_wait();
    node.pass_ms(10);
    node.release_final(&["x"], ALICE, None);
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS)
    );
    assert_eq!(
        waits_for(&node.acquire_queued(DAVE, &dave)),
        Some(2 * GRACE_MS)
    );
    node.pass_ms(GRACE_MS - 1);
    assert_eq!(waits_for(&node.acquire_queued(CAROL, &carol)), Some(1));
    node.pass_ms(1);
    assert_eq!(waits_for(&node.acquire_queued(DAVE, &dave)), Some(GRACE_MS));
    assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
}

#[test]
fn the_kth_waiter_waits_for_k_graces() {
    let (mut node, [_, _, dave]) = three_wait();
    node.release_final(&["x"], ALICE, None);
    node.pass_ms(2 * GRACE_MS - 1);
    assert_eq!(waits_for(&node.acquire_queued(DAVE, &dave)), Some(1));
    node.pass_ms(1);
    assert_eq!(node.acquire_queued(DAVE, &dave), Answer::Granted);
}

#[test]
fn a_passed_ticket_is_dropped_but_may_reenter_at_its_position() {
    let (mut node, [bob, carol, dave]) = three_wait();
    node.pass_ms(10);
    node.release_final(&["x"], ALICE, None);
    node.pass_ms(GRACE_MS);
    assert_eq!(
        node.queue_ids("x"),
        ["b.1", "c.1", "d.1"],
        "no ticket has expired yet"
    );
    assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
    assert_eq!(node.queue_ids("x"), ["d.1"]);
    node.refresh(&["x"], &[&bob, &dave]);
    assert_eq!(node.queue_ids("x"), ["b.1", "d.1"]);
    node.release_final(&["x"], CAROL, Some(&carol));
    assert!(is_behind(&node.acquire_queued(DAVE, &dave), 1));
    assert_eq!(node.acquire_queued(BOB, &bob), Answer::Granted);
}

#[test]
fn a_passed_ticket_that_was_refreshed_since_the_release_stays() {
    for heard_after_ms in [0, 1] {
        let (mut node, [bob, carol, _]) = three_wait();
        node.pass_ms(10);
        node.release_final(&["x"], ALICE, None);
        node.pass_ms(heard_after_ms);
        node.refresh(&["x"], &[&bob]);
        node.pass_ms(GRACE_MS);
        assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
        assert_eq!(node.queue_ids("x"), ["b.1", "d.1"]);
    }
}

#[test]
fn an_undo_does_not_restart_the_grace() {
    let (mut node, [bob, carol, _]) = three_wait();
    node.release_final(&["x"], ALICE, None);
    node.pass_ms(1_000);
    assert_eq!(node.acquire_queued(BOB, &bob), Answer::Granted);
    node.undo_attempt(&["x"], BOB, &bob);
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS - 1_000)
    );
}

#[test]
fn an_undo_of_unknown_fate_does_not_restart_the_grace() {
    let (mut node, [_, carol, _]) = three_wait();
    node.release_final(&["x"], ALICE, None);
    node.pass_ms(1_000);
    node.ask(BOB, undo_of_unknown_fate(node.ballot(0)));
    node.ask(BOB, release(node.ballot(0)));
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS - 1_000)
    );
}

#[test]
fn after_an_expired_lease_the_name_is_free_since_its_end() {
    let (mut node, [bob, carol, _]) = three_wait();
    for _ in 0..10 {
        node.pass_ms(1_000);
        node.refresh(&["x"], &[&bob, &carol]);
    }
    node.pass_ms(501);
    // The lease was ten seconds long and ended half a second ago.
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS - 500)
    );
}

#[test]
fn an_extended_lease_frees_the_name_at_its_end_and_an_extend_does_not_move_free_since() {
    let (mut node, [bob, carol, _]) = three_wait();
    let free_since = |node: &TestNode| node.entry("x").record.unwrap().free_since_ms;
    let before = free_since(&node);
    node.pass_ms(1_000);
    node.ask(ALICE, extend(node.ballot(0), 2_000 + TTL_MS));
    node.ask(ALICE, acquire(node.ballot(1)));
    node.ask(ALICE, restore(node.ballot(2)));
    assert_eq!(free_since(&node), before);
    let ends_ms = node.until_ms("x").unwrap();
    while node.now().lease_ms <= ends_ms + 250 {
        node.pass_ms(250);
        node.refresh(&["x"], &[&bob, &carol]);
    }
    assert_eq!(free_since(&node), ends_ms + 1);
}

#[test]
fn a_waiter_notices_a_key_that_was_deleted_by_hand() {
    let (mut node, [bob, carol, _]) = three_wait();
    node.pass_ms(1_000);
    node.delete_key("x");
    node.pass_ms(1_000);
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS)
    );
    node.pass_ms(500);
    node.refresh(&["x"], &[&bob]);
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS - 500)
    );
}

#[test]
fn a_waiter_notices_that_a_foreign_key_is_gone() {
    let mut node = TestNode::new();
    node.set_foreign("x", "theirs", None);
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued(BOB, &bob);
    assert!(node.entry("x").record.unwrap().stranger);
    node.pass_ms(1_000);
    node.acquire_queued(CAROL, &carol);
    node.delete_key("x");
    node.pass_ms(1_000);
    assert_eq!(
        waits_for(&node.acquire_queued(CAROL, &carol)),
        Some(GRACE_MS)
    );
    assert!(!node.entry("x").record.unwrap().stranger);
    node.pass_ms(GRACE_MS);
    assert_eq!(
        node.acquire_queued(CAROL, &reentered(&carol)),
        Answer::Granted
    );
}

#[test]
fn a_second_foreign_holder_sets_free_since_again() {
    let mut node = TestNode::new();
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    for _ in 0..2 {
        node.set_foreign("x", "theirs", Some(node.now().lease_ms + 100));
        node.refresh(&["x"], &[&bob, &carol]);
        node.pass_ms(101);
        assert_eq!(
            waits_for(&node.acquire_queued(CAROL, &reentered(&carol))),
            Some(GRACE_MS)
        );
    }
}

#[test]
fn a_name_that_was_never_held_has_always_been_free() {
    let mut node = TestNode::new();
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.refresh(&["x"], &[&bob]);
    assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
    assert_eq!(node.queue_ids("x"), ["b.1"]);
}
