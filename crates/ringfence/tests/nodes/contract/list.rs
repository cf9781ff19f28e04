//! The list of the names that are held or queued for.

use std::collections::BTreeSet;

use ringfence::node::Node;
use ringfence_core::message::{Answer, List, Op, PlainAcquire};

use crate::nodes::stages::Stage;
use crate::nodes::support::*;

/// All names that the node lists, and in how many portions.
fn listed(node: &dyn Node) -> (BTreeSet<String>, usize) {
    let (mut names, mut cursor) = (BTreeSet::new(), "".into());
    for portions in 1.. {
        let list = List {
            cursor,
            pages: 1,
            breaks: false,
        };
        let answer = reply(node, &[], ALICE, Op::List(list)).answer;
        let Answer::Listed(portion) = answer else {
            panic!("no portion but {answer:?}");
        };
        let found = portion.names.iter();
        names.extend(found.map(|name| name.as_str().to_owned()));
        match portion.next {
            Some(next) => cursor = next,
            None => return (names, portions),
        }
    }
    unreachable!("every list ends")
}

fn names_of(node: &dyn Node) -> Vec<String> {
    listed(node).0.into_iter().collect()
}

pub(crate) fn a_list_shows_what_is_held_or_queued_for(stage: &Stage) {
    let node = stage.node();
    assert!(names_of(node).is_empty());
    for name in ["a", "d}", "{b}c", "queue:x"] {
        let ballot = next_ballot(node, name);
        let granted = ask(node, name, ALICE, acquire(ballot, TTL_MS));
        assert_eq!(granted, Answer::Granted);
    }
    assert_eq!(names_of(node), ["a", "d}", "queue:x", "{b}c"]);
    // No key leads to a plain lock.
    let plain = Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS });
    assert_eq!(ask(node, "plain", ALICE, plain), Answer::Granted);
    // A record without a holder is no lock, unless a client waits.
    let ticket = ticket(stamp(node, "a").clock_us, "client.1");
    let wait = acquire_with_ticket(next_ballot(node, "a"), TTL_MS, &ticket);
    held(ask(node, "a", BOB, wait));
    for name in ["a", "d}"] {
        let ballot = stamp(node, name).floor;
        assert_eq!(ask(node, name, ALICE, release(ballot)), Answer::Released);
    }
    assert_eq!(names_of(node), ["a", "queue:x", "{b}c"]);
}

pub(crate) fn a_list_goes_through_all_names_in_portions(stage: &Stage) {
    let node = stage.node();
    let names: BTreeSet<String> = (0..450).map(|number| format!("n{number:03}")).collect();
    for name in &names {
        let ballot = next_ballot(node, name);
        ask(node, name, ALICE, acquire(ballot, 60_000));
    }
    let (found, portions) = listed(node);
    assert_eq!(found, names);
    assert!(portions > 1);
}
