//! Extend: only a holder can extend, and a lease is never shortened.

use super::*;

#[test]
fn an_extend_never_shortens() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire_for(ballot, TTL_MS));
    let until = node.until_ms("x");
    assert_eq!(node.ask(ALICE, extend(ballot, 1)), Answer::Extended);
    assert_eq!(node.until_ms("x"), until);
    node.pass_ms(1_000);
    assert_eq!(node.ask(ALICE, extend(ballot, TTL_MS)), Answer::Extended);
    assert_eq!(node.until_ms("x"), until.map(|until| until + 1_000));
}

#[test]
fn an_extend_raises_the_holders_ballot_and_never_lowers_it() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let seated = |node: &TestNode| node.entry("x").record.unwrap().seat.unwrap().ballot;
    node.ask(ALICE, extend(node.ballot(9), 1));
    assert_eq!(seated(&node), node.ballot(9));
    assert_eq!(node.floor("x"), node.ballot(9));
    node.ask(ALICE, extend(node.ballot(3), 1));
    assert_eq!(seated(&node), node.ballot(9));
}

#[test]
fn an_extend_keeps_the_label() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.ask(ALICE, extend(ballot, TTL_MS));
    assert_eq!(node.holder("x").unwrap().label.as_deref(), Some("job"));
}

#[test]
fn an_extend_of_an_expired_lock_is_gone_and_writes_no_key() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.pass_ms(TTL_MS + 1);
    assert_eq!(node.ask(ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(node.entry("x").key, None);
}

#[test]
fn an_extend_of_a_lock_that_another_client_holds_is_held() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(BOB, acquire(node.ballot(1)));
    let before = node.entry("x");
    assert!(is_held_by(&node.ask(ALICE, extend(ballot, TTL_MS)), BOB));
    assert_eq!(node.entry("x"), before);
}

#[test]
fn an_extend_of_several_claims_is_all_or_nothing() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask_for(&["a", "b"], ALICE, acquire_for(ballot, 1_000));
    node.entries.remove(&key("b"));
    let before = node.entry("a");
    let (answer, _) = node.ask_for(&["a", "b"], ALICE, extend(ballot, TTL_MS));
    assert_eq!(answer, Answer::Gone);
    assert_eq!(node.entry("a"), before);
}
