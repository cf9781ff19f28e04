//! Floor and ceiling: what a ballot must exceed, and what it must not.

use super::*;

#[test]
fn the_floor_is_the_clock_less_the_window_for_a_name_without_a_record() {
    let mut desk = Desk::new();
    assert_eq!(desk.floor("x"), desk.ballot(-5_000_000));
    assert_eq!(
        desk.ask(ALICE, acquire(desk.ballot(-5_000_000))),
        Answer::Stale
    );
    assert_eq!(
        desk.ask(ALICE, acquire(desk.ballot(-4_999_999))),
        Answer::Granted
    );
}

#[test]
fn the_floor_rises_with_the_clock_even_where_a_record_stands() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire_for(desk.ballot(0), 1));
    desk.pass_ms(30_000);
    assert!(desk.entry("x").record.is_some());
    assert_eq!(desk.floor("x"), desk.ballot(-5_000_000));
}

#[test]
fn a_record_written_while_the_node_had_forgotten_does_not_pin_the_floor() {
    let mut desk = Desk::new();
    let granted = desk.ballot(4_000_000);
    desk.ask(ALICE, acquire_for(granted, 1));
    desk.forget();
    // A straggler's undo is the first thing that the restarted node hears: it writes a record.
    desk.ask(BOB, undo_blindly(desk.ballot(-4_000_000)));
    desk.pass_ms(35_000);
    assert!(desk.entry("x").record.is_some());
    assert!(desk.floor("x") > granted);
    assert_eq!(desk.ask(BOB, acquire(granted)), Answer::Stale);
}

#[test]
fn an_undo_on_a_name_without_a_record_stores_no_less_than_the_ground() {
    let mut desk = Desk::new();
    desk.ask(BOB, undo_blindly(Ballot::new(1)));
    let record = desk.entry("x").record.unwrap();
    assert_eq!(record.fence, desk.ballot(-5_000_000));
}

#[test]
fn a_clock_that_steps_back_does_not_lower_a_recorded_fence() {
    let mut desk = Desk::new();
    let granted = desk.ballot(0);
    desk.ask(ALICE, acquire_for(granted, 1));
    desk.clock_us -= 4_000_000;
    assert_eq!(desk.floor("x"), granted);
}

#[test]
fn a_ballot_above_the_ceiling_is_never_stored_by_any_operation() {
    let desk = Desk::new();
    let high = desk.ballot(5_000_001);
    let ceiling = desk.ballot(5_000_000);
    let final_blind = Op::Release(Release {
        ballot: high,
        kind: ReleaseKind::Final,
        fate_unknown: true,
        place: None,
        stays: false,
        keep_ms: None,
    });
    let ops = [
        acquire(high),
        extend(high, TTL_MS),
        restore(high),
        release(high),
        undo(high),
        undo_blindly(high),
        final_blind,
    ];
    for (op, holding) in ops
        .into_iter()
        .flat_map(|op| [(op.clone(), false), (op, true)])
    {
        let mut desk = Desk::new();
        if holding {
            desk.ask(ALICE, acquire(desk.ballot(0)));
        }
        desk.ask(ALICE, op.clone());
        let Some(record) = desk.entry("x").record else {
            continue;
        };
        let seated = record.seat.map(|seat| seat.ballot).unwrap_or_default();
        let stored = record.fence.max(record.closed).max(seated);
        assert!(stored <= ceiling, "{op:?}, holding: {holding}");
    }
}

#[test]
fn a_ballot_at_the_ceiling_is_granted_and_one_above_is_ahead() {
    let mut desk = Desk::new();
    assert_eq!(
        desk.ask(ALICE, acquire(desk.ballot(5_000_001))),
        Answer::Ahead
    );
    assert_eq!(
        desk.ask(ALICE, acquire(desk.ballot(5_000_000))),
        Answer::Granted
    );
}

#[test]
fn every_reply_carries_the_clock_and_the_floor_after_the_operation() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(7);
    let (answer, stamp) = desk.ask_for(&["x"], ALICE, acquire(ballot));
    assert_eq!(answer, Answer::Granted);
    assert_eq!(stamp.clock_us, desk.clock_us);
    assert_eq!(stamp.floor, ballot);
}

#[test]
fn the_floor_of_several_claims_is_the_highest() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(7);
    desk.ask_for(&["a"], ALICE, acquire(ballot));
    let (_, stamp) = desk.ask_for(&["b", "a"], BOB, Op::Inspect);
    assert_eq!(stamp.floor, ballot);
}

#[test]
fn a_record_outlives_its_key_by_whatever_is_longer() {
    let mut desk = Desk::new();
    let lease_ms = desk.now().lease_ms;
    desk.ask_for(&["short"], ALICE, acquire_for(desk.ballot(0), 50));
    desk.ask_for(
        &["long"],
        ALICE,
        acquire_for(desk.ballot(0), RETENTION_MS * 2),
    );
    let until = |desk: &Desk, name| desk.entry(name).record.unwrap().until_ms;
    assert_eq!(until(&desk, "short"), lease_ms + RETENTION_MS);
    assert_eq!(until(&desk, "long"), lease_ms + RETENTION_MS * 2);
}

#[test]
fn every_write_arms_the_record_anew() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    for op in [
        extend(ballot, 1),
        restore(ballot),
        acquire(ballot),
        release(ballot),
    ] {
        desk.pass_ms(5_000);
        desk.ask(ALICE, op.clone());
        let record = desk.entry("x").record.unwrap();
        assert_eq!(
            record.until_ms,
            desk.now().lease_ms + RETENTION_MS,
            "{op:?}"
        );
    }
}

#[test]
fn a_record_that_has_lapsed_is_dropped_and_the_ground_has_overtaken_its_fence() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(5_000_000);
    desk.ask(ALICE, acquire_for(ballot, 1));
    desk.pass_ms(RETENTION_MS);
    desk.floor("x");
    assert!(desk.entry("x").record.is_some(), "its last millisecond");
    desk.pass_ms(1);
    assert!(desk.floor("x") > ballot);
    assert_eq!(desk.entry("x"), Entry::default());
}
