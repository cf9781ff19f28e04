//! Acquire: the order in which its answers count, and what a second grant may change.

use super::*;

#[test]
fn a_key_still_exists_in_its_last_millisecond() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    node.pass_ms(TTL_MS);
    assert!(is_held_by(&node.ask(BOB, acquire(node.ballot(0))), ALICE));
    node.pass_ms(1);
    assert_eq!(node.ask(BOB, acquire(node.ballot(0))), Answer::Granted);
}

#[test]
fn the_same_token_and_ballot_is_granted_again() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let before = node.entry("x");
    assert_eq!(node.ask(ALICE, acquire(ballot)), Answer::Granted);
    assert_eq!(node.entry("x"), before);
}

#[test]
fn a_regrant_under_a_higher_ballot_raises_the_holders_ballot_and_the_fence() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let higher = node.ballot(1);
    assert_eq!(node.ask(ALICE, acquire(higher)), Answer::Granted);
    let record = node.entry("x").record.unwrap();
    assert_eq!(record.fence, higher);
    assert_eq!(record.seat.unwrap().ballot, higher);
}

#[test]
fn a_regrant_under_a_higher_ballot_never_shortens_the_lease() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire_for(node.ballot(0), TTL_MS));
    let until = node.until_ms("x");
    for op in [
        acquire_for(node.ballot(0), 1),
        acquire_for(node.ballot(1), 1),
    ] {
        assert_eq!(node.ask(ALICE, op), Answer::Granted);
        assert_eq!(node.until_ms("x"), until);
    }
}

#[test]
fn a_regrant_lengthens_the_lease() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire_for(ballot, 1));
    node.ask(ALICE, acquire_for(ballot, TTL_MS));
    assert_eq!(node.until_ms("x"), Some(node.now().lease_ms + TTL_MS));
}

#[test]
fn an_earlier_ballot_of_the_holder_is_stale() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(1)));
    assert_eq!(node.ask(ALICE, acquire(node.ballot(0))), Answer::Stale);
    assert_eq!(
        node.entry("x").record.unwrap().seat.unwrap().ballot,
        node.ballot(1)
    );
}

#[test]
fn a_ballot_between_the_holders_ballot_and_the_fence_is_stale() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    node.ask(BOB, undo_of_unknown_fate(node.ballot(10)));
    assert_eq!(node.ask(ALICE, acquire(node.ballot(10))), Answer::Stale);
    assert_eq!(node.ask(ALICE, acquire(node.ballot(11))), Answer::Granted);
}

#[test]
fn a_holders_ballot_above_the_ceiling_is_ahead() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    assert_eq!(
        node.ask(ALICE, acquire(node.ballot(5_000_001))),
        Answer::Ahead
    );
    assert_eq!(
        node.entry("x").record.unwrap().seat.unwrap().ballot,
        node.ballot(0)
    );
}

#[test]
fn held_counts_before_stale_and_ahead() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    for offset in [-1, 0, 1, 5_000_001] {
        let answer = node.ask(BOB, acquire(node.ballot(offset)));
        assert!(is_held_by(&answer, ALICE), "{offset}: {answer:?}");
    }
}

#[test]
fn held_reports_holder_and_remaining_lease_but_never_the_secret() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    node.pass_ms(4_000);
    let Answer::Held(holder) = node.ask(BOB, acquire(node.ballot(0))) else {
        panic!("not held");
    };
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.for_ms, Some(6_000));
    assert_eq!(holder.id.as_deref(), Some(token(ALICE).id()));
}

#[test]
fn stale_counts_before_ahead_when_the_clock_has_stepped_far_back() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire_for(node.ballot(0), 0));
    node.clock_us -= 10_000_000;
    node.delete_key("x");
    // Between the new ceiling (-5 s) and the recorded fence (+10 s, seen from here).
    assert_eq!(
        node.ask(BOB, acquire(node.ballot(10_000_000))),
        Answer::Stale
    );
    assert_eq!(
        node.ask(BOB, acquire(node.ballot(10_000_001))),
        Answer::Ahead
    );
}

#[test]
fn a_refused_acquire_writes_nothing() {
    let mut node = TestNode::new();
    for offset in [-5_000_000, 5_000_001] {
        node.ask(BOB, acquire(node.ballot(offset)));
        assert_eq!(node.entry("x"), Entry::default());
    }
    node.ask(ALICE, acquire(node.ballot(0)));
    let before = node.entry("x");
    node.ask(BOB, acquire(node.ballot(1)));
    assert_eq!(node.entry("x"), before);
}

#[test]
fn several_claims_are_granted_together_under_one_ballot() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    let (answer, _) = node.ask_for(&["a", "b"], ALICE, acquire(ballot));
    assert_eq!(answer, Answer::Granted);
    for name in ["a", "b"] {
        assert_eq!(
            node.entry(name).record.unwrap().seat.unwrap().ballot,
            ballot
        );
    }
}

#[test]
fn one_held_claim_refuses_all_claims() {
    let mut node = TestNode::new();
    node.ask_for(&["b"], ALICE, acquire(node.ballot(0)));
    let (answer, _) = node.ask_for(&["a", "b", "c"], BOB, acquire(node.ballot(1)));
    assert!(
        matches!(answer, Answer::Held(Holder { claim: 1, .. })),
        "{answer:?}"
    );
    for name in ["a", "c"] {
        assert_eq!(node.entry(name), Entry::default(), "{name}");
    }
}

#[test]
fn one_stale_claim_refuses_all_claims() {
    let mut node = TestNode::new();
    node.ask_for(&["a"], BOB, undo_of_unknown_fate(node.ballot(0)));
    for names in [["a", "b"], ["b", "a"]] {
        let (answer, _) = node.ask_for(&names, ALICE, acquire(node.ballot(0)));
        assert_eq!(answer, Answer::Stale);
        assert_eq!(node.entry("b"), Entry::default());
    }
}

#[test]
fn among_several_claims_held_counts_before_stale_before_ahead() {
    let mut node = TestNode::new();
    node.ask_for(&["held"], ALICE, acquire(node.ballot(0)));
    node.ask_for(
        &["stale"],
        BOB,
        undo_of_unknown_fate(node.ballot(5_000_000)),
    );
    node.clock_us -= 1;
    // Above the ceiling for "free", not above the fence of "stale".
    let ballot = node.ballot(5_000_001);
    let mut ask = |names: &[&str]| node.ask_for(names, BOB, acquire(ballot)).0;
    assert_eq!(ask(&["free"]), Answer::Ahead);
    for names in [["free", "stale"], ["stale", "free"]] {
        assert_eq!(ask(&names), Answer::Stale);
    }
    for names in [["free", "stale", "held"], ["held", "stale", "free"]] {
        assert!(is_held_by(&ask(&names), ALICE));
    }
}
