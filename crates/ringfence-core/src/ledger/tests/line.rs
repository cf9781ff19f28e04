//! The line: who stands in it, where, and for how long.

use super::*;
use crate::ledger::TICKET_MS;

/// Alice holds; Bob and Carol wait, in this order.
fn two_wait() -> (Desk, Place, Place) {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let bob = desk.place("b.1");
    assert!(is_held_by(&desk.come(BOB, &bob), ALICE));
    desk.pass_ms(1);
    let carol = desk.place("c.1");
    assert!(is_held_by(&desk.come(CAROL, &carol), ALICE));
    (desk, again(&bob), again(&carol))
}

#[test]
fn first_come_first_served() {
    let (mut desk, bob, carol) = two_wait();
    desk.go(&["x"], ALICE, None);
    assert!(is_behind(&desk.come(CAROL, &carol), 1));
    assert_eq!(desk.come(BOB, &bob), Answer::Granted);
    assert_eq!(desk.go(&["x"], BOB, Some(&bob)), Answer::Released);
    assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
}

#[test]
fn the_time_of_the_ticket_counts_and_not_that_of_its_arrival() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let (early, early_too) = (desk.place("b.1"), desk.place("a.1"));
    desk.pass_ms(5);
    let late = desk.place("c.1");
    for (who, place) in [(CAROL, &late), (BOB, &early), (DAVE, &early_too)] {
        desk.come(who, place);
    }
    assert_eq!(desk.line("x"), ["a.1", "b.1", "c.1"]);
}

#[test]
fn a_caller_without_a_place_never_jumps_the_line() {
    let (mut desk, bob, carol) = two_wait();
    desk.go(&["x"], ALICE, None);
    for _ in 0..10 {
        let answer = desk.ask(DAVE, acquire(desk.ballot(1)));
        let for_ever = Answer::Behind {
            ahead: 2,
            for_ms: None,
        };
        assert_eq!(answer, for_ever);
        desk.pass_ms(GRACE_MS);
        desk.refresh(&["x"], &[&bob, &carol]);
    }
}

#[test]
fn behind_counts_before_stale_and_ahead() {
    let (mut desk, _, carol) = two_wait();
    desk.go(&["x"], ALICE, None);
    for offset in [-6_000_000, 6_000_000] {
        let op = acquire_in_line(desk.ballot(offset), &carol);
        assert!(is_behind(&desk.ask(CAROL, op), 1));
    }
}

#[test]
fn a_place_is_entered_whatever_the_answer() {
    let mut desk = Desk::new();
    for (offset, answer) in [(-6_000_000, Answer::Stale), (6_000_000, Answer::Ahead)] {
        let place = desk.place(&format!("b.{offset}"));
        let op = acquire_in_line(desk.ballot(offset), &place);
        assert_eq!(desk.ask(BOB, op), answer);
        assert_eq!(desk.line("x"), [&*place.id]);
        desk.cancel(&["x"], BOB, &place);
    }
}

#[test]
fn nobody_gains_by_a_slow_clock() {
    let (mut desk, ..) = two_wait();
    let before = desk.entry("x");
    let slow = Place {
        since_us: desk.clock_us - 1_000_001,
        ..desk.place("s.1")
    };
    assert_eq!(desk.come(DAVE, &slow), Answer::TicketOld);
    assert_eq!(desk.entry("x"), before, "nothing was done");
    let in_time = Place {
        since_us: desk.clock_us - 1_000_000,
        ..slow
    };
    assert!(is_held_by(&desk.come(DAVE, &in_time), ALICE));
    assert_eq!(desk.line("x"), ["s.1", "b.1", "c.1"]);
}

#[test]
fn one_old_ticket_refuses_all_claims() {
    let mut desk = Desk::new();
    desk.ask_for(&["a"], ALICE, acquire(desk.ballot(0)));
    let place = desk.place("b.1");
    desk.come_for(&["a"], BOB, &place);
    desk.pass_ms(1_001);
    let known = desk.come_for(&["a"], BOB, &place);
    assert!(is_held_by(&known, ALICE), "{known:?}");
    let answer = desk.come_for(&["a", "b"], BOB, &place);
    assert_eq!(answer, Answer::TicketOld);
    assert_eq!(desk.line("b"), [""; 0]);
}

#[test]
fn who_comes_back_keeps_its_time_at_any_age() {
    let (mut desk, bob, carol) = two_wait();
    desk.forget();
    desk.pass_ms(3_600_000);
    desk.ask(ALICE, acquire(desk.ballot(0)));
    desk.come(CAROL, &carol);
    // Under a fresh token, too.
    desk.come(DAVE, &bob);
    assert_eq!(desk.line("x"), ["b.1", "c.1"]);
}

#[test]
fn a_ticket_is_a_lease_and_a_refresh_keeps_it() {
    let (mut desk, bob, _) = two_wait();
    desk.pass_ms(TICKET_MS - 1);
    desk.refresh(&["x"], &[&bob]);
    assert_eq!(desk.line("x"), ["b.1", "c.1"], "its last millisecond");
    desk.pass_ms(2);
    assert_eq!(desk.line("x"), ["b.1"]);
    desk.pass_ms(TICKET_MS);
    assert_eq!(desk.line("x"), [""; 0]);
}

#[test]
fn an_attempt_refreshes_as_well() {
    let (mut desk, bob, _) = two_wait();
    desk.pass_ms(TICKET_MS - 1);
    desk.come(BOB, &bob);
    desk.pass_ms(TICKET_MS);
    assert_eq!(desk.line("x"), ["b.1"]);
}

#[test]
fn a_grant_takes_its_ticket_out_of_the_queue() {
    let (mut desk, bob, carol) = two_wait();
    desk.go(&["x"], ALICE, None);
    assert_eq!(desk.come(BOB, &bob), Answer::Granted);
    assert_eq!(desk.line("x"), ["c.1"]);
    let Answer::Views(views) = desk.ask(DAVE, Op::Inspect) else {
        panic!("no views");
    };
    assert_eq!(views[0].waiting, 1, "the holder does not wait");
    // The same attempt once more, as after a lost reply.
    assert_eq!(desk.come(BOB, &bob), Answer::Granted);
    assert_eq!(desk.line("x"), ["c.1"]);
    // Bob vanishes: when his lease is over it is Carol's turn, without a grace.
    desk.refresh(&["x"], &[&carol]);
    for _ in 0..4 {
        desk.pass_ms(2_500);
        desk.refresh(&["x"], &[&carol]);
    }
    desk.pass_ms(1);
    assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
}

#[test]
fn a_grant_of_several_names_takes_its_ticket_out_of_all_queues() {
    let mut desk = Desk::new();
    desk.ask_for(&["a"], ALICE, acquire(desk.ballot(0)));
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.come_for(&["a", "b"], BOB, &bob);
    desk.come_for(&["b"], CAROL, &carol);
    desk.go(&["a"], ALICE, None);
    assert_eq!(
        desk.come_for(&["a", "b"], BOB, &again(&bob)),
        Answer::Granted
    );
    assert_eq!(desk.line("a"), [""; 0]);
    assert_eq!(desk.line("b"), ["c.1"]);
    desk.step_back(&["a", "b"], BOB, &bob);
    assert_eq!(desk.line("a"), ["b.1"]);
    assert_eq!(desk.line("b"), ["b.1", "c.1"]);
    assert_eq!(
        desk.wakes,
        [],
        "the first in line sent it, and will be back"
    );
}

#[test]
fn an_undo_of_what_was_not_granted_here_enters_nothing() {
    let (mut desk, bob, _) = two_wait();
    desk.cancel(&["x"], BOB, &bob);
    desk.step_back(&["x"], BOB, &bob);
    assert_eq!(desk.line("x"), ["c.1"]);
    desk.go(&["x"], ALICE, None);
    // Late: the node has not seen the acquire, and never grants it.
    let ballot = desk.next_ballot(&["x"]);
    let mut blind = leave(ballot, ReleaseKind::Undo, Some(&bob), true);
    if let Op::Release(Release { fate_unknown, .. }) = &mut blind {
        *fate_unknown = true;
    }
    desk.ask(BOB, blind);
    assert_eq!(desk.line("x"), ["c.1"]);
    let late = acquire_in_line(ballot, &bob);
    assert_eq!(desk.ask(BOB, late), Answer::Stale);
}

#[test]
fn who_holds_again_after_a_later_attempt_is_not_put_back_by_an_earlier_undo() {
    let (mut desk, bob, _) = two_wait();
    desk.go(&["x"], ALICE, None);
    let first = desk.next_ballot(&["x"]);
    desk.ask(BOB, acquire_in_line(first, &bob));
    desk.come(BOB, &bob);
    let late = leave(first, ReleaseKind::Undo, Some(&bob), true);
    assert_eq!(desk.ask(BOB, late), Answer::Newer);
    assert_eq!(desk.line("x"), ["c.1"]);
}

#[test]
fn an_undo_keeps_the_place_but_a_release_or_a_cancel_drops_it() {
    let (mut desk, bob, carol) = two_wait();
    desk.go(&["x"], ALICE, None);
    desk.come(BOB, &bob);
    assert_eq!(desk.step_back(&["x"], BOB, &bob), Answer::Released);
    assert_eq!(desk.line("x"), ["b.1", "c.1"]);
    assert_eq!(desk.come(BOB, &bob), Answer::Granted);
    desk.go(&["x"], BOB, Some(&bob));
    assert_eq!(desk.line("x"), ["c.1"]);
    assert_eq!(desk.cancel(&["x"], CAROL, &carol), Answer::Gone);
    assert_eq!(desk.line("x"), [""; 0]);
}

#[test]
fn a_late_undo_that_is_refused_leaves_the_line_alone() {
    let (mut desk, bob, _) = two_wait();
    desk.go(&["x"], ALICE, None);
    let first = desk.next_ballot(&["x"]);
    desk.ask(BOB, acquire_in_line(first, &bob));
    desk.come(BOB, &bob);
    let late = leave(first, ReleaseKind::Undo, Some(&bob), false);
    assert_eq!(desk.ask(BOB, late), Answer::Newer);
    assert_eq!(desk.line("x"), ["c.1"]);
}

#[test]
fn ahead_counts_those_before_the_caller() {
    let (mut desk, bob, carol) = two_wait();
    let ahead = |answer| match answer {
        Answer::Held(Holder { ahead, .. }) => ahead,
        other => panic!("{other:?}"),
    };
    assert_eq!(ahead(desk.come(BOB, &bob)), 0);
    assert_eq!(ahead(desk.come(CAROL, &carol)), 1);
    assert_eq!(ahead(desk.ask(DAVE, acquire(desk.ballot(1)))), 2);
    let turns = desk.refresh(&["x"], &[&carol, &bob]);
    assert_eq!(turns, [1, 0].map(|ahead| Turn { ahead, free: false }));
    desk.go(&["x"], ALICE, None);
    let turns = desk.refresh(&["x"], &[&carol]);
    assert_eq!(
        turns,
        [Turn {
            ahead: 1,
            free: true
        }]
    );
    let Answer::Views(views) = desk.ask(DAVE, Op::Inspect) else {
        panic!("no views");
    };
    assert_eq!(views[0].waiting, 2);
}

#[test]
fn a_refresh_counts_in_the_longest_of_the_lines() {
    let mut desk = Desk::new();
    desk.ask_for(&["a", "b"], ALICE, acquire(desk.ballot(0)));
    let (bob, carol, dave) = (desk.place("b.1"), desk.place("c.1"), desk.place("d.1"));
    desk.come_for(&["b"], BOB, &bob);
    desk.come_for(&["b"], CAROL, &carol);
    desk.come_for(&["a", "b"], DAVE, &dave);
    let turns = desk.refresh(&["a", "b"], &[&dave]);
    assert_eq!(
        turns,
        [Turn {
            ahead: 2,
            free: false
        }]
    );
}

#[test]
fn an_entry_in_which_somebody_waits_has_not_lapsed() {
    let mut desk = Desk::new();
    let bob = desk.place("b.1");
    desk.refresh(&["x"], &[&bob]);
    assert!(!desk.entry("x").is_lapsed(&desk.rules, desk.now()));
    desk.pass_ms(TICKET_MS + 1);
    assert!(desk.entry("x").is_lapsed(&desk.rules, desk.now()));
}
