//! Restore: it brings back a lock that a node lost, but never one that its holder released.

use super::*;

#[test]
fn a_restore_brings_a_holder_back_to_a_node_that_lost_it() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.lose_data();
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Restored);
    let record = node.entry("x").record.unwrap();
    assert_eq!(
        (record.fence, record.seat.unwrap().ballot),
        (ballot, ballot)
    );
    assert_eq!(node.until_ms("x"), Some(node.now().lease_ms + TTL_MS));
}

#[test]
fn a_restore_ignores_the_floor_and_does_not_lower_it() {
    let mut node = TestNode::new();
    let (ballot, raised) = (node.ballot(0), node.ballot(100));
    node.ask(BOB, undo_of_unknown_fate(raised));
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Restored);
    assert_eq!(node.floor("x"), raised);
}

#[test]
fn a_late_restore_does_not_bring_back_a_released_lock() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.ask(ALICE, release_of_unknown_fate(ballot));
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Gone);
    assert_eq!(node.holder("x"), None);
}

#[test]
fn a_release_of_an_absent_key_still_refuses_a_late_restore() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    assert_eq!(
        node.ask(ALICE, release_of_unknown_fate(ballot)),
        Answer::Gone
    );
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Gone);
    assert_eq!(node.holder("x"), None);
}

#[test]
fn a_release_refused_by_another_holder_still_closes_the_ballot() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    let other = node.ballot(1);
    node.ask(BOB, acquire(other));
    assert!(is_held_by(
        &node.ask(ALICE, release_of_unknown_fate(ballot)),
        BOB
    ));
    node.ask(BOB, undo(other));
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Gone);
}

#[test]
fn closing_one_ballot_leaves_a_later_one_restorable() {
    let mut node = TestNode::new();
    node.ask(ALICE, release_of_unknown_fate(node.ballot(0)));
    assert_eq!(node.ask(BOB, restore(node.ballot(1))), Answer::Restored);
}

#[test]
fn a_restore_never_takes_from_another_holder() {
    let mut node = TestNode::new();
    node.ask(BOB, acquire(node.ballot(0)));
    assert!(is_held_by(&node.ask(ALICE, restore(node.ballot(1))), BOB));
}

#[test]
fn a_restore_above_the_ceiling_is_ahead() {
    let mut node = TestNode::new();
    assert_eq!(
        node.ask(ALICE, restore(node.ballot(5_000_001))),
        Answer::Ahead
    );
    assert_eq!(node.entry("x"), Entry::default());
}

#[test]
fn a_restore_over_its_own_key_never_shortens_the_lease() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire_for(ballot, 3 * TTL_MS));
    let until = node.until_ms("x");
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Restored);
    assert_eq!(node.until_ms("x"), until);
}

#[test]
fn a_restore_of_several_claims_is_all_or_nothing() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask_for(&["b"], ALICE, release_of_unknown_fate(ballot));
    let (answer, _) = node.ask_for(&["a", "b"], ALICE, restore(ballot));
    assert_eq!(answer, Answer::Gone);
    assert_eq!(node.entry("a"), Entry::default());
}
