//! The plain key alone decides which client holds, and other libraries write it, too.

use super::*;

#[test]
fn the_plain_key_decides() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    // An operator deleted the key: the seat in the record does not count.
    node.delete_key("x");
    assert_eq!(node.ask(ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(node.ask(BOB, acquire(node.ballot(1))), Answer::Granted);
}

#[test]
fn a_foreign_value_is_a_holder_without_a_label() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire_for(node.ballot(0), 1));
    node.pass_ms(2);
    let lease_ms = node.now().lease_ms;
    node.set_foreign("x", "foreign-secret-value", Some(lease_ms + 700));
    let foreign = Holder {
        claim: 0,
        label: None,
        id: None,
        for_ms: Some(700),
        ahead: 0,
    };
    assert_eq!(
        node.ask(BOB, acquire(node.ballot(0))),
        Answer::Held(foreign)
    );
}

#[test]
fn a_foreign_value_without_an_expiry_has_no_for_ms_and_stays() {
    let mut node = TestNode::new();
    node.set_foreign("x", "for-ever", None);
    node.pass_ms(1_000_000);
    assert_eq!(node.holder("x").unwrap().for_ms, None);
    assert!(matches!(
        node.ask(BOB, acquire(node.ballot(0))),
        Answer::Held(_)
    ));
}

#[test]
fn a_foreign_holder_has_no_ballot() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    node.set_foreign("x", "foreign", None);
    let (Answer::Views(views), _) = node.ask_for(&["x"], BOB, Op::Inspect) else {
        panic!("no views");
    };
    assert_eq!(views[0].ballot, None);
    assert_eq!(views[0].floor, node.ballot(0));
}

#[test]
fn a_plain_lock_and_a_fenced_lock_exclude_each_other() {
    let mut node = TestNode::new();
    assert_eq!(
        node.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS })),
        Answer::Granted
    );
    assert!(is_held_by(&node.ask(BOB, acquire(node.ballot(0))), ALICE));
    assert_eq!(node.ask(ALICE, Op::PlainRelease), Answer::Released);
    assert_eq!(node.ask(BOB, acquire(node.ballot(0))), Answer::Granted);
    let refused = node.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    assert!(is_held_by(&refused, BOB));
}

#[test]
fn a_plain_acquire_is_set_nx_even_for_its_own_token() {
    let mut node = TestNode::new();
    node.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    let again = node.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    assert!(is_held_by(&again, ALICE));
}

#[test]
fn plain_operations_write_no_record() {
    let mut node = TestNode::new();
    for op in [
        Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
        Op::PlainExtend(PlainExtend { ttl_ms: TTL_MS }),
        Op::PlainRelease,
    ] {
        node.ask(ALICE, op);
        assert_eq!(node.entry("x").record, None);
    }
}

#[test]
fn a_plain_extend_never_shortens() {
    let mut node = TestNode::new();
    node.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    let until = node.until_ms("x");
    assert_eq!(
        node.ask(ALICE, Op::PlainExtend(PlainExtend { ttl_ms: 1 })),
        Answer::Extended
    );
    assert_eq!(node.until_ms("x"), until);
}

#[test]
fn a_plain_extend_or_release_needs_its_own_token_in_the_key() {
    let mut node = TestNode::new();
    assert_eq!(
        node.ask(ALICE, Op::PlainExtend(PlainExtend { ttl_ms: 1 })),
        Answer::Gone
    );
    assert_eq!(node.ask(ALICE, Op::PlainRelease), Answer::Gone);
    node.ask(BOB, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    for op in [Op::PlainExtend(PlainExtend { ttl_ms: 1 }), Op::PlainRelease] {
        assert!(is_held_by(&node.ask(ALICE, op), BOB));
    }
}

#[test]
fn an_inspect_changes_nothing_except_expiry() {
    let mut node = TestNode::new();
    node.ask(ALICE, acquire(node.ballot(0)));
    let before = node.entry("x");
    node.holder("x");
    assert_eq!(node.entry("x"), before);
}

#[test]
fn leases_use_the_lease_clock_and_ballots_the_other_clock() {
    // The wall clock of an embedded node may be set, but its leases run on another clock.
    let mut node = TestNode::new();
    node.ask(ALICE, acquire_for(node.ballot(0), 1_000));
    let later = Moment {
        clock_us: node.clock_us,
        lease_ms: node.now().lease_ms + 1_001,
    };
    let (answer, _) = node.ask_at(later, &["x"], BOB, acquire(node.ballot(1)));
    assert_eq!(answer, Answer::Granted);
}
