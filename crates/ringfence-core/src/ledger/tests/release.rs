//! Release: what a late one must not delete, and what a blind one must close off.

use super::*;

#[test]
fn a_release_frees_at_once_and_keeps_the_fence() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    assert_eq!(desk.ask(ALICE, release(ballot)), Answer::Released);
    assert_eq!(desk.holder("x"), None);
    assert_eq!(desk.floor("x"), ballot);
    assert_eq!(desk.ask(BOB, acquire(ballot)), Answer::Stale);
    assert_eq!(desk.ask(BOB, acquire(desk.ballot(1))), Answer::Granted);
}

#[test]
fn a_late_undo_of_attempt_1_does_not_delete_attempt_2() {
    let mut desk = Desk::new();
    let (first, second) = (desk.ballot(0), desk.ballot(1));
    desk.ask(ALICE, acquire(first));
    desk.ask(ALICE, acquire(second));
    let before = desk.entry("x");
    for late in [undo(first), undo_blindly(first), release(first)] {
        assert_eq!(desk.ask(ALICE, late), Answer::Newer);
        assert_eq!(desk.entry("x"), before);
    }
    assert_eq!(desk.ask(ALICE, undo(second)), Answer::Released);
}

#[test]
fn an_undo_of_a_later_attempt_takes_back_an_earlier_one() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    assert_eq!(desk.ask(ALICE, undo(desk.ballot(1))), Answer::Released);
}

#[test]
fn an_undo_retires_only_when_the_fate_is_unknown() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    assert_eq!(desk.ask(ALICE, undo(ballot)), Answer::Gone);
    assert_eq!(desk.entry("x"), Entry::default());
    assert_eq!(desk.ask(ALICE, undo_blindly(ballot)), Answer::Gone);
    assert_eq!(desk.floor("x"), ballot);
}

#[test]
fn a_late_acquire_after_retirement_is_stale() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, undo_blindly(ballot));
    assert_eq!(desk.ask(ALICE, acquire(ballot)), Answer::Stale);
    assert_eq!(desk.holder("x"), None);
}

#[test]
fn a_final_release_of_an_absent_key_retires_only_when_the_fate_is_unknown() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, release(ballot));
    assert!(desk.floor("x") < ballot);
    let blind = Op::Release(Release {
        ballot,
        kind: ReleaseKind::Final,
        fate_unknown: true,
        place: None,
        stays: false,
        keep_ms: None,
    });
    desk.ask(ALICE, blind);
    assert_eq!(desk.floor("x"), ballot);
}

#[test]
fn retiring_under_another_holder_leaves_it_seated() {
    let mut desk = Desk::new();
    desk.ask(BOB, acquire(desk.ballot(0)));
    let late = desk.ballot(10);
    assert!(is_held_by(&desk.ask(ALICE, undo_blindly(late)), BOB));
    assert_eq!(desk.holder("x").unwrap().label.as_deref(), Some("job"));
    assert_eq!(desk.floor("x"), late);
    assert_eq!(desk.ask(BOB, extend(desk.ballot(0), 1)), Answer::Extended);
}

#[test]
fn an_undo_does_not_close_the_ballot_but_a_release_does() {
    for (op, closed) in [(undo as fn(Ballot) -> Op, false), (release, true)] {
        let mut desk = Desk::new();
        let ballot = desk.ballot(0);
        desk.ask(ALICE, acquire(ballot));
        desk.ask(ALICE, op(ballot));
        let record = desk.entry("x").record.unwrap();
        assert_eq!(record.closed >= ballot, closed);
        assert_eq!(record.seat, None);
    }
}

#[test]
fn a_release_of_several_claims_frees_what_is_left_of_them() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask_for(&["a", "b"], ALICE, acquire(ballot));
    desk.entries.remove(&key("a"));
    let (answer, _) = desk.ask_for(&["a", "b"], ALICE, release(ballot));
    assert_eq!(answer, Answer::Gone);
    assert_eq!(desk.holder("b"), None);
}

#[test]
fn a_late_undo_touches_no_claim_if_one_is_newer() {
    let mut desk = Desk::new();
    desk.ask_for(&["a", "b"], ALICE, acquire(desk.ballot(0)));
    desk.ask_for(&["b"], ALICE, acquire(desk.ballot(1)));
    let (answer, _) = desk.ask_for(&["a", "b"], ALICE, undo(desk.ballot(0)));
    assert_eq!(answer, Answer::Newer);
    assert!(desk.holder("a").is_some());
}
