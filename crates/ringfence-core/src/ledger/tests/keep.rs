//! Release with keep: a tombstone, which no token equals, for a limited time.

use super::*;

const KEEP_MS: u64 = 70_000;

fn kept() -> TestNode {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    assert_eq!(node.ask(ALICE, keep(ballot, KEEP_MS)), Answer::Released);
    node
}

#[test]
fn a_tombstone_expires_after_the_keep_time() {
    let mut node = kept();
    let holder = node.holder("x").unwrap();
    assert!(holder.is_kept());
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.for_ms, Some(KEEP_MS));
    assert_eq!(holder.to_string(), "kept for 70.0 s after job released it");
    node.pass_ms(KEEP_MS);
    let answer = node.ask(BOB, acquire(node.ballot(0)));
    assert!(matches!(answer, Answer::Held(holder) if holder.is_kept()));
    node.pass_ms(1);
    assert_eq!(node.ask(BOB, acquire(node.ballot(0))), Answer::Granted);
}

#[test]
fn a_tombstone_refuses_every_operation_of_its_former_holder() {
    let mut node = kept();
    let before = node.entry("x").key;
    let ballot = Ballot::new(START_US);
    for op in [
        extend(ballot, TTL_MS),
        release(ballot),
        keep(ballot, 2 * KEEP_MS),
        restore(ballot),
        acquire(node.ballot(5)),
    ] {
        let answer = node.ask(ALICE, op);
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
        assert_eq!(node.entry("x").key, before);
    }
}

#[test]
fn a_keep_closes_the_ballot_so_a_late_restore_is_refused() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.ask(ALICE, keep(ballot, 100));
    node.pass_ms(101);
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Gone);
}

#[test]
fn a_keep_wakes_no_waiter_and_the_grace_starts_when_the_tombstone_ends() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let (first, second) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued(BOB, &first);
    node.acquire_queued(CAROL, &second);
    node.ask(ALICE, keep(ballot, 2_000));
    assert_eq!(node.wakes, []);
    node.pass_ms(2_001);
    let answer = node.acquire_queued(CAROL, &second);
    let for_ms = Some(GRACE_MS);
    assert_eq!(
        answer,
        Answer::Behind { ahead: 1, for_ms },
        "bob has the whole grace"
    );
    assert_eq!(node.acquire_queued(BOB, &first), Answer::Granted);
}

#[test]
fn neither_an_undo_nor_a_keep_of_zero_writes_a_tombstone() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let mut undo = undo(ballot);
    if let Op::Release(Release { keep_ms, .. }) = &mut undo {
        *keep_ms = Some(1000);
    }
    assert_eq!(node.ask(ALICE, undo), Answer::Released);
    assert_eq!(node.holder("x"), None);
    let ballot = node.ballot(1);
    node.ask(ALICE, acquire(ballot));
    assert_eq!(node.ask(ALICE, keep(ballot, 0)), Answer::Released);
    assert_eq!(node.holder("x"), None);
    assert_eq!(node.ask(BOB, keep(ballot, 1000)), Answer::Gone);
    assert_eq!(
        node.holder("x"),
        None,
        "the node did not have it, and its fate is known"
    );
}

#[test]
fn the_record_outlives_the_tombstone() {
    let node = kept();
    let entry = node.entry("x");
    let until = entry.key.unwrap().until_ms.unwrap();
    assert!(entry.record.unwrap().until_ms >= until);
}

#[test]
fn several_names_are_kept_together() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask_for(&["a", "b"], ALICE, acquire(ballot));
    node.ask_for(&["a", "b"], ALICE, keep(ballot, 100));
    for name in ["a", "b"] {
        assert!(node.holder(name).unwrap().is_kept());
    }
}

/// Like [`keep`], for a node that may have lost the lock before the release arrives.
fn keep_of_unknown_fate(ballot: Ballot, keep_ms: u64) -> Op {
    let mut op = keep(ballot, keep_ms);
    if let Op::Release(Release { fate_unknown, .. }) = &mut op {
        *fate_unknown = true;
    }
    op
}

#[test]
fn a_node_whose_lease_ended_before_the_release_keeps_the_lock() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.pass_ms(TTL_MS + 1);
    assert_eq!(
        node.ask(ALICE, keep(ballot, KEEP_MS)),
        Answer::Gone,
        "fate known: the lease has ended, so nothing is kept"
    );
    assert_eq!(node.holder("x"), None);
    let ballot = node.ballot(0);
    node.ask(BOB, acquire(ballot));
    node.pass_ms(TTL_MS + 1);
    assert_eq!(
        node.ask(BOB, keep_of_unknown_fate(ballot, KEEP_MS)),
        Answer::Gone
    );
    let holder = node.holder("x").unwrap();
    assert!(holder.is_kept());
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.for_ms, Some(KEEP_MS));
    assert_eq!(node.wakes, []);
    let answer = node.ask(BOB, restore(ballot));
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    assert!(node.holder("x").unwrap().is_kept());
}

#[test]
fn a_node_that_never_had_the_lock_keeps_it() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    assert_eq!(
        node.ask(ALICE, keep_of_unknown_fate(ballot, KEEP_MS)),
        Answer::Gone
    );
    assert!(node.holder("x").unwrap().is_kept());
    node.pass_ms(KEEP_MS + 1);
    assert_eq!(node.ask(BOB, acquire(node.ballot(0))), Answer::Granted);
}

#[test]
fn a_held_name_or_a_closed_ballot_is_not_kept() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(BOB, acquire(node.ballot(1)));
    let answer = node.ask(ALICE, keep_of_unknown_fate(ballot, KEEP_MS));
    assert!(is_held_by(&answer, BOB), "{answer:?}");
    assert!(!node.holder("x").unwrap().is_kept());
    node.ask(BOB, release(node.ballot(1)));
    // The ballot is closed, by its own release or by that of a later holder.
    assert_eq!(
        node.ask(ALICE, keep_of_unknown_fate(ballot, KEEP_MS)),
        Answer::Gone
    );
    assert_eq!(node.holder("x"), None);
}

#[test]
fn a_keep_does_not_block_readers() {
    let mut node = kept();
    node.pass_ms(KEEP_MS + 1);
    let shared = |who, op| Request {
        claims: Arc::from([Claim {
            name: key("x"),
            mode: Mode::Shared,
        }]),
        token: token(who),
        op,
    };
    let mut entries = vec![node.entry("x")];
    let request = shared(BOB, acquire(node.ballot(0)));
    apply(&node.rules, node.now(), &mut entries, &request);
    let request = Request {
        claims: Arc::from([Claim {
            name: key("x"),
            mode: Mode::Exclusive,
        }]),
        ..shared(ALICE, keep_of_unknown_fate(node.ballot(1), KEEP_MS))
    };
    let outcome = apply(&node.rules, node.now(), &mut entries, &request);
    assert!(matches!(outcome.answer, Answer::Held(_)));
    assert_eq!(entries[0].readers.len(), 1);
}

#[test]
fn a_ballot_above_the_ceiling_keeps_nothing() {
    let mut node = TestNode::new();
    let ballot = node.ballot(2 * WINDOW_US as i64);
    assert_eq!(
        node.ask(ALICE, keep_of_unknown_fate(ballot, KEEP_MS)),
        Answer::Gone
    );
    assert_eq!(node.holder("x"), None);
}
