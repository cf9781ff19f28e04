//! Release: a late one must not delete a newer key, and one with unknown fate must retire the
//! ballot.

use super::*;

#[test]
fn a_release_frees_at_once_and_keeps_the_fence() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    assert_eq!(node.ask(ALICE, release(ballot)), Answer::Released);
    assert_eq!(node.holder("x"), None);
    assert_eq!(node.floor("x"), ballot);
    assert_eq!(node.ask(BOB, acquire(ballot)), Answer::Stale);
    assert_eq!(node.ask(BOB, acquire(node.ballot(1))), Answer::Granted);
}

#[test]
fn a_late_undo_of_attempt_1_does_not_delete_attempt_2() {
    let mut node = TestNode::new();
    let (first, second) = (node.ballot(0), node.ballot(1));
    node.ask(ALICE, acquire(first));
    node.ask(ALICE, acquire(second));
    let before = node.entry("x");
    for late in [undo(first), undo_of_unknown_fate(first), release(first)] {
        assert_eq!(node.ask(ALICE, late), Answer::Newer);
        assert_eq!(node.entry("x"), before);
    }
    assert_eq!(node.ask(ALICE, undo(second)), Answer::Released);
}

#[test]
fn an_undo_of_a_later_attempt_also_undoes_an_earlier_one() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    assert_eq!(node.ask(ALICE, undo(node.ballot(1))), Answer::Released);
}

#[test]
fn an_undo_retires_only_when_the_fate_is_unknown() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    assert_eq!(node.ask(ALICE, undo(ballot)), Answer::Gone);
    assert_eq!(node.entry("x"), Entry::default());
    assert_eq!(node.ask(ALICE, undo_of_unknown_fate(ballot)), Answer::Gone);
    assert_eq!(node.floor("x"), ballot);
}

#[test]
fn a_late_acquire_after_retirement_is_stale() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, undo_of_unknown_fate(ballot));
    assert_eq!(node.ask(ALICE, acquire(ballot)), Answer::Stale);
    assert_eq!(node.holder("x"), None);
}

#[test]
fn a_final_release_of_an_absent_key_retires_only_when_the_fate_is_unknown() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, release(ballot));
    assert!(node.floor("x") < ballot);
    node.ask(ALICE, release_of_unknown_fate(ballot));
    assert_eq!(node.floor("x"), ballot);
}

#[test]
fn retiring_a_ballot_does_not_disturb_another_holder() {
    let mut node = TestNode::new();
    node.ask(BOB, acquire(node.ballot(0)));
    let late = node.ballot(10);
    assert!(is_held_by(
        &node.ask(ALICE, undo_of_unknown_fate(late)),
        BOB
    ));
    assert_eq!(node.holder("x").unwrap().label.as_deref(), Some("job"));
    assert_eq!(node.floor("x"), late);
    assert_eq!(node.ask(BOB, extend(node.ballot(0), 1)), Answer::Extended);
}

#[test]
fn an_undo_does_not_close_the_ballot_but_a_release_of_unknown_fate_does() {
    let undo = undo as fn(Ballot) -> Op;
    for (op, closed) in [(undo, false), (release_of_unknown_fate, true)] {
        let mut node = TestNode::new();
        let ballot = node.ballot(0);
        node.ask(ALICE, acquire(ballot));
        node.ask(ALICE, op(ballot));
        let record = node.entry("x").record.unwrap();
        assert_eq!(record.closed >= ballot, closed);
        assert_eq!(record.seat, None);
    }
}

#[test]
fn a_release_after_which_nothing_can_arrive_only_deletes_the_key() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let record = node.entry("x").record;
    node.pass_ms(10);
    assert_eq!(node.ask(ALICE, release(ballot)), Answer::Released);
    assert_eq!(node.entry("x").key, None);
    assert_eq!(node.entry("x").record, record);
    // A repeated release finds nothing and writes nothing.
    assert_eq!(node.ask(ALICE, release(ballot)), Answer::Gone);
    assert_eq!(node.entry("x").record, record);
    // The old seat does not count: the next client sees a free name.
    assert_eq!(node.holder("x"), None);
    node.pass_ms(10);
    assert_eq!(node.ask(BOB, acquire(node.ballot(0))), Answer::Granted);
    let since = node.entry("x").record.unwrap().free_since_ms;
    assert_eq!(since, node.now().lease_ms, "first found free by bob");
}

/// A dead first waiter must not block the others for the rest of the released lease.
#[test]
fn the_first_waiter_after_a_release_notes_since_when_the_name_is_free() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.ask(ALICE, release(ballot));
    node.pass_ms(10);
    let (dead, alive) = (node.ticket("dead"), node.ticket("alive"));
    node.refresh(&["x"], &[&dead]);
    let noted = node.now().lease_ms;
    let record = node.entry("x").record.unwrap();
    assert_eq!((record.free_since_ms, record.seat), (noted, None));
    node.pass_ms(10);
    node.refresh(&["x"], &[&alive]);
    assert_eq!(node.entry("x").record.unwrap().free_since_ms, noted);
}

#[test]
fn a_release_with_tickets_in_the_queue_starts_their_grace() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let waiter = node.ticket("waiter");
    node.refresh(&["x"], &[&waiter]);
    node.pass_ms(10);
    node.ask(ALICE, release(ballot));
    let record = node.entry("x").record.unwrap();
    assert_eq!(record.free_since_ms, node.now().lease_ms);
    assert_eq!((record.seat, record.closed), (None, Ballot::default()));
}

#[test]
fn a_release_of_several_claims_frees_those_that_are_still_held() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask_for(&["a", "b"], ALICE, acquire(ballot));
    node.entries.remove(&key("a"));
    let (answer, _) = node.ask_for(&["a", "b"], ALICE, release(ballot));
    assert_eq!(answer, Answer::Gone);
    assert_eq!(node.holder("b"), None);
}

#[test]
fn a_late_undo_changes_no_claim_if_one_has_a_newer_ballot() {
    let mut node = TestNode::new();
    node.ask_for(&["a", "b"], ALICE, acquire(node.ballot(0)));
    node.ask_for(&["b"], ALICE, acquire(node.ballot(1)));
    let (answer, _) = node.ask_for(&["a", "b"], ALICE, undo(node.ballot(0)));
    assert_eq!(answer, Answer::Newer);
    assert!(node.holder("a").is_some());
}
