//! A latch on one node: its parties, its creation time, and its wakes.

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
    let tickets = tickets.iter().map(|id| Ticket {
        since_us: 0,
        id: Arc::from(*id),
        first: false,
        label: Arc::from("waiter"),
    });
    Op::Attend(Attend {
        tickets: tickets.collect(),
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

impl TestNode {
    fn arrive(&mut self, parties: &[&str], since_us: Option<u64>) -> Answer {
        self.ask(ALICE, arrive(parties, since_us, 2))
    }

    fn woken(&self) -> Vec<(&str, u64)> {
        let wakes = self.wakes.iter();
        wakes
            .map(|wake| (wake.ticket.as_str(), wake.after_ms))
            .collect()
    }
}

#[test]
fn a_node_creates_a_latch_only_with_its_creation_time() {
    let mut node = TestNode::new();
    assert_eq!(node.arrive(&["a"], None), nothing());
    assert_eq!(node.entry("x"), Entry::default());
    assert_eq!(node.arrive(&["a"], Some(START_US)), here(START_US, &["a"]));
    assert_eq!(node.arrive(&["b"], None), here(START_US, &["a", "b"]));
}

#[test]
fn a_repeated_arrival_counts_once() {
    let mut node = TestNode::new();
    for _ in 0..3 {
        assert_eq!(node.arrive(&["a"], Some(START_US)), here(START_US, &["a"]));
    }
}

#[test]
fn a_latch_keeps_the_earliest_creation_time() {
    let mut node = TestNode::new();
    node.arrive(&["a"], Some(START_US));
    assert_eq!(
        node.arrive(&["a"], Some(START_US - 5)),
        here(START_US - 5, &["a"])
    );
    assert_eq!(
        node.arrive(&["b"], Some(START_US + 5)),
        here(START_US - 5, &["a", "b"])
    );
}

#[test]
fn a_latch_from_the_future_is_refused() {
    let mut node = TestNode::new();
    let ceiling = START_US + WINDOW_US;
    assert_eq!(node.arrive(&["a"], Some(ceiling + 1)), Answer::Ahead);
    assert_eq!(node.entry("x"), Entry::default());
    assert_eq!(node.arrive(&["a"], Some(ceiling)), here(ceiling, &["a"]));
}

#[test]
fn waiters_are_woken_once_when_enough_parties_have_arrived() {
    let mut node = TestNode::new();
    assert_eq!(node.ask(BOB, attend(&["c.1", "d.1"], true)), nothing());
    node.arrive(&["a"], Some(START_US));
    assert_eq!(node.woken(), []);
    node.arrive(&["a"], Some(START_US));
    assert_eq!(node.woken(), [], "no new party");
    node.arrive(&["b"], None);
    assert_eq!(node.woken(), [("c.1", 0), ("d.1", 0)]);
    node.arrive(&["c"], None);
    assert_eq!(node.woken(), [], "woken waiters have left the queue");
    // A waiter that needs more arrivals enters the queue again.
    let all = here(START_US, &["a", "b", "c"]);
    assert_eq!(node.ask(BOB, attend(&["c.1"], true)), all);
    node.arrive(&["a", "d"], None);
    assert_eq!(node.woken(), [("c.1", 0)]);
}

#[test]
fn a_waiter_that_stopped_refreshing_is_not_woken() {
    let mut node = TestNode::new();
    node.ask(BOB, attend(&["c.1"], false));
    node.pass_ms(2_000);
    node.ask(BOB, attend(&["d.1"], false));
    node.pass_ms(1_001);
    node.arrive(&["a", "b"], Some(START_US));
    assert_eq!(node.woken(), [("d.1", 0)]);
}

#[test]
fn parties_are_listed_only_on_request() {
    let mut node = TestNode::new();
    node.arrive(&["a", "b"], Some(START_US));
    let counted = Answer::Arrivals(Arrivals {
        since_us: Some(START_US),
        arrived: 2,
        parties: Vec::new(),
    });
    assert_eq!(node.ask(BOB, attend(&[], false)), counted);
}

#[test]
fn arrivals_and_waiters_keep_a_latch_alive_for_its_ttl() {
    let mut node = TestNode::new();
    node.arrive(&["a"], Some(START_US));
    node.pass_ms(LIFE_MS);
    node.arrive(&["b"], None);
    node.pass_ms(LIFE_MS);
    let both = here(START_US, &["a", "b"]);
    assert_eq!(node.ask(BOB, attend(&["c.1"], true)), both);
    node.pass_ms(LIFE_MS);
    let short = Op::Arrive(Arrive {
        parties: Arc::from([Arc::from("a")]),
        since_us: None,
        count: 2,
        ttl_ms: 1,
    });
    assert_eq!(node.ask(BOB, short), both, "its last millisecond");
    node.pass_ms(2);
    assert_eq!(node.ask(BOB, attend(&[], true)), nothing());
    assert_eq!(node.entry("x"), Entry::default());
}

#[test]
fn a_shorter_ttl_does_not_shorten_the_life_of_a_latch() {
    let mut node = TestNode::new();
    node.arrive(&["a"], Some(START_US));
    let mut short = attend(&[], true);
    if let Op::Attend(Attend { ttl_ms, .. }) = &mut short {
        *ttl_ms = 1;
    }
    node.ask(BOB, short.clone());
    node.pass_ms(LIFE_MS);
    assert_eq!(node.ask(BOB, short), here(START_US, &["a"]));
}

#[test]
fn a_latch_and_a_lock_are_independent() {
    let mut node = TestNode::new();
    node.arrive(&["a", "b"], Some(START_US));
    let grant = node.ask(ALICE, acquire(node.ballot(0)));
    assert_eq!(grant, Answer::Granted);
}
