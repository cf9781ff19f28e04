//! Grants follow the tickets, whatever happens among those who keep them fresh.

use proptest::prelude::*;

use super::*;

/// What one of them does next.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Come,
    /// Gives back what it holds; or withdraws.
    Go,
    StepBack,
    Extend,
    /// Comes without its place.
    Jump,
}

#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    who: usize,
    deed: Deed,
}

const CROWD: usize = 5;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let deed = prop_oneof![
        6 => Just(Deed::Come),
        3 => Just(Deed::Go),
        1 => Just(Deed::StepBack),
        1 => Just(Deed::Extend),
        1 => Just(Deed::Jump),
    ];
    let step =
        (0u64..40, 0..CROWD, deed).prop_map(|(pass_ms, who, deed)| Step { pass_ms, who, deed });
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Nobody here is dead and no head keeps the others waiting for as long as the grace: so once a
    /// holder has come and gone, whoever is granted is the first of those who wait.
    #[test]
    fn grants_follow_the_tickets(steps in steps()) {
        let mut desk = Desk::new();
        let mut places: [Option<Place>; CROWD] = Default::default();
        let mut holder: Option<usize> = None;
        let mut idle_ms = 0;
        let mut number = 0;
        desk.ask(ALICE, acquire(desk.ballot(0)));
        desk.refresh(&["x"], &[]);
        let mut alice_holds = true;
        for step in steps {
            let who = step.who as u8 + 1;
            desk.pass_ms(step.pass_ms);
            idle_ms += step.pass_ms;
            let waiting: Vec<Place> = places.iter().flatten().cloned().collect();
            desk.refresh(&["x"], &waiting.iter().collect::<Vec<_>>());
            // Before anybody's grace is over, the head comes, as a living one does.
            // One that steps back has not restarted it.
            if holder.is_none() && !alice_holds && idle_ms > GRACE_MS / 2 {
                let head = (0..CROWD).filter(|i| places[*i].is_some()).min_by_key(|i| {
                    places[*i].clone()
                });
                if let Some(head) = head {
                    let place = places[head].clone().unwrap();
                    prop_assert_eq!(desk.come(head as u8 + 1, &place), Answer::Granted);
                    holder = Some(head);
                }
            }
            match step.deed {
                Deed::Come if holder != Some(step.who) => {
                    number += 1;
                    let new = desk.place(&format!("{who}.{number}"));
                    let place = places[step.who].get_or_insert(new).clone();
                    let answer = desk.come(who, &place);
                    let place = again(&place);
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
                Deed::Go if alice_holds => {
                    desk.go(&["x"], ALICE, None);
                    alice_holds = false;
                    idle_ms = 0;
                }
                Deed::Go if holder == Some(step.who) => {
                    let place = places[step.who].take();
                    prop_assert_eq!(desk.go(&["x"], who, place.as_ref()), Answer::Released);
                    holder = None;
                    idle_ms = 0;
                }
                Deed::Go => {
                    if let Some(place) = places[step.who].take() {
                        desk.cancel(&["x"], who, &place);
                    }
                }
                // The grace runs from the last release: who steps back does not stop it, so whoever
                // did later than this could rightly be passed.
                Deed::StepBack if idle_ms > GRACE_MS / 2 => {}
                Deed::StepBack => {
                    if let Some(place) = places[step.who].clone() {
                        desk.step_back(&["x"], who, &place);
                        holder = holder.filter(|holder| *holder != step.who);
                        prop_assert!(desk.wakes.iter().all(|wake| *wake.ticket != *place.id));
                    }
                }
                Deed::Extend => {
                    let free_since = |desk: &Desk| desk.entry("x").record.map(|r| r.free_since_ms);
                    let before = free_since(&desk);
                    desk.ask(who, extend(desk.ballot(0), TTL_MS));
                    prop_assert_eq!(free_since(&desk), before);
                }
                Deed::Jump => {
                    let free = holder.is_none() && !alice_holds && places.iter().all(Option::is_none);
                    let ballot = desk.next_ballot(&["x"]);
                    let answer = desk.ask(DAVE, acquire(ballot));
                    prop_assert_eq!(answer == Answer::Granted, free);
                    desk.ask(DAVE, undo(ballot));
                }
                Deed::Come => {}
            }
        }
    }
}
