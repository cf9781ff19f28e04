//! Release with keep: a tombstone that no token matches, for a while.

use super::*;

const KEEP_MS: u64 = 70_000;

fn kept() -> Desk {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    assert_eq!(desk.ask(ALICE, keep(ballot, KEEP_MS)), Answer::Released);
    desk
}

#[test]
fn a_tombstone_stands_for_the_time_and_not_longer() {
    let mut desk = kept();
    let holder = desk.holder("x").unwrap();
    assert!(holder.is_kept());
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.for_ms, Some(KEEP_MS));
    assert_eq!(holder.to_string(), "kept for 70.0 s after job released it");
    desk.pass_ms(KEEP_MS);
    let answer = desk.ask(BOB, acquire(desk.ballot(0)));
    assert!(matches!(answer, Answer::Held(holder) if holder.is_kept()));
    desk.pass_ms(1);
    assert_eq!(desk.ask(BOB, acquire(desk.ballot(0))), Answer::Granted);
}

#[test]
fn not_even_who_released_can_extend_release_acquire_or_restore_it() {
    let mut desk = kept();
    let before = desk.entry("x").key;
    let ballot = Ballot::new(START_US);
    for op in [
        extend(ballot, TTL_MS),
        release(ballot),
        keep(ballot, 2 * KEEP_MS),
        restore(ballot),
        acquire(desk.ballot(5)),
    ] {
        let answer = desk.ask(ALICE, op);
        assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
        assert_eq!(desk.entry("x").key, before);
    }
}

#[test]
fn the_ballot_is_closed_so_no_late_restore_brings_it_back() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    desk.ask(ALICE, keep(ballot, 100));
    desk.pass_ms(101);
    assert_eq!(desk.ask(ALICE, restore(ballot)), Answer::Gone);
}

#[test]
fn nobody_is_woken_and_the_time_to_come_begins_when_it_ends() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    let (first, second) = (desk.place("b.1"), desk.place("c.1"));
    desk.come(BOB, &first);
    desk.come(CAROL, &second);
    desk.ask(ALICE, keep(ballot, 2_000));
    assert_eq!(desk.wakes, []);
    desk.pass_ms(2_001);
    let answer = desk.come(CAROL, &second);
    let for_ms = Some(GRACE_MS);
    assert_eq!(
        answer,
        Answer::Behind { ahead: 1, for_ms },
        "bob has the whole grace"
    );
    assert_eq!(desk.come(BOB, &first), Answer::Granted);
}

#[test]
fn an_undo_keeps_nothing_and_neither_does_a_keep_of_nothing() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    let mut undo = undo(ballot);
    if let Op::Release(Release { keep_ms, .. }) = &mut undo {
        *keep_ms = Some(1000);
    }
    assert_eq!(desk.ask(ALICE, undo), Answer::Released);
    assert_eq!(desk.holder("x"), None);
    let ballot = desk.ballot(1);
    desk.ask(ALICE, acquire(ballot));
    assert_eq!(desk.ask(ALICE, keep(ballot, 0)), Answer::Released);
    assert_eq!(desk.holder("x"), None);
    assert_eq!(desk.ask(BOB, keep(ballot, 1000)), Answer::Gone);
    assert_eq!(desk.holder("x"), None, "nobody had it, and that is known");
}

#[test]
fn the_record_outlives_the_tombstone() {
    let desk = kept();
    let entry = desk.entry("x");
    let until = entry.key.unwrap().until_ms.unwrap();
    assert!(entry.record.unwrap().until_ms >= until);
}

#[test]
fn several_names_are_kept_together() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask_for(&["a", "b"], ALICE, acquire(ballot));
    desk.ask_for(&["a", "b"], ALICE, keep(ballot, 100));
    for name in ["a", "b"] {
        assert!(desk.holder(name).unwrap().is_kept());
    }
}

/// As [`keep`], where the node may have lost the lock before it is told.
fn keep_blindly(ballot: Ballot, keep_ms: u64) -> Op {
    let mut op = keep(ballot, keep_ms);
    if let Op::Release(Release { fate_unknown, .. }) = &mut op {
        *fate_unknown = true;
    }
    op
}

#[test]
fn a_node_that_is_told_after_the_lease_has_ended_keeps_it() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    desk.pass_ms(TTL_MS + 1);
    assert_eq!(
        desk.ask(ALICE, keep(ballot, KEEP_MS)),
        Answer::Gone,
        "who surely had it then knows that its time was over"
    );
    assert_eq!(desk.holder("x"), None);
    let ballot = desk.ballot(0);
    desk.ask(BOB, acquire(ballot));
    desk.pass_ms(TTL_MS + 1);
    assert_eq!(desk.ask(BOB, keep_blindly(ballot, KEEP_MS)), Answer::Gone);
    let holder = desk.holder("x").unwrap();
    assert!(holder.is_kept());
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.for_ms, Some(KEEP_MS));
    assert_eq!(desk.wakes, []);
    let answer = desk.ask(BOB, restore(ballot));
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    assert!(desk.holder("x").unwrap().is_kept());
}

#[test]
fn a_node_that_never_had_it_keeps_it_too() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    assert_eq!(desk.ask(ALICE, keep_blindly(ballot, KEEP_MS)), Answer::Gone);
    assert!(desk.holder("x").unwrap().is_kept());
    desk.pass_ms(KEEP_MS + 1);
    assert_eq!(desk.ask(BOB, acquire(desk.ballot(0))), Answer::Granted);
}

#[test]
fn what_another_holds_or_was_told_before_is_not_kept() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(BOB, acquire(desk.ballot(1)));
    let answer = desk.ask(ALICE, keep_blindly(ballot, KEEP_MS));
    assert!(is_held_by(&answer, BOB), "{answer:?}");
    assert!(!desk.holder("x").unwrap().is_kept());
    desk.ask(BOB, release(desk.ballot(1)));
    // Closed by its own release, or by a later holder's.
    assert_eq!(desk.ask(ALICE, keep_blindly(ballot, KEEP_MS)), Answer::Gone);
    assert_eq!(desk.holder("x"), None);
}

#[test]
fn readers_are_not_shut_out_by_what_is_to_be_kept() {
    let mut desk = kept();
    desk.pass_ms(KEEP_MS + 1);
    let shared = |who, op| Request {
        claims: Arc::from([Claim {
            name: key("x"),
            mode: Mode::Shared,
        }]),
        token: token(who),
        op,
    };
    let mut entries = vec![desk.entry("x")];
    let request = shared(BOB, acquire(desk.ballot(0)));
    apply(&desk.rules, desk.now(), &mut entries, &request);
    let request = Request {
        claims: Arc::from([Claim {
            name: key("x"),
            mode: Mode::Exclusive,
        }]),
        ..shared(ALICE, keep_blindly(desk.ballot(1), KEEP_MS))
    };
    let outcome = apply(&desk.rules, desk.now(), &mut entries, &request);
    assert!(matches!(outcome.answer, Answer::Held(_)));
    assert_eq!(entries[0].readers.len(), 1);
}

#[test]
fn a_ballot_above_the_ceiling_keeps_nothing() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(2 * WINDOW_US as i64);
    assert_eq!(desk.ask(ALICE, keep_blindly(ballot, KEEP_MS)), Answer::Gone);
    assert_eq!(desk.holder("x"), None);
}
