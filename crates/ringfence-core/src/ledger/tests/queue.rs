//! The wait queue: the order of the tickets, and how long each is kept.

use super::*;
use crate::ledger::TICKET_MS;

/// Alice holds; Bob and Carol wait, in this order.
fn two_wait() -> (TestNode, Ticket, Ticket) {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let bob = node.ticket("b.1");
    assert!(is_held_by(&node.acquire_queued(BOB, &bob), ALICE));
    node.pass_ms(1);
    let carol = node.ticket("c.1");
    assert!(is_held_by(&node.acquire_queued(CAROL, &carol), ALICE));
    (node, reentered(&bob), reentered(&carol))
}

#[test]
fn first_come_first_served() {
    let (mut node, bob, carol) = two_wait();
    node.release_final(&["x"], ALICE, None);
    assert!(is_behind(&node.acquire_queued(CAROL, &carol), 1));
    assert_eq!(node.acquire_queued(BOB, &bob), Answer::Granted);
    assert_eq!(
        node.release_final(&["x"], BOB, Some(&bob)),
        Answer::Released
    );
    assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
}

#[test]
fn the_ticket_time_decides_the_order_not_the_arrival() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let (early, early_too) = (node.ticket("b.1"), node.ticket("a.1"));
    node.pass_ms(5);
    let late = node.ticket("c.1");
    for (who, ticket) in [(CAROL, &late), (BOB, &early), (DAVE, &early_too)] {
        node.acquire_queued(who, ticket);
    }
    assert_eq!(node.queue_ids("x"), ["a.1", "b.1", "c.1"]);
}

#[test]
fn a_caller_without_a_ticket_never_jumps_the_queue() {
    let (mut node, bob, carol) = two_wait();
    node.release_final(&["x"], ALICE, None);
    for _ in 0..10 {
        let answer = node.ask(DAVE, acquire(node.ballot(1)));
        let for_ever = Answer::Behind {
            ahead: 2,
            for_ms: None,
        };
        assert_eq!(answer, for_ever);
        node.pass_ms(GRACE_MS);
        node.refresh(&["x"], &[&bob, &carol]);
    }
}

#[test]
fn behind_counts_before_stale_and_ahead() {
    let (mut node, _, carol) = two_wait();
    node.release_final(&["x"], ALICE, None);
    for offset in [-6_000_000, 6_000_000] {
        let op = acquire_with_ticket(node.ballot(offset), &carol);
        assert!(is_behind(&node.ask(CAROL, op), 1));
    }
}

#[test]
fn a_ticket_is_entered_whatever_the_answer() {
    let mut node = TestNode::new();
    for (offset, answer) in [(-6_000_000, Answer::Stale), (6_000_000, Answer::Ahead)] {
        let ticket = node.ticket(&format!("b.{offset}"));
        let op = acquire_with_ticket(node.ballot(offset), &ticket);
        assert_eq!(node.ask(BOB, op), answer);
        assert_eq!(node.queue_ids("x"), [&*ticket.id]);
        node.cancel(&["x"], BOB, &ticket);
    }
}

#[test]
fn a_slow_clock_gives_no_advantage() {
    let (mut node, ..) = two_wait();
    let before = node.entry("x");
    let slow = Ticket {
        since_us: node.clock_us - 1_000_001,
        ..node.ticket("s.1")
    };
    assert_eq!(node.acquire_queued(DAVE, &slow), Answer::TicketOld);
    assert_eq!(node.entry("x"), before, "nothing was written");
    let in_time = Ticket {
        since_us: node.clock_us - 1_000_000,
        ..slow
    };
    assert!(is_held_by(&node.acquire_queued(DAVE, &in_time), ALICE));
    assert_eq!(node.queue_ids("x"), ["s.1", "b.1", "c.1"]);
}

#[test]
fn one_old_ticket_refuses_all_claims() {
    let mut node = TestNode::new();
    node.ask_for(&["a"], ALICE, acquire(node.ballot(0)));
    let ticket = node.ticket("b.1");
    node.acquire_queued_for(&["a"], BOB, &ticket);
    node.pass_ms(1_001);
    let known = node.acquire_queued_for(&["a"], BOB, &ticket);
    assert!(is_held_by(&known, ALICE), "{known:?}");
    let answer = node.acquire_queued_for(&["a", "b"], BOB, &ticket);
    assert_eq!(answer, Answer::TicketOld);
    assert_eq!(node.queue_ids("b"), [""; 0]);
}

#[test]
fn a_ticket_that_reenters_keeps_its_time_at_any_age() {
    let (mut node, bob, carol) = two_wait();
    node.lose_data();
    node.pass_ms(3_600_000);
    node.ask(ALICE, acquire(node.ballot(0)));
    node.acquire_queued(CAROL, &carol);
    // Also under a fresh token.
    node.acquire_queued(DAVE, &bob);
    assert_eq!(node.queue_ids("x"), ["b.1", "c.1"]);
}

#[test]
fn a_ticket_is_a_lease_and_a_refresh_keeps_it() {
    let (mut node, bob, _) = two_wait();
    node.pass_ms(TICKET_MS - 1);
    node.refresh(&["x"], &[&bob]);
    assert_eq!(node.queue_ids("x"), ["b.1", "c.1"], "its last millisecond");
    node.pass_ms(2);
    assert_eq!(node.queue_ids("x"), ["b.1"]);
    node.pass_ms(TICKET_MS);
    assert_eq!(node.queue_ids("x"), [""; 0]);
}

#[test]
fn an_attempt_also_refreshes_the_ticket() {
    let (mut node, bob, _) = two_wait();
    node.pass_ms(TICKET_MS - 1);
    node.acquire_queued(BOB, &bob);
    node.pass_ms(TICKET_MS);
    assert_eq!(node.queue_ids("x"), ["b.1"]);
}

#[test]
fn a_grant_removes_its_ticket_from_the_queue() {
    let (mut node, bob, carol) = two_wait();
    node.release_final(&["x"], ALICE, None);
    assert_eq!(node.acquire_queued(BOB, &bob), Answer::Granted);
    assert_eq!(node.queue_ids("x"), ["c.1"]);
    let Answer::Views(views) = node.ask(DAVE, Op::Inspect) else {
        panic!("no views");
    };
    assert_eq!(views[0].waiting, 1, "the holder does not wait");
    // The same attempt again, as after a lost reply.
    assert_eq!(node.acquire_queued(BOB, &bob), Answer::Granted);
    assert_eq!(node.queue_ids("x"), ["c.1"]);
    // Bob dies. When his lease has ended it is Carol's turn, without a grace.
    node.refresh(&["x"], &[&carol]);
    for _ in 0..4 {
        node.pass_ms(2_500);
        node.refresh(&["x"], &[&carol]);
    }
    node.pass_ms(1);
    assert_eq!(node.acquire_queued(CAROL, &carol), Answer::Granted);
}

#[test]
fn a_grant_of_several_names_removes_its_ticket_from_all_queues() {
    let mut node = TestNode::new();
    node.ask_for(&["a"], ALICE, acquire(node.ballot(0)));
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued_for(&["a", "b"], BOB, &bob);
    node.acquire_queued_for(&["b"], CAROL, &carol);
    node.release_final(&["a"], ALICE, None);
    assert_eq!(
        node.acquire_queued_for(&["a", "b"], BOB, &reentered(&bob)),
        Answer::Granted
    );
    assert_eq!(node.queue_ids("a"), [""; 0]);
    assert_eq!(node.queue_ids("b"), ["c.1"]);
    node.undo_attempt(&["a", "b"], BOB, &bob);
    assert_eq!(node.queue_ids("a"), ["b.1"]);
    assert_eq!(node.queue_ids("b"), ["b.1", "c.1"]);
    assert_eq!(node.wakes, [], "the head sent the undo and will try again");
}

#[test]
fn an_undo_without_a_grant_enters_no_ticket() {
    let (mut node, bob, _) = two_wait();
    node.cancel(&["x"], BOB, &bob);
    node.undo_attempt(&["x"], BOB, &bob);
    assert_eq!(node.queue_ids("x"), ["c.1"]);
    node.release_final(&["x"], ALICE, None);
    // Late: the node has not executed the acquire, and will never grant it.
    let ballot = node.next_ballot(&["x"]);
    let mut of_unknown_fate = release_op(ballot, ReleaseKind::Undo, Some(&bob), true);
    if let Op::Release(Release { fate_unknown, .. }) = &mut of_unknown_fate {
        *fate_unknown = true;
    }
    node.ask(BOB, of_unknown_fate);
    assert_eq!(node.queue_ids("x"), ["c.1"]);
    let late = acquire_with_ticket(ballot, &bob);
    assert_eq!(node.ask(BOB, late), Answer::Stale);
}

#[test]
fn an_earlier_undo_does_not_return_a_later_holder_to_the_queue() {
    let (mut node, bob, _) = two_wait();
    node.release_final(&["x"], ALICE, None);
    let first = node.next_ballot(&["x"]);
    node.ask(BOB, acquire_with_ticket(first, &bob));
    node.acquire_queued(BOB, &bob);
    let late = release_op(first, ReleaseKind::Undo, Some(&bob), true);
    assert_eq!(node.ask(BOB, late), Answer::Newer);
    assert_eq!(node.queue_ids("x"), ["c.1"]);
}

#[test]
fn an_undo_keeps_the_ticket_but_a_release_or_a_cancel_drops_it() {
    let (mut node, bob, carol) = two_wait();
    node.release_final(&["x"], ALICE, None);
    node.acquire_queued(BOB, &bob);
    assert_eq!(node.undo_attempt(&["x"], BOB, &bob), Answer::Released);
    assert_eq!(node.queue_ids("x"), ["b.1", "c.1"]);
    assert_eq!(node.acquire_queued(BOB, &bob), Answer::Granted);
    node.release_final(&["x"], BOB, Some(&bob));
    assert_eq!(node.queue_ids("x"), ["c.1"]);
    assert_eq!(node.cancel(&["x"], CAROL, &carol), Answer::Gone);
    assert_eq!(node.queue_ids("x"), [""; 0]);
}

#[test]
fn a_refused_late_undo_leaves_the_queue_unchanged() {
    let (mut node, bob, _) = two_wait();
    node.release_final(&["x"], ALICE, None);
    let first = node.next_ballot(&["x"]);
    node.ask(BOB, acquire_with_ticket(first, &bob));
    node.acquire_queued(BOB, &bob);
    let late = release_op(first, ReleaseKind::Undo, Some(&bob), false);
    assert_eq!(node.ask(BOB, late), Answer::Newer);
    assert_eq!(node.queue_ids("x"), ["c.1"]);
}

#[test]
fn ahead_counts_the_tickets_before_the_callers() {
    let (mut node, bob, carol) = two_wait();
    let ahead = |answer| match answer {
        Answer::Held(Holder { ahead, .. }) => ahead,
        other => panic!("{other:?}"),
    };
    assert_eq!(ahead(node.acquire_queued(BOB, &bob)), 0);
    assert_eq!(ahead(node.acquire_queued(CAROL, &carol)), 1);
    assert_eq!(ahead(node.ask(DAVE, acquire(node.ballot(1)))), 2);
    let turns = node.refresh(&["x"], &[&carol, &bob]);
    assert_eq!(turns, [1, 0].map(|ahead| Turn { ahead, free: false }));
    node.release_final(&["x"], ALICE, None);
    let turns = node.refresh(&["x"], &[&carol]);
    assert_eq!(
        turns,
        [Turn {
            ahead: 1,
            free: true
        }]
    );
    let Answer::Views(views) = node.ask(DAVE, Op::Inspect) else {
        panic!("no views");
    };
    assert_eq!(views[0].waiting, 2);
}

#[test]
fn a_refresh_reports_the_longest_queue() {
    let mut node = TestNode::new();
    node.ask_for(&["a", "b"], ALICE, acquire(node.ballot(0)));
    let (bob, carol, dave) = (node.ticket("b.1"), node.ticket("c.1"), node.ticket("d.1"));
    node.acquire_queued_for(&["b"], BOB, &bob);
    node.acquire_queued_for(&["b"], CAROL, &carol);
    node.acquire_queued_for(&["a", "b"], DAVE, &dave);
    let turns = node.refresh(&["a", "b"], &[&dave]);
    assert_eq!(
        turns,
        [Turn {
            ahead: 2,
            free: false
        }]
    );
}

#[test]
fn an_entry_with_a_waiter_is_not_deleted() {
    let mut node = TestNode::new();
    let bob = node.ticket("b.1");
    node.refresh(&["x"], &[&bob]);
    assert!(!node.entry("x").is_lapsed(&node.rules, node.now()));
    node.pass_ms(TICKET_MS + 1);
    assert!(node.entry("x").is_lapsed(&node.rules, node.now()));
}
