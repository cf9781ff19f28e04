//! Several names at once: one ticket in every line, and nobody waits for ever.

use proptest::prelude::*;

use super::*;
use crate::ledger::TICKET_MS;

#[test]
fn a_head_that_waits_for_another_held_name_cannot_be_passed() {
    let mut desk = Desk::new();
    desk.ask_for(&["a"], ALICE, acquire(desk.ballot(0)));
    desk.ask_for(&["b"], DAVE, acquire(desk.ballot(0)));
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.come_for(&["a", "b"], BOB, &bob);
    desk.come_for(&["a"], CAROL, &carol);
    desk.go(&["a"], ALICE, None);
    for _ in 0..5 {
        desk.pass_ms(1_000);
        desk.refresh(&["a", "b"], &[&bob]);
        let answer = desk.come_for(&["a"], CAROL, &again(&carol));
        let for_ever = Answer::Behind {
            ahead: 1,
            for_ms: None,
        };
        assert_eq!(answer, for_ever);
    }
    // Nobody stands in Bob's way any more: from now on it has its grace.
    desk.go(&["b"], DAVE, None);
    desk.refresh(&["a", "b"], &[&bob]);
    assert_eq!(
        desk.come_for(&["a"], CAROL, &again(&carol)),
        Answer::Granted,
        "the name itself has been free for long"
    );
}

#[test]
fn a_dead_head_that_waited_elsewhere_goes_with_its_lease() {
    let mut desk = Desk::new();
    desk.ask_for(&["b"], DAVE, acquire(desk.ballot(0)));
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.come_for(&["a", "b"], BOB, &bob);
    desk.pass_ms(1_000);
    assert!(is_behind(&desk.come_for(&["a"], CAROL, &carol), 1));
    desk.pass_ms(TICKET_MS);
    let answer = desk.come_for(&["a"], CAROL, &again(&carol));
    assert_eq!(answer, Answer::Granted);
}

#[test]
fn being_behind_in_one_line_refuses_all_claims() {
    let mut desk = Desk::new();
    desk.ask_for(&["b"], ALICE, acquire(desk.ballot(0)));
    let (bob, carol) = (desk.place("b.1"), desk.place("c.1"));
    desk.come_for(&["b"], BOB, &bob);
    desk.go(&["b"], ALICE, None);
    assert!(is_behind(&desk.come_for(&["a", "b"], CAROL, &carol), 1));
    assert_eq!(desk.holder("a"), None);
    assert_eq!(desk.line("a"), ["c.1"]);
}

#[test]
fn a_release_drops_the_place_in_every_line() {
    let mut desk = Desk::new();
    let bob = desk.place("b.1");
    assert_eq!(desk.come_for(&["a", "b"], BOB, &bob), Answer::Granted);
    desk.go(&["a", "b"], BOB, Some(&bob));
    assert_eq!((desk.line("a"), desk.line("b")), (vec![], vec![]));
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One who wants some of the names, a number of times.
#[derive(Debug, Clone)]
struct Customer {
    names: Vec<&'static str>,
    rounds: u32,
    /// How many turns it keeps what it got.
    keeps: u32,
}

fn customers() -> impl Strategy<Value = Vec<Customer>> {
    let names = prop::sample::subsequence(&NAMES[..], 1..=NAMES.len()).prop_shuffle();
    let customer = (names, 1u32..4, 0u32..4).prop_map(|(names, rounds, keeps)| Customer {
        names,
        rounds,
        keeps,
    });
    prop::collection::vec(customer, 2..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The lowest ticket is the head of all its lines, so somebody always gets on. Nobody is ever
    /// seen with a part of what it wanted.
    #[test]
    fn overlapping_sets_never_block_each_other_for_good(customers in customers(), ms in 1u64..200) {
        let mut desk = Desk::new();
        let mut left: Vec<u32> = customers.iter().map(|c| c.rounds).collect();
        let mut places: Vec<Option<Place>> = vec![None; customers.len()];
        let mut holds: Vec<Option<u32>> = vec![None; customers.len()];
        let mut turns = 0;
        while left.iter().any(|left| *left > 0) {
            turns += 1;
            let enough = 50 * customers.iter().map(|c| c.rounds * (c.keeps + 1)).sum::<u32>();
            prop_assert!(turns < enough, "nobody gets on: {left:?}");
            for (i, customer) in customers.iter().enumerate() {
                desk.pass_ms(ms.div_ceil(customers.len() as u64));
                let who = i as u8 + 1;
                match holds[i] {
                    Some(0) => {
                        let place = places[i].take();
                        desk.go(&customer.names, who, place.as_ref());
                        holds[i] = None;
                        left[i] -= 1;
                    }
                    Some(turns) => holds[i] = Some(turns - 1),
                    None if left[i] > 0 => {
                        let new = desk.place(&format!("{i}.{turns}"));
                        let place = places[i].get_or_insert(new).clone();
                        let answer = desk.come_for(&customer.names, who, &place);
                        places[i] = Some(again(&place));
                        if answer == Answer::Granted {
                            holds[i] = Some(customer.keeps);
                        }
                        let held = customer.names.iter().filter(|name| {
                            desk.entry(name).is_held_by(token(who).expose())
                        });
                        let all = if holds[i].is_some() { customer.names.len() } else { 0 };
                        prop_assert_eq!(held.count(), all);
                    }
                    None => {}
                }
            }
        }
    }
}
