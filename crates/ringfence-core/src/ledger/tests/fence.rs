//! Floor and ceiling: what a ballot must exceed, and what it must not.

use super::*;

#[test]
fn the_floor_is_the_clock_less_the_window_for_a_name_without_a_record() {
    let mut node = TestNode::new();
    assert_eq!(node.floor("x"), node.ballot(-5_000_000));
    assert_eq!(
        node.ask(ALICE, acquire(node.ballot(-5_000_000))),
        Answer::Stale
    );
    assert_eq!(
        node.ask(ALICE, acquire(node.ballot(-4_999_999))),
        Answer::Granted
    );
}

#[test]
fn the_floor_rises_with_the_clock_even_with_a_record() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire_for(node.ballot(0), 1));
    node.pass_ms(30_000);
    assert!(node.entry("x").record.is_some());
    assert_eq!(node.floor("x"), node.ballot(-5_000_000));
}

#[test]
fn a_record_written_after_a_data_loss_does_not_pin_the_floor() {
    let mut node = TestNode::new();
    let granted = node.ballot(4_000_000);
    node.ask(ALICE, acquire_for(granted, 1));
    node.lose_data();
    // A late undo is the first request that the restarted node executes. It writes a record.
    node.ask(BOB, undo_of_unknown_fate(node.ballot(-4_000_000)));
    node.pass_ms(35_000);
    assert!(node.entry("x").record.is_some());
    assert!(node.floor("x") > granted);
    assert_eq!(node.ask(BOB, acquire(granted)), Answer::Stale);
}

#[test]
fn an_undo_on_a_name_without_a_record_stores_at_least_clock_less_window() {
    let mut node = TestNode::new();
    node.ask(BOB, undo_of_unknown_fate(Ballot::new(1)));
    let record = node.entry("x").record.unwrap();
    assert_eq!(record.fence, node.ballot(-5_000_000));
}

#[test]
fn a_clock_that_steps_back_does_not_lower_a_recorded_fence() {
    let mut node = TestNode::new();
    let granted = node.ballot(0);
    node.ask(ALICE, acquire_for(granted, 1));
    node.clock_us -= 4_000_000;
    assert_eq!(node.floor("x"), granted);
}

#[test]
fn a_ballot_above_the_ceiling_is_never_stored_by_any_operation() {
    let node = TestNode::new();
    let high = node.ballot(5_000_001);
    let ceiling = node.ballot(5_000_000);
    let final_of_unknown_fate = Op::Release(Release {
        ballot: high,
        kind: ReleaseKind::Final,
        fate_unknown: true,
        ticket: None,
        stays: false,
        keep_ms: None,
        delay_ms: 0,
    });
    let ops = [
        acquire(high),
        extend(high, TTL_MS),
        restore(high),
        release(high),
        undo(high),
        undo_of_unknown_fate(high),
        final_of_unknown_fate,
    ];
    for (op, holding) in ops
        .into_iter()
        .flat_map(|op| [(op.clone(), false), (op, true)])
    {
        let mut node = TestNode::new();
        if holding {
            node.ask(ALICE, acquire(node.ballot(0)));
        }
        node.ask(ALICE, op.clone());
        let Some(record) = node.entry("x").record else {
            continue;
        };
        let seated = record.seat.map(|seat| seat.ballot).unwrap_or_default();
        let stored = record.fence.max(record.closed).max(seated);
        assert!(stored <= ceiling, "{op:?}, holding: {holding}");
    }
}

#[test]
fn a_ballot_at_the_ceiling_is_granted_and_one_above_is_ahead() {
    let mut node = TestNode::new();
    assert_eq!(
        node.ask(ALICE, acquire(node.ballot(5_000_001))),
        Answer::Ahead
    );
    assert_eq!(
        node.ask(ALICE, acquire(node.ballot(5_000_000))),
        Answer::Granted
    );
}

#[test]
fn every_reply_carries_the_clock_and_the_floor_after_the_operation() {
    let mut node = TestNode::new();
    let ballot = node.ballot(7);
    let (answer, stamp) = node.ask_for(&["x"], ALICE, acquire(ballot));
    assert_eq!(answer, Answer::Granted);
    assert_eq!(stamp.clock_us, node.clock_us);
    assert_eq!(stamp.floor, ballot);
}

#[test]
fn the_floor_of_several_claims_is_the_highest() {
    let mut node = TestNode::new();
    let ballot = node.ballot(7);
    node.ask_for(&["a"], ALICE, acquire(ballot));
    let (_, stamp) = node.ask_for(&["b", "a"], BOB, Op::Inspect);
    assert_eq!(stamp.floor, ballot);
}

#[test]
fn a_record_lives_for_the_retention_or_as_long_as_its_key() {
    let mut node = TestNode::new();
    let lease_ms = node.now().lease_ms;
    node.ask_for(&["short"], ALICE, acquire_for(node.ballot(0), 50));
    node.ask_for(
        &["long"],
        ALICE,
        acquire_for(node.ballot(0), RETENTION_MS * 2),
    );
    let until = |node: &TestNode, name| node.entry(name).record.unwrap().until_ms;
    assert_eq!(until(&node, "short"), lease_ms + RETENTION_MS);
    assert_eq!(until(&node, "long"), lease_ms + RETENTION_MS * 2);
}

#[test]
fn every_write_renews_the_expiry_of_the_record_and_the_usual_release_writes_none() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    for op in [
        extend(ballot, 1),
        restore(ballot),
        acquire(ballot),
        release_of_unknown_fate(ballot),
    ] {
        node.pass_ms(5_000);
        node.ask(ALICE, op.clone());
        let record = node.entry("x").record.unwrap();
        assert_eq!(
            record.until_ms,
            node.now().lease_ms + RETENTION_MS,
            "{op:?}"
        );
    }
    // The record must outlive the fence, which was accepted by the acquire.
    let later = node.ballot(0);
    node.ask(ALICE, acquire(later));
    let accepted = node.now().lease_ms;
    node.pass_ms(5_000);
    assert_eq!(node.ask(ALICE, release(later)), Answer::Released);
    let record = node.entry("x").record.unwrap();
    assert_eq!(record.until_ms, accepted + RETENTION_MS);
    assert_eq!(record.fence, later);
}

#[test]
fn an_expired_record_is_dropped_after_the_clock_floor_has_passed_its_fence() {
    let mut node = TestNode::new();
    let ballot = node.ballot(5_000_000);
    node.ask(ALICE, acquire_for(ballot, 1));
    node.pass_ms(RETENTION_MS);
    node.floor("x");
    assert!(node.entry("x").record.is_some(), "its last millisecond");
    node.pass_ms(1);
    assert!(node.floor("x") > ballot);
    assert_eq!(node.entry("x"), Entry::default());
}
