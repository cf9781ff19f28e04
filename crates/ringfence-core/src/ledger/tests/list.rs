//! The list: which names count as held or queued for.

use super::*;
use crate::message::{BREAKS_SHOWN, List, Portion};

const NAMES: [&str; 3] = ["x", "y", "z"];

impl TestNode {
    fn list(&mut self, breaks: bool) -> Portion {
        let list = List {
            cursor: Arc::from(""),
            pages: 1,
            breaks,
        };
        match self.ask_for(&NAMES, ALICE, Op::List(list)).0 {
            Answer::Listed(portion) => portion,
            other => panic!("list answered {other:?}"),
        }
    }

    fn listed(&mut self) -> Vec<String> {
        let names = self.list(false).names.into_iter();
        names.map(|name| name.as_str().to_owned()).collect()
    }
}

#[test]
fn a_name_is_listed_while_it_is_held_or_queued_for() {
    let mut node = TestNode::new();
    assert!(node.listed().is_empty());
    let ticket = node.ticket("bob.1");
    assert_eq!(
        node.acquire_queued_for(&["y"], ALICE, &node.ticket("alice.1")),
        Answer::Granted
    );
    assert_eq!(node.listed(), ["y"]);
    node.acquire_queued_for(&["y"], BOB, &ticket);
    node.release_final(&["y"], ALICE, None);
    // Free, but a client waits.
    assert_eq!(node.listed(), ["y"]);
    node.cancel(&["y"], BOB, &ticket);
    // The record remains; it is no holder.
    assert!(node.entry("y").record.is_some());
    assert!(node.listed().is_empty());
}

#[test]
fn an_expired_holder_is_not_listed() {
    let mut node = TestNode::new();
    node.acquire_queued(ALICE, &node.ticket("alice.1"));
    assert_eq!(node.listed(), ["x"]);
    node.pass_ms(TTL_MS + 1);
    assert!(node.listed().is_empty());
}

/// As on a server, where no key of ours leads to such a lock.
#[test]
fn a_holder_without_a_record_is_not_listed() {
    let mut node = TestNode::new();
    node.set_foreign("x", "another library", None);
    assert!(node.listed().is_empty());
}

#[test]
fn the_latest_broken_holds_are_listed() {
    let mut node = TestNode::new();
    for _ in 0..BREAKS_SHOWN + 1 {
        let ballot = node.next_ballot(&["x"]);
        node.ask(ALICE, acquire(ballot));
        node.pass_ms(10);
        assert_eq!(node.break_x(ballot), Answer::Removed { holders: 1 });
    }
    let portion = node.list(true);
    assert_eq!(
        (portion.names.len(), portion.breaks.len()),
        (0, BREAKS_SHOWN)
    );
    let notes = node.entry("x").broken.unwrap().notes;
    assert_eq!(portion.breaks[0].1, notes[1]);
    assert!(portion.breaks.iter().all(|(name, _)| name.as_str() == "x"));
    assert!(node.listed().is_empty());
}
