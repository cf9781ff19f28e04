//! Wakes: which waiters a node wakes, and after which delay.

use super::*;

/// Alice holds `x`. Waiters with these ticket ids wait, in this order.
fn waiting<const N: usize>(ids: [&str; N]) -> (TestNode, [Ticket; N]) {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let tickets = ids.map(|id| {
        let ticket = node.ticket(id);
        node.pass_ms(1);
        ticket
    });
    node.refresh(&["x"], &tickets.each_ref());
    assert_eq!(node.wakes, []);
    (node, tickets.map(|ticket| reentered(&ticket)))
}

#[test]
fn a_release_wakes_the_head_and_the_next_after_the_grace() {
    let (mut node, _) = waiting(["b.1", "c.1", "d.1"]);
    node.release_final(&["x"], ALICE, None);
    assert_eq!(node.wakes, [wake("b.1", 0), wake("c.1", GRACE_MS)]);
}

#[test]
fn a_release_of_a_lock_that_is_not_held_wakes_no_waiter() {
    let (mut node, _) = waiting(["b.1"]);
    node.release_final(&["x"], DAVE, None);
    assert_eq!(node.wakes, []);
    node.release_final(&["x"], ALICE, None);
    node.release_final(&["x"], ALICE, None);
    assert_eq!(node.wakes, []);
}

#[test]
fn a_releasing_holder_does_not_wake_its_own_ticket() {
    let (mut node, [bob, _]) = waiting(["b.1", "c.1"]);
    node.release_final(&["x"], ALICE, None);
    node.acquire_queued(BOB, &bob);
    node.release_final(&["x"], BOB, Some(&bob));
    assert_eq!(node.wakes, [wake("c.1", 0)]);
}

#[test]
fn an_undo_of_the_head_wakes_no_waiter() {
    let (mut node, [bob, _]) = waiting(["b.1", "c.1"]);
    node.release_final(&["x"], ALICE, None);
    node.acquire_queued(BOB, &bob);
    node.undo_attempt(&["x"], BOB, &bob);
    assert_eq!(node.wakes, []);
}

#[test]
fn an_undo_of_a_later_waiter_wakes_the_head_but_not_its_sender() {
    let (mut node, [bob, carol, dave]) = waiting(["b.1", "c.1", "d.1"]);
    node.release_final(&["x"], ALICE, None);
    node.pass_ms(GRACE_MS);
    node.refresh(&["x"], &[&bob]);
    assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
    node.undo_attempt(&["x"], CAROL, &carol);
    assert_eq!(node.wakes, [wake("b.1", 0)]);
    node.pass_ms(GRACE_MS);
    node.refresh(&["x"], &[&bob, &carol]);
    assert_eq!(node.acquire_queued(DAVE, &dave), Answer::Granted);
    node.undo_attempt(&["x"], DAVE, &dave);
    assert_eq!(node.wakes, [wake("b.1", 0), wake("c.1", GRACE_MS)]);
}

#[test]
fn a_cancel_of_the_head_wakes_the_next() {
    let (mut node, [bob, carol, _]) = waiting(["b.1", "c.1", "d.1"]);
    node.cancel(&["x"], BOB, &bob);
    assert_eq!(node.wakes, [], "the lock is held");
    node.release_final(&["x"], ALICE, None);
    node.cancel(&["x"], CAROL, &carol);
    assert_eq!(node.wakes, [wake("d.1", 0)]);
}

#[test]
fn a_cancel_behind_the_head_wakes_no_waiter() {
    let (mut node, [_, carol]) = waiting(["b.1", "c.1"]);
    node.release_final(&["x"], ALICE, None);
    node.cancel(&["x"], CAROL, &carol);
    assert_eq!(node.wakes, []);
}

#[test]
fn a_ticket_in_several_queues_is_woken_once_at_the_earliest_time() {
    let mut node = TestNode::new();
    node.ask_for(&["a", "b"], ALICE, acquire(node.ballot(0)));
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued_for(&["a"], BOB, &bob);
    node.acquire_queued_for(&["a", "b"], CAROL, &carol);
    node.release_final(&["a", "b"], ALICE, None);
    assert_eq!(node.wakes, [wake("b.1", 0), wake("c.1", 0)]);
}

#[test]
fn only_a_release_wakes_waiters() {
    let (mut node, [bob, carol]) = waiting(["b.1", "c.1"]);
    node.ask(ALICE, extend(node.ballot(0), TTL_MS));
    assert_eq!(node.wakes, []);
    node.pass_ms(TTL_MS + 10);
    node.refresh(&["x"], &[&bob, &carol]);
    assert_eq!(node.wakes, [], "waiters know when the lease ends");
    node.acquire_queued(BOB, &bob);
    assert_eq!(node.wakes, []);
}
