//! Passing a dead head: when, whom it costs its place, and since when a name counts as free.

use super::*;

/// Alice holds; Bob, Carol and Dave wait, in this order.
fn three_wait() -> (Desk, [Place; 3]) {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let places = ["b.1", "c.1", "d.1"].map(|id| desk.place(id));
    for (who, place) in [BOB, CAROL, DAVE].into_iter().zip(&places) {
        desk.come(who, place);
    }
    (desk, places.map(|place| again(&place)))
}

fn waits_for(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Behind { for_ms, .. } => *for_ms,
        other => panic!("not behind but {other:?}"),
    }
}

#[test]
fn a_dead_head_is_passed_after_its_grace() {
    let (mut desk, [_, carol, dave]) = three_wait();
    desk.pass_ms(10);
    desk.go(&["x"], ALICE, None);
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS));
    assert_eq!(waits_for(&desk.come(DAVE, &dave)), Some(2 * GRACE_MS));
    desk.pass_ms(GRACE_MS - 1);
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(1));
    desk.pass_ms(1);
    assert_eq!(waits_for(&desk.come(DAVE, &dave)), Some(GRACE_MS));
    assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
}

#[test]
fn the_kth_in_line_waits_for_k_graces() {
    let (mut desk, [_, _, dave]) = three_wait();
    desk.go(&["x"], ALICE, None);
    desk.pass_ms(2 * GRACE_MS - 1);
    assert_eq!(waits_for(&desk.come(DAVE, &dave)), Some(1));
    desk.pass_ms(1);
    assert_eq!(desk.come(DAVE, &dave), Answer::Granted);
}

#[test]
fn who_is_passed_without_having_come_loses_its_place_but_may_come_back_to_it() {
    let (mut desk, [bob, carol, dave]) = three_wait();
    desk.pass_ms(10);
    desk.go(&["x"], ALICE, None);
    desk.pass_ms(GRACE_MS);
    assert_eq!(
        desk.line("x"),
        ["b.1", "c.1", "d.1"],
        "no lease is over yet"
    );
    assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
    assert_eq!(desk.line("x"), ["d.1"]);
    desk.refresh(&["x"], &[&bob, &dave]);
    assert_eq!(desk.line("x"), ["b.1", "d.1"]);
    desk.go(&["x"], CAROL, Some(&carol));
    assert!(is_behind(&desk.come(DAVE, &dave), 1));
    assert_eq!(desk.come(BOB, &bob), Answer::Granted);
}

#[test]
fn who_is_passed_but_was_heard_of_since_the_name_is_free_keeps_its_place() {
    for heard_after_ms in [0, 1] {
        let (mut desk, [bob, carol, _]) = three_wait();
        desk.pass_ms(10);
        desk.go(&["x"], ALICE, None);
        desk.pass_ms(heard_after_ms);
        desk.refresh(&["x"], &[&bob]);
        desk.pass_ms(GRACE_MS);
        assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
        assert_eq!(desk.line("x"), ["b.1", "d.1"]);
    }
}

#[test]
fn an_undo_does_not_restart_the_grace() {
    let (mut desk, [bob, carol, _]) = three_wait();
    desk.go(&["x"], ALICE, None);
    desk.pass_ms(1_000);
    assert_eq!(desk.come(BOB, &bob), Answer::Granted);
    desk.step_back(&["x"], BOB, &bob);
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS - 1_000));
}

#[test]
fn a_blind_undo_does_not_restart_the_grace() {
    let (mut desk, [_, carol, _]) = three_wait();
    desk.go(&["x"], ALICE, None);
    desk.pass_ms(1_000);
    desk.ask(BOB, undo_blindly(desk.ballot(0)));
    desk.ask(BOB, release(desk.ballot(0)));
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS - 1_000));
}

#[test]
fn a_lease_that_ran_out_freed_the_name_then() {
    let (mut desk, [bob, carol, _]) = three_wait();
    for _ in 0..10 {
        desk.pass_ms(1_000);
        desk.refresh(&["x"], &[&bob, &carol]);
    }
    desk.pass_ms(501);
    // Ten seconds were the lease: it ended half a second ago.
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS - 500));
}

#[test]
fn an_extended_lease_frees_the_name_when_it_ends_and_no_extend_moves_the_time_before() {
    let (mut desk, [bob, carol, _]) = three_wait();
    let free_since = |desk: &Desk| desk.entry("x").record.unwrap().free_since_ms;
    let before = free_since(&desk);
    desk.pass_ms(1_000);
    desk.ask(ALICE, extend(desk.ballot(0), 2_000 + TTL_MS));
    desk.ask(ALICE, acquire(desk.ballot(1)));
    desk.ask(ALICE, restore(desk.ballot(2)));
    assert_eq!(free_since(&desk), before);
    let ends_ms = desk.until_ms("x").unwrap();
    while desk.now().lease_ms <= ends_ms + 250 {
        desk.pass_ms(250);
        desk.refresh(&["x"], &[&bob, &carol]);
    }
    assert_eq!(free_since(&desk), ends_ms + 1);
}

#[test]
fn a_key_deleted_by_hand_is_missed_when_somebody_in_line_comes() {
    let (mut desk, [bob, carol, _]) = three_wait();
    desk.pass_ms(1_000);
    desk.delete_key("x");
    desk.pass_ms(1_000);
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS));
    desk.pass_ms(500);
    desk.refresh(&["x"], &[&bob]);
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS - 500));
}

#[test]
fn a_strangers_key_is_missed_when_somebody_in_line_comes() {
    let mut desk = Desk::new();
    desk.set_foreign("x", "theirs", None);
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.come(BOB, &bob);
    assert!(desk.entry("x").record.unwrap().stranger);
    desk.pass_ms(1_000);
    desk.come(CAROL, &carol);
    desk.delete_key("x");
    desk.pass_ms(1_000);
    assert_eq!(waits_for(&desk.come(CAROL, &carol)), Some(GRACE_MS));
    assert!(!desk.entry("x").record.unwrap().stranger);
    desk.pass_ms(GRACE_MS);
    assert_eq!(desk.come(CAROL, &again(&carol)), Answer::Granted);
}

#[test]
fn a_stranger_after_a_stranger_frees_the_name_once_more() {
    let mut desk = Desk::new();
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    for _ in 0..2 {
        desk.set_foreign("x", "theirs", Some(desk.now().lease_ms + 100));
        desk.refresh(&["x"], &[&bob, &carol]);
        desk.pass_ms(101);
        assert_eq!(waits_for(&desk.come(CAROL, &again(&carol))), Some(GRACE_MS));
    }
}

#[test]
fn a_name_that_nobody_held_has_always_been_free() {
    let mut desk = Desk::new();
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.refresh(&["x"], &[&bob]);
    assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
    assert_eq!(desk.line("x"), ["b.1"]);
}
