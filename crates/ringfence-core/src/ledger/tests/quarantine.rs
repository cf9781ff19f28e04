//! The only node of a group after a failover: it grants nothing for a whole quarantine, and holders
//! put their locks back. And an acquire that arrives too late.

use std::time::Duration;

use super::*;
use crate::group::{Failover, Group};
use crate::message::AcquireSlot;

/// A node that grants from now plus `left_ms` on.
fn quarantined(left_ms: u64) -> TestNode {
    let mut node = TestNode::new();
    node.rules.grants_from_us = node.clock_us + left_ms * 1000;
    node
}

#[test]
fn the_only_node_grants_nothing_in_its_quarantine() {
    let mut node = quarantined(2_000);
    let ballot = node.ballot(1);
    let refused = |left_ms| Answer::Quarantined { left_ms };
    assert_eq!(node.ask(ALICE, acquire(ballot)), refused(2_000));
    assert_eq!(node.entry("x"), Entry::default(), "nothing was written");
    node.pass_ms(1_999);
    assert_eq!(node.ask(ALICE, acquire(node.ballot(1))), refused(1));
    node.pass_ms(1);
    assert_eq!(node.ask(ALICE, acquire(node.ballot(1))), Answer::Granted);
}

#[test]
fn a_waiter_enters_the_queue_in_the_quarantine() {
    let mut node = quarantined(2_000);
    let ticket = node.ticket("t.1");
    let answer = node.acquire_queued(ALICE, &ticket);
    assert_eq!(answer, Answer::Quarantined { left_ms: 2_000 });
    assert_eq!(node.queue_ids("x"), ["t.1"]);
}

#[test]
fn no_slot_is_granted_in_the_quarantine() {
    let mut node = quarantined(2_000);
    let op = |ballot| {
        let Op::Acquire(acquire) = acquire(ballot) else {
            panic!("not an acquire");
        };
        Op::AcquireSlot(AcquireSlot {
            slot: None,
            acquire,
        })
    };
    let names = ["gate", "slot"];
    let ballot = node.ballot(1);
    let Answer::Permit(permit) = node.ask_for(&names, ALICE, op(ballot)).0 else {
        panic!("no permit");
    };
    assert_eq!(*permit.answer, Answer::Quarantined { left_ms: 2_000 });
    assert_eq!(permit.slot, None);
    assert_eq!(node.entry("slot").key, None);
}

#[test]
fn a_holder_extends_and_restores_its_lock_in_the_quarantine() {
    let mut node = quarantined(20_000);
    let ballot = node.ballot(1);
    assert_eq!(node.ask(ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Restored);
    assert_eq!(node.ask(ALICE, extend(ballot, TTL_MS)), Answer::Extended);
}

/// A promoted replica may lack the release of an older holder.
#[test]
fn a_restore_replaces_a_holder_with_a_lower_ballot_in_the_quarantine() {
    for (hers, his, replaced) in [(5, 4, true), (4, 5, false)] {
        let mut node = TestNode::new();
        let his = node.ballot(his);
        assert_eq!(node.ask(BOB, acquire(his)), Answer::Granted);
        node.rules.grants_from_us = node.clock_us + 1;
        let hers = node.ballot(hers);
        let answer = node.ask(ALICE, restore(hers));
        match replaced {
            true => {
                assert_eq!(answer, Answer::Restored);
                let holder = node.holder("x").and_then(|holder| holder.id);
                assert_eq!(holder.as_deref(), Some(token(ALICE).id()));
            }
            false => assert!(is_held_by(&answer, BOB), "{answer:?}"),
        }
    }
}

#[test]
fn a_restore_replaces_no_holder_outside_of_a_quarantine() {
    let mut node = TestNode::new();
    let (his, hers) = (node.ballot(4), node.ballot(5));
    assert_eq!(node.ask(BOB, acquire(his)), Answer::Granted);
    assert!(is_held_by(&node.ask(ALICE, restore(hers)), BOB));
}

#[test]
fn a_restore_never_replaces_a_value_without_a_ballot() {
    let mut node = quarantined(2_000);
    node.set_foreign("x", "another library", None);
    let ballot = node.ballot(5);
    assert!(matches!(node.ask(ALICE, restore(ballot)), Answer::Held(_)));
    assert_eq!(node.entry("x").key.unwrap().value, "another library");
}

/// Of several names none is changed, unless all can be restored.
#[test]
fn a_restore_of_several_names_replaces_all_or_none() {
    let mut node = TestNode::new();
    let (low, hers, high) = (node.ballot(1), node.ballot(2), node.ballot(3));
    node.ask_for(&["a"], BOB, acquire(low));
    node.ask_for(&["b"], CAROL, acquire(high));
    node.rules.grants_from_us = node.clock_us + 1_000_000;
    let answer = node.ask_for(&["a", "b"], ALICE, restore(hers)).0;
    assert!(is_held_by(&answer, CAROL), "{answer:?}");
    assert!(node.entry("a").is_held_by(token(BOB).expose()));
    node.delete_key("b");
    let answer = node.ask_for(&["a", "b"], ALICE, restore(hers)).0;
    assert_eq!(answer, Answer::Restored);
    for name in ["a", "b"] {
        assert!(node.entry(name).is_held_by(token(ALICE).expose()));
    }
}

#[test]
fn an_acquire_that_arrives_too_late_is_not_executed() {
    let mut node = TestNode::new();
    let ticket = node.ticket("t.1");
    let mut op = acquire_with_ticket(node.ballot(1), &ticket);
    let Op::Acquire(acquire) = &mut op else {
        panic!("not an acquire");
    };
    acquire.not_after_us = Some(node.clock_us);
    node.clock_us += 1;
    assert_eq!(node.ask(ALICE, op.clone()), Answer::Late);
    assert_eq!(node.entry("x"), Entry::default(), "nothing was written");
    node.clock_us -= 1;
    assert_eq!(node.ask(ALICE, op), Answer::Granted);
}

#[test]
fn only_a_single_node_with_a_failover_behind_it_refuses_by_itself() {
    let group = |nodes, failover| Group {
        failover,
        quarantine: Duration::from_secs(20),
        ..Group::new(nodes)
    };
    let from = |group: &Group, born_us, replicated| {
        Rules::of_incarnation(group, born_us, replicated).grants_from_us
    };
    let (auto, three) = (group(1, Failover::Auto), group(3, Failover::Auto));
    assert_eq!(from(&auto, 7, true), 20_000_007);
    assert_eq!(from(&auto, 7, false), 0, "not replicated");
    assert_eq!(from(&auto, 0, true), 0, "initialised");
    assert_eq!(from(&three, 7, true), 0, "the clients know");
    assert_eq!(from(&group(1, Failover::Quarantine), 7, false), 20_000_007);
    for failover in [Failover::Lossless, Failover::Ignore] {
        assert_eq!(from(&group(1, failover), 7, true), 0);
    }
}
