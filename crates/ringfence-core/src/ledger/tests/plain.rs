//! The plain key: it alone decides, and other libraries write it too.

use super::*;

#[test]
fn the_plain_key_decides() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    // Somebody deleted the key by hand: the record's seat counts for nothing.
    desk.delete_key("x");
    assert_eq!(desk.ask(ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(desk.ask(BOB, acquire(desk.ballot(1))), Answer::Granted);
}

#[test]
fn a_foreign_value_is_a_holder_without_a_label() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire_for(desk.ballot(0), 1));
    desk.pass_ms(2);
    let lease_ms = desk.now().lease_ms;
    desk.set_foreign("x", "somebody-elses-secret", Some(lease_ms + 700));
    let foreign = Holder {
        claim: 0,
        label: None,
        id: None,
        for_ms: Some(700),
        ahead: 0,
    };
    assert_eq!(
        desk.ask(BOB, acquire(desk.ballot(0))),
        Answer::Held(foreign)
    );
}

#[test]
fn a_foreign_value_without_an_expiry_has_no_for_ms_and_stays() {
    let mut desk = Desk::new();
    desk.set_foreign("x", "for-ever", None);
    desk.pass_ms(1_000_000);
    assert_eq!(desk.holder("x").unwrap().for_ms, None);
    assert!(matches!(
        desk.ask(BOB, acquire(desk.ballot(0))),
        Answer::Held(_)
    ));
}

#[test]
fn a_foreign_holder_has_no_ballot() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    desk.set_foreign("x", "foreign", None);
    let (Answer::Views(views), _) = desk.ask_for(&["x"], BOB, Op::Inspect) else {
        panic!("no views");
    };
    assert_eq!(views[0].ballot, None);
    assert_eq!(views[0].floor, desk.ballot(0));
}

#[test]
fn a_plain_lock_and_a_fenced_one_exclude_each_other() {
    let mut desk = Desk::new();
    assert_eq!(
        desk.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS })),
        Answer::Granted
    );
    assert!(is_held_by(&desk.ask(BOB, acquire(desk.ballot(0))), ALICE));
    assert_eq!(desk.ask(ALICE, Op::PlainRelease), Answer::Released);
    assert_eq!(desk.ask(BOB, acquire(desk.ballot(0))), Answer::Granted);
    let refused = desk.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    assert!(is_held_by(&refused, BOB));
}

#[test]
fn a_plain_acquire_is_set_nx_even_for_its_own_token() {
    let mut desk = Desk::new();
    desk.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    let again = desk.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    assert!(is_held_by(&again, ALICE));
}

#[test]
fn plain_operations_write_no_record() {
    let mut desk = Desk::new();
    for op in [
        Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
        Op::PlainExtend(PlainExtend { ttl_ms: TTL_MS }),
        Op::PlainRelease,
    ] {
        desk.ask(ALICE, op);
        assert_eq!(desk.entry("x").record, None);
    }
}

#[test]
fn a_plain_extend_never_shortens() {
    let mut desk = Desk::new();
    desk.ask(ALICE, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    let until = desk.until_ms("x");
    assert_eq!(
        desk.ask(ALICE, Op::PlainExtend(PlainExtend { ttl_ms: 1 })),
        Answer::Extended
    );
    assert_eq!(desk.until_ms("x"), until);
}

#[test]
fn a_plain_extend_or_release_needs_the_own_key() {
    let mut desk = Desk::new();
    assert_eq!(
        desk.ask(ALICE, Op::PlainExtend(PlainExtend { ttl_ms: 1 })),
        Answer::Gone
    );
    assert_eq!(desk.ask(ALICE, Op::PlainRelease), Answer::Gone);
    desk.ask(BOB, Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }));
    for op in [Op::PlainExtend(PlainExtend { ttl_ms: 1 }), Op::PlainRelease] {
        assert!(is_held_by(&desk.ask(ALICE, op), BOB));
    }
}

#[test]
fn an_inspect_changes_nothing_that_has_not_expired() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let before = desk.entry("x");
    desk.holder("x");
    assert_eq!(desk.entry("x"), before);
}

#[test]
fn leases_run_on_the_lease_clock_and_ballots_on_the_other() {
    // An embedded node's wall clock may be set while its leases run on.
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire_for(desk.ballot(0), 1_000));
    let later = Moment {
        clock_us: desk.clock_us,
        lease_ms: desk.now().lease_ms + 1_001,
    };
    let (answer, _) = desk.ask_at(later, &["x"], BOB, acquire(desk.ballot(1)));
    assert_eq!(answer, Answer::Granted);
}
