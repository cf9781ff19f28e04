//! Extend: only a holder, and only upwards.

use super::*;

#[test]
fn an_extend_never_shortens() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire_for(ballot, TTL_MS));
    let until = desk.until_ms("x");
    assert_eq!(desk.ask(ALICE, extend(ballot, 1)), Answer::Extended);
    assert_eq!(desk.until_ms("x"), until);
    desk.pass_ms(1_000);
    assert_eq!(desk.ask(ALICE, extend(ballot, TTL_MS)), Answer::Extended);
    assert_eq!(desk.until_ms("x"), until.map(|until| until + 1_000));
}

#[test]
fn an_extend_raises_the_holders_ballot_and_never_lowers_it() {
    let mut desk = Desk::new();
    desk.ask(ALICE, acquire(desk.ballot(0)));
    let seated = |desk: &Desk| desk.entry("x").record.unwrap().seat.unwrap().ballot;
    desk.ask(ALICE, extend(desk.ballot(9), 1));
    assert_eq!(seated(&desk), desk.ballot(9));
    assert_eq!(desk.floor("x"), desk.ballot(9));
    desk.ask(ALICE, extend(desk.ballot(3), 1));
    assert_eq!(seated(&desk), desk.ballot(9));
}

#[test]
fn an_extend_keeps_the_label() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    desk.ask(ALICE, extend(ballot, TTL_MS));
    assert_eq!(desk.holder("x").unwrap().label.as_deref(), Some("job"));
}

#[test]
fn an_extend_of_what_has_expired_is_gone_and_brings_nothing_back() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(ALICE, acquire(ballot));
    desk.pass_ms(TTL_MS + 1);
    assert_eq!(desk.ask(ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(desk.entry("x").key, None);
}

#[test]
fn an_extend_of_what_another_took_is_held() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask(BOB, acquire(desk.ballot(1)));
    let before = desk.entry("x");
    assert!(is_held_by(&desk.ask(ALICE, extend(ballot, TTL_MS)), BOB));
    assert_eq!(desk.entry("x"), before);
}

#[test]
fn an_extend_of_several_claims_is_all_or_nothing() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask_for(&["a", "b"], ALICE, acquire_for(ballot, 1_000));
    desk.entries.remove(&key("b"));
    let before = desk.entry("a");
    let (answer, _) = desk.ask_for(&["a", "b"], ALICE, extend(ballot, TTL_MS));
    assert_eq!(answer, Answer::Gone);
    assert_eq!(desk.entry("a"), before);
}
