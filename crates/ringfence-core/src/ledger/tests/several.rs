//! Several names at once: one ticket in every queue, and no deadlock.

use proptest::prelude::*;

use super::*;
use crate::ledger::TICKET_MS;

#[test]
fn a_head_that_waits_for_another_held_name_cannot_be_passed() {
    let mut node = TestNode::new();
    node.ask_for(&["a"], ALICE, acquire(node.ballot(0)));
    node.ask_for(&["b"], DAVE, acquire(node.ballot(0)));
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued_for(&["a", "b"], BOB, &bob);
    node.acquire_queued_for(&["a"], CAROL, &carol);
    node.release_final(&["a"], ALICE, None);
    for _ in 0..5 {
        node.pass_ms(1_000);
        node.refresh(&["a", "b"], &[&bob]);
        let answer = node.acquire_queued_for(&["a"], CAROL, &reentered(&carol));
        let for_ever = Answer::Behind {
            ahead: 1,
            for_ms: None,
        };
        assert_eq!(answer, for_ever);
    }
    // No other holder blocks Bob any more: its grace starts now.
    node.release_final(&["b"], DAVE, None);
    node.refresh(&["a", "b"], &[&bob]);
    assert_eq!(
        node.acquire_queued_for(&["a"], CAROL, &reentered(&carol)),
        Answer::Granted,
        "the name itself has been free for a long time"
    );
}

#[test]
fn a_dead_head_that_waited_for_another_name_leaves_with_its_lease() {
    let mut node = TestNode::new();
    node.ask_for(&["b"], DAVE, acquire(node.ballot(0)));
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued_for(&["a", "b"], BOB, &bob);
    node.pass_ms(1_000);
    assert!(is_behind(
        &node.acquire_queued_for(&["a"], CAROL, &carol),
        1
    ));
    node.pass_ms(TICKET_MS);
    let answer = node.acquire_queued_for(&["a"], CAROL, &reentered(&carol));
    assert_eq!(answer, Answer::Granted);
}

#[test]
fn being_behind_in_one_queue_refuses_all_claims() {
    let mut node = TestNode::new();
    node.ask_for(&["b"], ALICE, acquire(node.ballot(0)));
    let (bob, carol) = (node.ticket("b.1"), node.ticket("c.1"));
    node.acquire_queued_for(&["b"], BOB, &bob);
    node.release_final(&["b"], ALICE, None);
    assert!(is_behind(
        &node.acquire_queued_for(&["a", "b"], CAROL, &carol),
        1
    ));
    assert_eq!(node.holder("a"), None);
    assert_eq!(node.queue_ids("a"), ["c.1"]);
}

#[test]
fn a_release_drops_the_ticket_in_every_queue() {
    let mut node = TestNode::new();
    let bob = node.ticket("b.1");
    assert_eq!(
        node.acquire_queued_for(&["a", "b"], BOB, &bob),
        Answer::Granted
    );
    node.release_final(&["a", "b"], BOB, Some(&bob));
    assert_eq!((node.queue_ids("a"), node.queue_ids("b")), (vec![], vec![]));
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A client that wants some of the names, several times.
#[derive(Debug, Clone)]
struct Contender {
    names: Vec<&'static str>,
    rounds: u32,
    /// For how many turns it holds the lock.
    keeps: u32,
}

fn contenders() -> impl Strategy<Value = Vec<Contender>> {
    let names = prop::sample::subsequence(&NAMES[..], 1..=NAMES.len()).prop_shuffle();
    let contender = (names, 1u32..4, 0u32..4).prop_map(|(names, rounds, keeps)| Contender {
        names,
        rounds,
        keeps,
    });
    prop::collection::vec(contender, 2..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The lowest ticket is the head of all its queues, so one client always makes progress. No
    /// client ever holds a part of its names.
    #[test]
    fn overlapping_sets_of_names_never_deadlock(contenders in contenders(), ms in 1u64..200) {
        let mut node = TestNode::new();
        let mut left: Vec<u32> = contenders.iter().map(|c| c.rounds).collect();
        let mut tickets: Vec<Option<Ticket>> = vec![None; contenders.len()];
        let mut holds: Vec<Option<u32>> = vec![None; contenders.len()];
        let mut turns = 0;
        while left.iter().any(|left| *left > 0) {
            turns += 1;
            let enough = 50 * contenders.iter().map(|c| c.rounds * (c.keeps + 1)).sum::<u32>();
            prop_assert!(turns < enough, "no progress: {left:?}");
            for (i, contender) in contenders.iter().enumerate() {
                node.pass_ms(ms.div_ceil(contenders.len() as u64));
                let who = i as u8 + 1;
                match holds[i] {
                    Some(0) => {
                        let ticket = tickets[i].take();
                        node.release_final(&contender.names, who, ticket.as_ref());
                        holds[i] = None;
                        left[i] -= 1;
                    }
                    Some(turns) => holds[i] = Some(turns - 1),
                    None if left[i] > 0 => {
                        let new = node.ticket(&format!("{i}.{turns}"));
                        let ticket = tickets[i].get_or_insert(new).clone();
                        let answer = node.acquire_queued_for(&contender.names, who, &ticket);
                        tickets[i] = Some(reentered(&ticket));
                        if answer == Answer::Granted {
                            holds[i] = Some(contender.keeps);
                        }
                        let held = contender.names.iter().filter(|name| {
                            node.entry(name).is_held_by(token(who).expose())
                        });
                        let all = if holds[i].is_some() { contender.names.len() } else { 0 };
                        prop_assert_eq!(held.count(), all);
                    }
                    None => {}
                }
            }
        }
    }
}
