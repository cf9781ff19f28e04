//! One liar among three nodes changes nothing that an inspection shows. Nodes that do not vote make
//! unknown what they could change.

use crate::message::{Ballot, TicketView};
use crate::node::{CallError, Trouble, TroubleKind};
use crate::protocol::Vote;

use super::*;

/// The clock of every node, in microseconds.
const CLOCK_US: u64 = 9_000_000;

fn held(label: &str, ballot: u64) -> View {
    View {
        holder: Some(NodeHolder {
            id: Some("0123456789".into()),
            label: Some(label.into()),
            for_ms: Some(1_000),
            ..NodeHolder::default()
        }),
        ballot: Some(Ballot::new(ballot)),
        ..View::default()
    }
}

fn shared(readers: &[(&str, &str)]) -> View {
    let readers = readers.iter().map(|(id, label)| ReaderView {
        id: (*id).to_owned(),
        label: (*label).to_owned(),
        for_ms: 2_000,
        ballot: Ballot::new(4_000_000),
    });
    let readers: Vec<ReaderView> = readers.collect();
    View {
        holder: Some(NodeHolder {
            label: Some(readers[0].label.clone()),
            for_ms: Some(2_000),
            ..NodeHolder::default()
        }),
        ballot: Some(Ballot::new(4_000_000)),
        shared_by: readers.len() as u64,
        readers,
        ..View::default()
    }
}

fn seen(views: Vec<View>) -> Inspection {
    of_nodes(views.into_iter().map(answers).collect())
}

fn of_nodes(nodes: Vec<NodeInspection>) -> Inspection {
    view("x".into(), nodes)
}

fn answers(view: View) -> NodeInspection {
    NodeInspection {
        node: "n".into(),
        tier: None,
        view: Ok(view),
        discount: None,
        clock_us: Some(CLOCK_US),
    }
}

/// A node that answers, and whose vote does not count.
fn quarantined(view: View) -> NodeInspection {
    let left = Duration::from_secs(20);
    NodeInspection {
        discount: Some(Vote::Quarantined { left }),
        ..answers(view)
    }
}

fn down() -> NodeInspection {
    let trouble = Trouble::new(TroubleKind::Timeout, "no answer");
    NodeInspection {
        view: Err(CallError::Unknown(trouble)),
        clock_us: None,
        ..answers(View::default())
    }
}

#[test]
fn fence_and_label_are_those_that_a_majority_names() {
    for liar in 0..3 {
        let mut views = vec![held("me", 7_000_000); 3];
        views[liar] = held("made up", 9_000_000);
        let seen = seen(views);
        let who = (seen.label.as_deref(), seen.fence);
        assert_eq!(who, (Some("me"), Some(7_000_000)));
        assert_eq!(seen.holder_id.as_deref(), Some("0123456789"));
        assert_eq!(seen.kind, Some(HolderKind::Exclusive));
        assert_eq!(seen.holders[0].held_for, Some(Duration::from_secs(2)));
    }
}

#[test]
fn where_no_majority_agrees_nothing_is_made_up() {
    let seen = seen(vec![held("a", 7), held("b", 8), View::default()]);
    assert!(seen.is_held());
    assert_eq!((seen.label, seen.fence), (None, None));
}

#[test]
fn of_several_readers_one_is_named() {
    let mut views = vec![held("a", 7), held("b", 7)];
    for view in &mut views {
        view.holder.as_mut().unwrap().id = None;
    }
    let seen = seen(views);
    assert_eq!((seen.label.as_deref(), seen.fence), (Some("a"), Some(7)));
}

#[test]
fn all_readers_that_a_majority_names_are_shown() {
    let both = [("0123456789", "a"), ("9876543210", "b")];
    let seen = seen(vec![shared(&both), shared(&both), shared(&both[..1])]);
    assert_eq!(seen.kind, Some(HolderKind::Shared));
    let labels: Vec<_> = seen
        .holders
        .iter()
        .map(|one| one.label.as_deref())
        .collect();
    assert_eq!(labels, [Some("a"), Some("b")]);
    assert_eq!(seen.holder_count, 2);
    assert_eq!(seen.holders[1].held_for, Some(Duration::from_secs(5)));
}

#[test]
fn a_reader_on_a_minority_is_not_shown() {
    let (one, other) = ([("0123456789", "a")], [("9876543210", "b")]);
    let seen = seen(vec![shared(&one), shared(&one), shared(&other)]);
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holder_count, 1);
}

#[test]
fn a_holder_without_a_record_is_plain() {
    let mut view = held("", 1);
    (view.ballot, view.holder.as_mut().unwrap().label) = (None, None);
    let seen = seen(vec![view.clone(), view.clone(), view]);
    assert_eq!(seen.kind, Some(HolderKind::Plain));
    assert_eq!(seen.holders[0].held_for, None);
}

#[test]
fn the_queue_is_what_a_majority_has_in_its_order() {
    let ticket = |since_us, id: &str| TicketView {
        since_us,
        id: id.to_owned(),
        shared: false,
        label: format!("label of {id}"),
    };
    let queued = |tickets: Vec<TicketView>| View {
        waiting: tickets.len() as u64,
        tickets,
        ..View::default()
    };
    let both = || queued(vec![ticket(3_000_000, "a.1"), ticket(8_000_000, "b.1")]);
    let seen = seen(vec![both(), queued(vec![ticket(1, "made up")]), both()]);
    let waiting: Vec<_> = seen
        .queue
        .iter()
        .map(|one| (&*one.id, &*one.label, one.waited))
        .collect();
    let (six, one) = (Duration::from_secs(6), Duration::from_secs(1));
    let expected = [("a.1", "label of a.1", six), ("b.1", "label of b.1", one)];
    assert_eq!(waiting, expected);
    assert_eq!(seen.waiting, 2);
}

#[test]
fn a_semaphore_has_as_many_permits_as_a_majority_recorded_or_as_are_held() {
    let recorded = |permits| View {
        permits,
        ..View::default()
    };
    let slots = || vec![seen(vec![held("me", 7); 3]), seen(vec![View::default(); 3])];
    let admission = |permits| {
        seen(vec![
            recorded(permits),
            recorded(permits),
            recorded(Some(200)),
        ])
    };
    let semaphore = |permits, slots| semaphore("x".into(), &admission(permits), slots);
    let known = semaphore(Some(2), slots()).unwrap();
    assert_eq!((known.permits, known.taken(), known.slots.len()), (2, 1, 2));
    // Nodes forget the number after a while, even if permits are held.
    let forgotten = semaphore(None, slots()).unwrap();
    assert_eq!((forgotten.permits, forgotten.taken()), (1, 1));
    assert!(semaphore(None, vec![seen(vec![View::default(); 3])]).is_none());
}

#[test]
fn a_latch_shows_the_parties_that_a_majority_has() {
    let arrived = |parties: &[&str]| View {
        arrivals: Some(Arrivals {
            since_us: Some(CLOCK_US - 3_000_000),
            arrived: parties.len() as u64,
            parties: parties.iter().map(|party| (*party).into()).collect(),
        }),
        ..View::default()
    };
    let views = vec![
        arrived(&["a", "b"]),
        arrived(&["b"]),
        arrived(&["a", "b", "c"]),
    ];
    let latch = latch(&seen(views)).unwrap();
    assert_eq!(
        (latch.arrived, &latch.parties[..]),
        (2, &["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!(latch.age, Some(Duration::from_secs(3)));
}

/// Of 1 to 5 nodes, with every number of those that have the holder, have none, and do not vote:
/// the state is what it is however the nodes that do not vote would vote.
#[test]
fn the_state_is_known_only_if_no_silent_node_could_change_it() {
    for nodes in 1..=5 {
        for (having, free) in (0..=nodes).flat_map(|n| (0..=nodes - n).map(move |m| (n, m))) {
            let silent = nodes - having - free;
            let quorum = nodes / 2 + 1;
            let could_be_held = (0..=silent).map(|more| having + more >= quorum);
            let could_be_held: Vec<bool> = could_be_held.collect();
            let expected = match (could_be_held.contains(&true), having >= quorum) {
                (_, true) => LockState::Held,
                (false, false) => LockState::Free,
                (true, false) => LockState::Unknown,
            };
            for mute in [
                down as fn() -> _,
                || quarantined(held("me", 7)),
                || quarantined(View::default()),
            ] {
                let mut views = vec![answers(held("me", 7)); having];
                views.extend(vec![answers(View::default()); free]);
                views.extend((0..silent).map(|_| mute()));
                let seen = of_nodes(views);
                let case = format!("{having} have it, {free} not, {silent} silent: {seen:?}");
                assert_eq!(seen.state, expected, "{case}");
                let is_known = seen.state == LockState::Held;
                assert_eq!(seen.label.is_some(), is_known, "{case}");
                assert_eq!(seen.holders.len(), usize::from(is_known), "{case}");
                assert_eq!(seen.has_quorum(), having + free >= quorum, "{case}");
                let reported = seen.reported.first().map_or(0, |one| one.nodes);
                assert_eq!(reported, having, "{case}");
                let is_split = expected == LockState::Free && having > 0;
                assert_eq!(seen.is_split(), is_split, "{case}");
            }
        }
    }
}

#[test]
fn without_a_majority_each_holder_is_reported_with_its_nodes() {
    let mut other = held("you", 8);
    other.holder.as_mut().unwrap().id = Some("9876543210".into());
    let (one, two) = (answers(other), answers(held("me", 7)));
    let seen = of_nodes(vec![one, two.clone(), two, down(), down()]);
    assert_eq!(seen.state, LockState::Unknown);
    let said = seen.reported.iter();
    let said = said.map(|one| (one.holder.label.as_deref(), one.nodes));
    assert_eq!(
        said.collect::<Vec<_>>(),
        [(Some("me"), 2), (Some("you"), 1)]
    );
    assert!(seen.label.is_none() && !seen.is_split());
}

/// Each node has a reader, but no reader is on two nodes.
#[test]
fn different_readers_on_each_node_are_no_holder() {
    let (one, other) = ([("0123456789", "a")], [("9876543210", "b")]);
    let found = seen(vec![shared(&one), shared(&other), View::default()]);
    assert_eq!(found.state, LockState::Free);
    let found = of_nodes(vec![answers(shared(&one)), answers(shared(&other)), down()]);
    assert_eq!((found.state, found.reported.len()), (LockState::Unknown, 2));
}

#[test]
fn without_a_majority_a_semaphore_and_a_latch_are_what_single_nodes_have() {
    let recorded = View {
        permits: Some(2),
        arrivals: Some(Arrivals {
            since_us: None,
            arrived: 1,
            parties: vec!["a".into()],
        }),
        ..View::default()
    };
    let key = of_nodes(vec![answers(recorded), down(), down()]);
    let slot = |view| of_nodes(vec![answers(view), down(), down()]);
    let slots = vec![slot(held("me", 7)), slot(View::default())];
    let found = semaphore("x".into(), &key, slots).expect("a permit may be held");
    assert_eq!((found.permits, found.taken(), found.unknown()), (2, 0, 2));
    assert_eq!(found.state(), LockState::Unknown);
    let found = latch(&key).expect("a party has arrived");
    assert_eq!((found.arrived, found.quorum), (1, false));
}
