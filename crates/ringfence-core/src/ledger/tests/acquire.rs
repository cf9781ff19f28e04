//! Acquire: the order in which its answers count, and what a second grant may change.

use super::*;

#[test]
fn a_key_still_stands_in_its_last_millisecond() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    desk.pass_ms(TTL_MS);
    assert!(is_held_by(&desk.ask(BOB, acquire(desk.ballot(0))), ALICE));
    desk.pass_ms(1);
    assert_eq!(desk.ask(BOB, acquire(desk.ballot(0))), Answer::Granted);
}

#[test]
fn the_same_token_and_ballot_is_granted_again() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    let before = desk.entry("x");
    assert_eq!(desk.ask(ALICE, acquire(ballot)), Answer::Granted);
    assert_eq!(desk.entry("x"), before);
}

#[test]
fn a_regrant_under_a_higher_ballot_moves_the_seat_and_the_fence() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let higher = desk.ballot(1);
    assert_eq!(desk.ask(ALICE, acquire(higher)), Answer::Granted);
    let record = desk.entry("x").record.unwrap();
    assert_eq!(record.fence, higher);
    assert_eq!(record.seat.unwrap().ballot, higher);
}

#[test]
fn a_regrant_under_a_higher_ballot_never_shortens_the_lease() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire_for(desk.ballot(0), TTL_MS));
    let until = desk.until_ms("x");
    for op in [
        acquire_for(desk.ballot(0), 1),
        acquire_for(desk.ballot(1), 1),
    ] {
        assert_eq!(desk.ask(ALICE, op), Answer::Granted);
        assert_eq!(desk.until_ms("x"), until);
    }
}

#[test]
fn a_regrant_lengthens_the_lease() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire_for(ballot, 1));
    desk.ask(ALICE, acquire_for(ballot, TTL_MS));
    assert_eq!(desk.until_ms("x"), Some(desk.now().lease_ms + TTL_MS));
}

#[test]
fn an_earlier_ballot_of_the_holder_is_stale() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(1)));
    assert_eq!(desk.ask(ALICE, acquire(desk.ballot(0))), Answer::Stale);
    assert_eq!(
        desk.entry("x").record.unwrap().seat.unwrap().ballot,
        desk.ballot(1)
    );
}

#[test]
fn a_ballot_between_the_holders_and_the_fence_is_stale() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    desk.ask(BOB, undo_blindly(desk.ballot(10)));
    assert_eq!(desk.ask(ALICE, acquire(desk.ballot(10))), Answer::Stale);
    assert_eq!(desk.ask(ALICE, acquire(desk.ballot(11))), Answer::Granted);
}

#[test]
fn a_holders_ballot_above_the_ceiling_is_ahead() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    assert_eq!(
        desk.ask(ALICE, acquire(desk.ballot(5_000_001))),
        Answer::Ahead
    );
    assert_eq!(
        desk.entry("x").record.unwrap().seat.unwrap().ballot,
        desk.ballot(0)
    );
}

#[test]
fn held_counts_before_stale_and_ahead() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    for offset in [-1, 0, 1, 5_000_001] {
        let answer = desk.ask(BOB, acquire(desk.ballot(offset)));
        assert!(is_held_by(&answer, ALICE), "{offset}: {answer:?}");
    }
}

#[test]
fn held_says_who_and_for_how_long_but_never_the_secret() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    desk.pass_ms(4_000);
    let Answer::Held(holder) = desk.ask(BOB, acquire(desk.ballot(0))) else {
        panic!("not held");
    };
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.for_ms, Some(6_000));
    assert_eq!(holder.id.as_deref(), Some(token(ALICE).id()));
}

#[test]
fn stale_counts_before_ahead_when_the_clock_has_stepped_far_back() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire_for(desk.ballot(0), 0));
    desk.clock_us -= 10_000_000;
    desk.delete_key("x");
    // Between the new ceiling (-5 s) and the recorded fence (+10 s, seen from here).
    assert_eq!(
        desk.ask(BOB, acquire(desk.ballot(10_000_000))),
        Answer::Stale
    );
    assert_eq!(
        desk.ask(BOB, acquire(desk.ballot(10_000_001))),
        Answer::Ahead
    );
}

#[test]
fn a_refused_acquire_writes_nothing() {
    let mut desk = Desk::new();
    for offset in [-5_000_000, 5_000_001] {
        desk.ask(BOB, acquire(desk.ballot(offset)));
        assert_eq!(desk.entry("x"), Entry::default());
    }
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let before = desk.entry("x");
    desk.ask(BOB, acquire(desk.ballot(1)));
    assert_eq!(desk.entry("x"), before);
}

#[test]
fn several_claims_are_granted_together_under_one_ballot() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    let (answer, _) = desk.ask_for(&["a", "b"], ALICE, acquire(ballot));
    assert_eq!(answer, Answer::Granted);
    for name in ["a", "b"] {
        assert_eq!(
            desk.entry(name).record.unwrap().seat.unwrap().ballot,
            ballot
        );
    }
}

#[test]
fn one_held_claim_refuses_them_all() {
    let mut desk = Desk::new();
    desk.ask_for(&["b"], ALICE, acquire(desk.ballot(0)));
    let (answer, _) = desk.ask_for(&["a", "b", "c"], BOB, acquire(desk.ballot(1)));
    assert!(
        matches!(answer, Answer::Held(Holder { claim: 1, .. })),
        "{answer:?}"
    );
    for name in ["a", "c"] {
        assert_eq!(desk.entry(name), Entry::default(), "{name}");
    }
}

#[test]
fn one_stale_claim_refuses_them_all() {
    let mut desk = Desk::new();
    desk.ask_for(&["a"], BOB, undo_blindly(desk.ballot(0)));
    for names in [["a", "b"], ["b", "a"]] {
        let (answer, _) = desk.ask_for(&names, ALICE, acquire(desk.ballot(0)));
        assert_eq!(answer, Answer::Stale);
        assert_eq!(desk.entry("b"), Entry::default());
    }
}

#[test]
fn among_several_claims_held_counts_before_stale_before_ahead() {
    let mut desk = Desk::new();
    desk.ask_for(&["held"], ALICE, acquire(desk.ballot(0)));
    desk.ask_for(&["stale"], BOB, undo_blindly(desk.ballot(5_000_000)));
    desk.clock_us -= 1;
    // Above the ceiling for "free", not above the fence of "stale".
    let ballot = desk.ballot(5_000_001);
    let mut ask = |names: &[&str]| desk.ask_for(names, BOB, acquire(ballot)).0;
    assert_eq!(ask(&["free"]), Answer::Ahead);
    for names in [["free", "stale"], ["stale", "free"]] {
        assert_eq!(ask(&names), Answer::Stale);
    }
    for names in [["free", "stale", "held"], ["held", "stale", "free"]] {
        assert!(is_held_by(&ask(&names), ALICE));
    }
}
