//! The lock delay binds receipts: a node that has only the delay left of a lease counts the hold as
//! over, and the late extend or release of its receipt changes nothing.

use super::*;
use crate::message::{AcquireSlot, ReleaseSlot, Slots};

const DELAY_MS: u64 = 5_000;

fn extend_receipt(ballot: Ballot) -> Op {
    Op::Extend(Extend {
        ballot,
        ttl_ms: TTL_MS + DELAY_MS,
        delay_ms: DELAY_MS,
    })
}

/// As a receipt is released: something of its hold may still be under way.
fn release_receipt(ballot: Ballot, keep_ms: Option<u64>) -> Release {
    Release {
        ballot,
        kind: ReleaseKind::Final,
        fate_unknown: true,
        ticket: None,
        stays: false,
        keep_ms,
        delay_ms: DELAY_MS,
    }
}

/// Alice holds `x` for the TTL and the delay; `before_ms` is left until only the delay remains.
fn held(before_ms: u64) -> (TestNode, Ballot) {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire_for(ballot, TTL_MS + DELAY_MS));
    node.pass_ms(TTL_MS - before_ms);
    (node, ballot)
}

#[test]
fn a_receipt_is_extended_and_released_before_its_delay_begins() {
    let (mut node, ballot) = held(1);
    assert_eq!(node.ask(ALICE, extend_receipt(ballot)), Answer::Extended);
    let left = node.holder("x").unwrap().for_ms;
    assert_eq!(left, Some(TTL_MS + DELAY_MS));
    let (mut node, ballot) = held(1);
    let release = Op::Release(release_receipt(ballot, None));
    assert_eq!(node.ask(ALICE, release), Answer::Released);
    assert_eq!(node.entry("x").key, None);
}

#[test]
fn a_late_extend_or_release_of_a_receipt_is_gone_and_changes_nothing() {
    for later_ms in [0, 1, DELAY_MS] {
        for op in [
            extend_receipt,
            |ballot| Op::Release(release_receipt(ballot, None)),
            |ballot| Op::Release(release_receipt(ballot, Some(60_000))),
        ] {
            let (mut node, ballot) = held(0);
            node.pass_ms(later_ms);
            let before = node.entry("x");
            assert!(before.key.is_some());
            assert_eq!(node.ask(ALICE, op(ballot)), Answer::Gone);
            assert_eq!(node.entry("x"), before);
        }
    }
}

/// A guard knows its deadline, and carries no delay.
#[test]
fn an_extend_without_a_delay_counts_until_the_lease_ends() {
    let (mut node, ballot) = held(0);
    node.pass_ms(DELAY_MS);
    assert_eq!(node.ask(ALICE, extend(ballot, TTL_MS)), Answer::Extended);
}

#[test]
fn each_reader_has_its_own_delay() {
    let mut node = TestNode::new();
    let share = |node: &mut TestNode, who, op| {
        let claims = [Claim {
            name: key("x"),
            mode: Mode::Shared,
        }];
        let request = Request {
            claims: claims.into(),
            token: token(who),
            op,
        };
        let mut entries = [node.entry("x")];
        let outcome = apply(&node.rules, node.now(), &mut entries, &request);
        let [entry] = entries;
        node.entries.insert(key("x"), entry);
        outcome.answer
    };
    let ballot = node.ballot(0);
    share(&mut node, ALICE, acquire_for(ballot, TTL_MS + DELAY_MS));
    node.pass_ms(1);
    share(&mut node, BOB, acquire_for(ballot, TTL_MS + DELAY_MS));
    node.pass_ms(TTL_MS - 1);
    let before = node.entry("x");
    for op in [
        extend_receipt(ballot),
        Op::Release(release_receipt(ballot, None)),
    ] {
        assert_eq!(share(&mut node, ALICE, op), Answer::Gone);
        assert_eq!(node.entry("x"), before);
    }
    let extended = share(&mut node, BOB, extend_receipt(ballot));
    assert_eq!(extended, Answer::Extended);
}

#[test]
fn several_names_are_over_together() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask_for(&["x"], ALICE, acquire_for(ballot, TTL_MS + DELAY_MS));
    node.pass_ms(1);
    node.ask_for(
        &["y"],
        ALICE,
        acquire_for(node.ballot(0), TTL_MS + DELAY_MS),
    );
    node.pass_ms(TTL_MS - 1);
    let ballot = node.ballot(0);
    let before = (node.entry("x"), node.entry("y"));
    for op in [
        extend_receipt(ballot),
        Op::Release(release_receipt(ballot, None)),
    ] {
        let (answer, _) = node.ask_for(&["x", "y"], ALICE, op);
        assert_eq!(answer, Answer::Gone);
        assert_eq!((node.entry("x"), node.entry("y")), before);
    }
}

#[test]
fn a_late_release_of_a_permit_changes_nothing() {
    let mut node = TestNode::new();
    let parts = ["gate", "slot0"];
    let ballot = node.ballot(0);
    let acquire = Op::AcquireSlot(AcquireSlot {
        slot: Some(0),
        acquire: Acquire {
            ballot,
            ttl_ms: TTL_MS + DELAY_MS,
            label: Arc::from("job"),
            ticket: None,
            not_after_us: None,
        },
    });
    node.ask_for(&parts, ALICE, acquire);
    let release = || {
        Op::ReleaseSlot(ReleaseSlot {
            slots: Slots::Only(0),
            release: release_receipt(ballot, None),
        })
    };
    node.pass_ms(TTL_MS);
    let before = node.entry("slot0");
    assert_eq!(node.ask_for(&parts, ALICE, release()).0, Answer::Gone);
    assert_eq!(node.entry("slot0"), before);
    node.clock_us -= 1_000;
    assert_eq!(node.ask_for(&parts, ALICE, release()).0, Answer::Released);
}
