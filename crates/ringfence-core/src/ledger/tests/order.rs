//! While all waiters refresh their tickets, grants follow the order of the tickets.

use proptest::prelude::*;

use super::*;

/// The next action of a waiter.
#[derive(Debug, Clone, Copy)]
enum Action {
    Acquire,
    /// Releases what it holds, or stops waiting.
    Release,
    Undo,
    Extend,
    /// Tries to acquire without its ticket.
    AcquireWithoutTicket,
}

#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    who: usize,
    action: Action,
}

const WAITERS: usize = 5;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        6 => Just(Action::Acquire),
        3 => Just(Action::Release),
        1 => Just(Action::Undo),
        1 => Just(Action::Extend),
        1 => Just(Action::AcquireWithoutTicket),
    ];
    let step = (0u64..40, 0..WAITERS, action).prop_map(|(pass_ms, who, action)| Step {
        pass_ms,
        who,
        action,
    });
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Every waiter here is alive, and no head waits as long as the grace. So after a release, the
    /// waiter that is granted is always the first in the queue.
    #[test]
    fn grants_follow_the_tickets(steps in steps()) {
        let mut node = TestNode::new();
        let mut places: [Option<Place>; WAITERS] = Default::default();
        let mut holder: Option<usize> = None;
        let mut idle_ms = 0;
        let mut number = 0;
        node.ask(ALICE, acquire(node.ballot(0)));
        node.refresh(&["x"], &[]);
        let mut alice_holds = true;
        for step in steps {
            let who = step.who as u8 + 1;
            node.pass_ms(step.pass_ms);
            idle_ms += step.pass_ms;
            let waiting: Vec<Place> = places.iter().flatten().cloned().collect();
            node.refresh(&["x"], &waiting.iter().collect::<Vec<_>>());
            // Before the grace has passed the head acquires, as a live one does. An undo does not
            // restart the grace.
            if holder.is_none() && !alice_holds && idle_ms > GRACE_MS / 2 {
                let head = (0..WAITERS).filter(|i| places[*i].is_some()).min_by_key(|i| {
                    places[*i].clone()
                });
                if let Some(head) = head {
                    let place = places[head].clone().unwrap();
                    prop_assert_eq!(node.acquire_queued(head as u8 + 1, &place), Answer::Granted);
                    holder = Some(head);
                }
            }
            match step.action {
                Action::Acquire if holder != Some(step.who) => {
                    number += 1;
                    let new = node.place(&format!("{who}.{number}"));
                    let place = places[step.who].get_or_insert(new).clone();
                    let answer = node.acquire_queued(who, &place);
                    let place = reentered(&place);
                    let first = places.iter().flatten().map(|p| (p.since_us, &p.id)).min();
                    let is_first = first == Some((place.since_us, &place.id));
                    if answer == Answer::Granted {
                        prop_assert!(is_first && holder.is_none() && !alice_holds);
                        holder = Some(step.who);
                    } else {
                        prop_assert!(!is_first || holder.is_some() || alice_holds, "{answer:?}");
                    }
                    places[step.who] = Some(place);
                }
                Action::Release if alice_holds => {
                    node.release_final(&["x"], ALICE, None);
                    alice_holds = false;
                    idle_ms = 0;
                }
                Action::Release if holder == Some(step.who) => {
                    let place = places[step.who].take();
                    let answer = node.release_final(&["x"], who, place.as_ref());
                    prop_assert_eq!(answer, Answer::Released);
                    holder = None;
                    idle_ms = 0;
                }
                Action::Release => {
                    if let Some(place) = places[step.who].take() {
                        node.cancel(&["x"], who, &place);
                    }
                }
                // The grace counts from the last release, and an undo does not stop it. After an
                // undo later than this, another waiter could rightly pass.
                Action::Undo if idle_ms > GRACE_MS / 2 => {}
                Action::Undo => {
                    if let Some(place) = places[step.who].clone() {
                        node.undo_attempt(&["x"], who, &place);
                        holder = holder.filter(|holder| *holder != step.who);
                        prop_assert!(node.wakes.iter().all(|wake| *wake.ticket != *place.id));
                    }
                }
                Action::Extend => {
                    let free_since =
                        |node: &TestNode| node.entry("x").record.map(|r| r.free_since_ms);
                    let before = free_since(&node);
                    node.ask(who, extend(node.ballot(0), TTL_MS));
                    prop_assert_eq!(free_since(&node), before);
                }
                Action::AcquireWithoutTicket => {
                    let none_waits = places.iter().all(Option::is_none);
                    let free = holder.is_none() && !alice_holds && none_waits;
                    let ballot = node.next_ballot(&["x"]);
                    let answer = node.ask(DAVE, acquire(ballot));
                    prop_assert_eq!(answer == Answer::Granted, free);
                    node.ask(DAVE, undo(ballot));
                }
                Action::Acquire => {}
            }
        }
    }
}
