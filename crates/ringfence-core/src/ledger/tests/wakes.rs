//! Wakes: who is told that it may be its turn, and when to come.

use super::*;

/// Alice holds `x`; those with these ids wait, in this order.
fn waiting<const N: usize>(ids: [&str; N]) -> (Desk, [Place; N]) {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let places = ids.map(|id| {
        let place = desk.place(id);
        desk.pass_ms(1);
        place
    });
    desk.refresh(&["x"], &places.each_ref());
    assert_eq!(desk.wakes, []);
    (desk, places.map(|place| again(&place)))
}

#[test]
fn a_release_wakes_the_head_and_the_next_after_grace() {
    let (mut desk, _) = waiting(["b.1", "c.1", "d.1"]);
    desk.go(&["x"], ALICE, None);
    assert_eq!(desk.wakes, [wake("b.1", 0), wake("c.1", GRACE_MS)]);
}

#[test]
fn a_release_of_what_is_not_held_wakes_nobody() {
    let (mut desk, _) = waiting(["b.1"]);
    desk.go(&["x"], DAVE, None);
    assert_eq!(desk.wakes, []);
    desk.go(&["x"], ALICE, None);
    desk.go(&["x"], ALICE, None);
    assert_eq!(desk.wakes, []);
}

#[test]
fn whoever_releases_is_not_woken_by_its_own_ticket() {
    let (mut desk, [bob, _]) = waiting(["b.1", "c.1"]);
    desk.go(&["x"], ALICE, None);
    desk.come(BOB, &bob);
    desk.go(&["x"], BOB, Some(&bob));
    assert_eq!(desk.wakes, [wake("c.1", 0)]);
}

#[test]
fn an_undo_of_the_head_wakes_nobody() {
    let (mut desk, [bob, _]) = waiting(["b.1", "c.1"]);
    desk.go(&["x"], ALICE, None);
    desk.come(BOB, &bob);
    desk.step_back(&["x"], BOB, &bob);
    assert_eq!(desk.wakes, []);
}

#[test]
fn an_undo_of_one_further_behind_wakes_the_head_but_not_its_sender() {
    let (mut desk, [bob, carol, dave]) = waiting(["b.1", "c.1", "d.1"]);
    desk.go(&["x"], ALICE, None);
    desk.pass_ms(GRACE_MS);
    desk.refresh(&["x"], &[&bob]);
    assert_eq!(desk.come(CAROL, &carol), Answer::Granted);
    desk.step_back(&["x"], CAROL, &carol);
    assert_eq!(desk.wakes, [wake("b.1", 0)]);
    desk.pass_ms(GRACE_MS);
    desk.refresh(&["x"], &[&bob, &carol]);
    assert_eq!(desk.come(DAVE, &dave), Answer::Granted);
    desk.step_back(&["x"], DAVE, &dave);
    assert_eq!(desk.wakes, [wake("b.1", 0), wake("c.1", GRACE_MS)]);
}

#[test]
fn a_cancel_of_the_head_wakes_the_next() {
    let (mut desk, [bob, carol, _]) = waiting(["b.1", "c.1", "d.1"]);
    desk.cancel(&["x"], BOB, &bob);
    assert_eq!(desk.wakes, [], "somebody holds");
    desk.go(&["x"], ALICE, None);
    desk.cancel(&["x"], CAROL, &carol);
    assert_eq!(desk.wakes, [wake("d.1", 0)]);
}

#[test]
fn a_cancel_of_one_who_is_not_the_head_wakes_nobody() {
    let (mut desk, [_, carol]) = waiting(["b.1", "c.1"]);
    desk.go(&["x"], ALICE, None);
    desk.cancel(&["x"], CAROL, &carol);
    assert_eq!(desk.wakes, []);
}

#[test]
fn who_stands_in_several_lines_is_woken_once_and_as_early_as_in_any() {
    let mut desk = Desk::new();
    desk.ask_for(&["a", "b"], ALICE, acquire(desk.ballot(0)));
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.come_for(&["a"], BOB, &bob);
    desk.come_for(&["a", "b"], CAROL, &carol);
    desk.go(&["a", "b"], ALICE, None);
    assert_eq!(desk.wakes, [wake("b.1", 0), wake("c.1", 0)]);
}

#[test]
fn only_a_release_wakes() {
    let (mut desk, [bob, carol]) = waiting(["b.1", "c.1"]);
    desk.ask(ALICE, extend(desk.ballot(0), TTL_MS));
    assert_eq!(desk.wakes, []);
    desk.pass_ms(TTL_MS + 10);
    desk.refresh(&["x"], &[&bob, &carol]);
    assert_eq!(desk.wakes, [], "whoever waits knows when a lease ends");
    desk.come(BOB, &bob);
    assert_eq!(desk.wakes, []);
}
