//! A latch on one node: who has arrived, since when there is a latch, and who is told.

use super::*;
use crate::message::Arrivals;

const LIFE_MS: u64 = 100_000;

fn arrive(parties: &[&str], since_us: Option<u64>, count: u64) -> Op {
    Op::Arrive(Arrive {
        parties: parties.iter().map(|party| Arc::from(*party)).collect(),
        since_us,
        count,
        ttl_ms: LIFE_MS,
    })
}

fn attend(tickets: &[&str], list: bool) -> Op {
    let places = tickets.iter().map(|id| Place {
        since_us: 0,
        id: Arc::from(*id),
        first: false,
    });
    Op::Attend(Attend {
        places: places.collect(),
        list,
        ttl_ms: LIFE_MS,
    })
}

fn here(since_us: u64, parties: &[&str]) -> Answer {
    Answer::Arrivals(Arrivals {
        since_us: Some(since_us),
        arrived: parties.len() as u64,
        parties: parties.iter().map(|party| Arc::from(*party)).collect(),
    })
}

fn nothing() -> Answer {
    Answer::Arrivals(Arrivals::default())
}

impl Desk {
    fn arrive(&mut self, parties: &[&str], since_us: Option<u64>) -> Answer {
        self.ask(ALICE, arrive(parties, since_us, 2))
    }

    fn told(&self) -> Vec<(&str, u64)> {
        let told = self.wakes.iter();
        told.map(|wake| (wake.ticket.as_str(), wake.after_ms))
            .collect()
    }
}

#[test]
fn a_node_that_knows_nothing_of_a_latch_takes_nobody_until_it_is_told_when_it_was_made() {
    let mut desk = Desk::new();
    assert_eq!(desk.arrive(&["a"], None), nothing());
    assert_eq!(desk.entry("x"), Entry::default());
    assert_eq!(desk.arrive(&["a"], Some(START_US)), here(START_US, &["a"]));
    assert_eq!(desk.arrive(&["b"], None), here(START_US, &["a", "b"]));
}

#[test]
fn an_arrival_that_comes_twice_counts_once() {
    let mut desk = Desk::new();
    for _ in 0..3 {
        assert_eq!(desk.arrive(&["a"], Some(START_US)), here(START_US, &["a"]));
    }
}

#[test]
fn a_latch_is_as_old_as_the_earliest_time_that_anybody_told() {
    let mut desk = Desk::new();
    desk.arrive(&["a"], Some(START_US));
    assert_eq!(
        desk.arrive(&["a"], Some(START_US - 5)),
        here(START_US - 5, &["a"])
    );
    assert_eq!(
        desk.arrive(&["b"], Some(START_US + 5)),
        here(START_US - 5, &["a", "b"])
    );
}

#[test]
fn a_latch_from_the_future_is_refused() {
    let mut desk = Desk::new();
    let ceiling = START_US + WINDOW_US;
    assert_eq!(desk.arrive(&["a"], Some(ceiling + 1)), Answer::Ahead);
    assert_eq!(desk.entry("x"), Entry::default());
    assert_eq!(desk.arrive(&["a"], Some(ceiling)), here(ceiling, &["a"]));
}

#[test]
fn whoever_waits_is_told_once_when_enough_have_arrived() {
    let mut desk = Desk::new();
    assert_eq!(desk.ask(BOB, attend(&["c.1", "d.1"], true)), nothing());
    desk.arrive(&["a"], Some(START_US));
    assert_eq!(desk.told(), []);
    desk.arrive(&["a"], Some(START_US));
    assert_eq!(desk.told(), [], "nobody new");
    desk.arrive(&["b"], None);
    assert_eq!(desk.told(), [("c.1", 0), ("d.1", 0)]);
    desk.arrive(&["c"], None);
    assert_eq!(desk.told(), [], "they have left the line");
    // Whoever waits for more comes back.
    let all = here(START_US, &["a", "b", "c"]);
    assert_eq!(desk.ask(BOB, attend(&["c.1"], true)), all);
    desk.arrive(&["a", "d"], None);
    assert_eq!(desk.told(), [("c.1", 0)]);
}

#[test]
fn whoever_has_stopped_asking_is_not_told() {
    let mut desk = Desk::new();
    desk.ask(BOB, attend(&["c.1"], false));
    desk.pass_ms(2_000);
    desk.ask(BOB, attend(&["d.1"], false));
    desk.pass_ms(1_001);
    desk.arrive(&["a", "b"], Some(START_US));
    assert_eq!(desk.told(), [("d.1", 0)]);
}

#[test]
fn they_are_listed_only_for_whoever_wants_the_list() {
    let mut desk = Desk::new();
    desk.arrive(&["a", "b"], Some(START_US));
    let counted = Answer::Arrivals(Arrivals {
        since_us: Some(START_US),
        arrived: 2,
        parties: Vec::new(),
    });
    assert_eq!(desk.ask(BOB, attend(&[], false)), counted);
}

#[test]
fn a_latch_lives_as_long_as_somebody_arrives_or_waits_and_its_ttl_beyond() {
    let mut desk = Desk::new();
    desk.arrive(&["a"], Some(START_US));
    desk.pass_ms(LIFE_MS);
    desk.arrive(&["b"], None);
    desk.pass_ms(LIFE_MS);
    let both = here(START_US, &["a", "b"]);
    assert_eq!(desk.ask(BOB, attend(&["c.1"], true)), both);
    desk.pass_ms(LIFE_MS);
    let short = Op::Arrive(Arrive {
        parties: Arc::from([Arc::from("a")]),
        since_us: None,
        count: 2,
        ttl_ms: 1,
    });
    assert_eq!(desk.ask(BOB, short), both, "its last millisecond");
    desk.pass_ms(2);
    assert_eq!(desk.ask(BOB, attend(&[], true)), nothing());
    assert_eq!(desk.entry("x"), Entry::default());
}

#[test]
fn no_ttl_shortens_the_life_of_a_latch() {
    let mut desk = Desk::new();
    desk.arrive(&["a"], Some(START_US));
    let mut short = attend(&[], true);
    if let Op::Attend(Attend { ttl_ms, .. }) = &mut short {
        *ttl_ms = 1;
    }
    desk.ask(BOB, short.clone());
    desk.pass_ms(LIFE_MS);
    assert_eq!(desk.ask(BOB, short), here(START_US, &["a"]));
}

#[test]
fn a_latch_and_a_lock_do_not_know_each_other() {
    let mut desk = Desk::new();
    desk.arrive(&["a", "b"], Some(START_US));
    let grant = desk.ask(ALICE, acquire(desk.ballot(0)));
    assert_eq!(grant, Answer::Granted);
}
