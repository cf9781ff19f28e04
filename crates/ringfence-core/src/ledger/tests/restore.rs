//! Restore: it brings back what a node lost, never what a holder gave back.

use super::*;

#[test]
fn a_restore_brings_a_holder_back_to_a_node_that_forgot_it() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    desk.forget();
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Restored);
    let record = desk.entry("x").record.unwrap();
    assert_eq!(
        (record.fence, record.seat.unwrap().ballot),
        (ballot, ballot)
    );
    assert_eq!(desk.until_ms("x"), Some(desk.now().lease_ms + TTL_MS));
}

#[test]
fn a_restore_ignores_the_floor_and_does_not_lower_it() {
    let mut desk = Desk::new();
    let (ballot, raised) = (desk.ballot(0), desk.ballot(100));
    desk.ask(BOB, undo_blindly(raised));
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Restored);
    assert_eq!(desk.floor("x"), raised);
}

#[test]
fn a_late_restore_does_not_bring_back_a_released_lock() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    desk.ask(ALICE, release(ballot));
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Gone);
    assert_eq!(desk.holder("x"), None);
}

#[test]
fn a_release_that_found_nothing_still_keeps_a_late_restore_out() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    assert_eq!(desk.ask(ALICE, release(ballot)), Answer::Gone);
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Gone);
    assert_eq!(desk.holder("x"), None);
}

#[test]
fn a_release_refused_by_another_holder_still_closes_the_ballot() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    let other = desk.ballot(1);
    desk.ask(BOB, acquire(other));
    assert!(is_held_by(&desk.ask(ALICE, release(ballot)), BOB));
    desk.ask(BOB, undo(other));
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Gone);
}

#[test]
fn closing_one_ballot_leaves_a_later_one_restorable() {
    let mut desk = Desk::new();
    desk.ask(ALICE, release(desk.ballot(0)));
    assert_eq!(desk.ask(BOB, restore(desk.ballot(1))), Answer::Restored);
}

#[test]
fn a_restore_never_takes_from_another_holder() {
    let mut desk = Desk::new();
    desk.ask(BOB, acquire(desk.ballot(0)));
    assert!(is_held_by(&desk.ask(ALICE, restore(desk.ballot(1))), BOB));
}

#[test]
fn a_restore_above_the_ceiling_is_ahead() {
    let mut desk = Desk::new();
    assert_eq!(
        desk.ask(ALICE, restore(desk.ballot(5_000_001))),
        Answer::Ahead
    );
    assert_eq!(desk.entry("x"), Entry::default());
}

#[test]
fn a_restore_over_the_own_key_never_shortens_it() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire_for(ballot, 3 * TTL_MS));
    let until = desk.until_ms("x");
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Restored);
    assert_eq!(desk.until_ms("x"), until);
}

#[test]
fn a_restore_of_several_claims_is_all_or_nothing() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask_for(&["b"], ALICE, release(ballot));
    let (answer, _) = desk.ask_for(&["a", "b"], ALICE, restore(ballot));
    assert_eq!(answer, Answer::Gone);
    assert_eq!(desk.entry("a"), Entry::default());
}
