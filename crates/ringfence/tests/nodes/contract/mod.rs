//! What every kind of node does. One suite; each kind of node only provides a fresh one and a way
//! to let time pass for it.
//!
//! The tests learn the node's time from its replies only, so that a real server can be tested, too.

mod holder;
mod list;
mod queue;
mod readers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::node::{CallError, Hear, InitMode, Node};
use ringfence_core::group::Group;
use ringfence_core::message::{
    Answer, Ballot, Op, PlainAcquire, PlainExtend, ReleaseKind, Reply, Ticket, Turn, View, Wake,
};
use ringfence_testkit::wait_until;

use crate::nodes::stages::Stage;
use crate::nodes::support::*;

use holder::*;
use list::*;
use queue::*;
use readers::*;

/// Every test of the contract, for nodes made by `$stage: fn() -> Stage`.
macro_rules! contract {
    ($module:ident, $stage:path) => {
        contract! { $module, $stage:
            an_acquire_is_granted_to_one_client_and_held_for_others
            a_lease_ends_by_itself
            an_extend_prolongs_the_lease_of_a_holder_only
            an_extend_never_shortens_a_lease
            a_release_frees_the_name_at_once
            a_late_undo_does_not_delete_a_later_attempt
            an_undo_of_unknown_fate_closes_the_ballot
            an_undo_of_known_fate_changes_nothing
            a_lost_lock_can_be_restored_but_a_released_lock_cannot
            a_ballot_must_be_above_the_floor_and_below_the_ceiling
            fences_outlive_their_holders
            an_extend_raises_the_ballot_of_its_holder
            an_old_record_does_not_hold_the_floor_down
            a_writer_needs_a_ballot_above_the_readers
            ballots_of_readers_are_ordered_per_reader_only
            a_share_is_never_shortened
            a_plain_extend_never_shortens_a_lease
            a_ballot_above_the_ceiling_is_never_stored
            an_undo_does_not_change_since_when_the_name_is_free
            an_undo_does_not_wake_its_own_sender
            several_claims_are_granted_all_or_none
            a_plain_lock_excludes_and_writes_no_fence
            an_inspect_shows_the_holder_but_never_the_secret
            a_list_shows_what_is_held_or_queued_for
            a_list_goes_through_all_names_in_portions
            names_are_compared_byte_by_byte
            calls_for_one_token_are_executed_in_order
            a_burst_of_calls_grants_exactly_one
            a_node_reports_its_group_and_refuses_another
            waiters_are_granted_in_the_order_of_their_tickets
            a_caller_without_a_ticket_is_behind_the_queue
            a_new_ticket_with_an_old_time_is_refused
            a_ticket_that_is_not_refreshed_expires
            an_undo_keeps_the_ticket_and_a_cancel_removes_it
            a_dead_head_of_the_queue_is_passed_after_the_grace_period
            the_head_of_the_queue_has_its_grace_period_after_a_plain_lock
            one_ticket_waits_for_several_names
            a_release_wakes_the_head_at_once_and_the_next_after_the_grace_period
            a_cancel_of_the_head_wakes_the_next
            a_woken_waiter_may_acquire_from_within_the_wake
            a_thousand_callers_may_wait_for_one_name
        }
    };
    ($module:ident, $stage:path: $($test:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    crate::nodes::contract::$test(&$stage());
                }
            )+
        }
    };
}

contract!(on_memory, crate::nodes::stages::memory);
#[cfg(feature = "sqlite")]
contract!(on_sqlite, crate::nodes::stages::sqlite);
#[cfg(feature = "redis")]
contract!(on_redis, crate::nodes::stages::redis);
#[cfg(feature = "redis")]
contract!(on_valkey, crate::nodes::stages::valkey);

fn an_acquire_is_granted_to_one_client_and_held_for_others(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    assert_eq!(
        ask(node, "x", ALICE, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
    assert_eq!(
        ask(node, "x", ALICE, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
    let holder = held(ask(node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
    assert_eq!(holder.label.as_deref(), Some("job"));
    assert_eq!(holder.id.as_deref(), Some(token(ALICE).id()));
    assert!(holder.for_ms.is_some_and(|ms| ms <= TTL_MS));
}

fn a_lease_ends_by_itself(stage: &Stage) {
    let node = stage.node();
    ask(node, "x", ALICE, acquire(next_ballot(node, "x"), 50));
    stage.pass_ms(52);
    let ballot = next_ballot(node, "x");
    assert_eq!(
        ask(node, "x", BOB, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
}

fn an_extend_prolongs_the_lease_of_a_holder_only(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    assert_eq!(ask(node, "x", ALICE, extend(ballot, TTL_MS)), Answer::Gone);
    ask(node, "x", ALICE, acquire(ballot, 1_000));
    assert_eq!(
        ask(node, "x", ALICE, extend(ballot, TTL_MS)),
        Answer::Extended
    );
    stage.pass_ms(1_002);
    held(ask(node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)));
    held(ask(node, "x", BOB, extend(ballot, TTL_MS)));
}

fn an_extend_never_shortens_a_lease(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    ask(node, "x", ALICE, acquire(ballot, TTL_MS));
    assert_eq!(ask(node, "x", ALICE, extend(ballot, 50)), Answer::Extended);
    assert_eq!(
        ask(node, "x", ALICE, acquire(plus(ballot, 1), 50)),
        Answer::Granted
    );
    stage.pass_ms(52);
    held(ask(node, "x", BOB, acquire(plus(ballot, 2), TTL_MS)));
}

fn a_release_frees_the_name_at_once(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    ask(node, "x", ALICE, acquire(ballot, TTL_MS));
    held(ask(node, "x", BOB, release(ballot)));
    assert_eq!(ask(node, "x", ALICE, release(ballot)), Answer::Released);
    assert_eq!(ask(node, "x", ALICE, release(ballot)), Answer::Gone);
    assert_eq!(ask(node, "x", BOB, acquire(ballot, TTL_MS)), Answer::Stale);
    assert_eq!(
        ask(node, "x", BOB, acquire(plus(ballot, 1), TTL_MS)),
        Answer::Granted
    );
}

fn a_late_undo_does_not_delete_a_later_attempt(stage: &Stage) {
    let node = stage.node();
    let first = next_ballot(node, "x");
    let second = plus(first, 1);
    ask(node, "x", ALICE, acquire(first, TTL_MS));
    ask(node, "x", ALICE, acquire(second, TTL_MS));
    assert_eq!(ask(node, "x", ALICE, undo(first, false)), Answer::Newer);
    assert_eq!(ask(node, "x", ALICE, acquire(first, TTL_MS)), Answer::Stale);
    assert_eq!(ask(node, "x", ALICE, undo(second, false)), Answer::Released);
}

fn an_undo_of_unknown_fate_closes_the_ballot(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    assert_eq!(ask(node, "x", ALICE, undo(ballot, true)), Answer::Gone);
    assert_eq!(
        ask(node, "x", ALICE, acquire(ballot, TTL_MS)),
        Answer::Stale
    );
    assert_eq!(stamp(node, "x").floor, ballot);
}

fn an_undo_of_known_fate_changes_nothing(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    assert_eq!(ask(node, "x", ALICE, undo(ballot, false)), Answer::Gone);
    assert_eq!(
        ask(node, "x", ALICE, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
}

fn a_lost_lock_can_be_restored_but_a_released_lock_cannot(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    assert_eq!(ask(node, "x", ALICE, restore(ballot)), Answer::Restored);
    held(ask(node, "x", BOB, restore(plus(ballot, 1))));
    ask(node, "x", ALICE, release_of_unknown_fate(ballot));
    assert_eq!(ask(node, "x", ALICE, restore(ballot)), Answer::Gone);
    let far = plus(ballot, 3_600_000_000);
    assert_eq!(ask(node, "x", ALICE, restore(far)), Answer::Ahead);
}

fn a_ballot_must_be_above_the_floor_and_below_the_ceiling(stage: &Stage) {
    let node = stage.node();
    let clock_us = stamp(node, "x").clock_us;
    let at = |offset_us: i64| Ballot::new(clock_us.saturating_add_signed(offset_us));
    let try_at = |ballot| ask(node, "x", ALICE, acquire(ballot, TTL_MS));
    assert_eq!(try_at(at(-5_000_000)), Answer::Stale);
    // A server's clock advances meanwhile, but not by an hour.
    assert_eq!(try_at(at(3_600_000_000)), Answer::Ahead);
    assert_eq!(try_at(at(4_000_000)), Answer::Granted);
    assert_eq!(stamp(node, "x").floor, at(4_000_000));
}

fn fences_outlive_their_holders(stage: &Stage) {
    let node = stage.node();
    let ballot = plus(next_ballot(node, "x"), 1_000_000);
    ask(node, "x", ALICE, acquire(ballot, 50));
    stage.pass_ms(52);
    assert_eq!(stamp(node, "x").floor, ballot);
    assert_eq!(ask(node, "x", BOB, acquire(ballot, TTL_MS)), Answer::Stale);
}

fn several_claims_are_granted_all_or_none(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "b");
    let all = ["a", "b", "c"];
    ask(node, "b", ALICE, acquire(ballot, TTL_MS));
    let refused = reply(node, &all, BOB, acquire(plus(ballot, 1), TTL_MS));
    assert_eq!(held(refused.answer).claim, 1);
    assert_eq!(refused.stamp.unwrap().floor, ballot);
    assert_eq!(ask(node, "a", BOB, extend(ballot, TTL_MS)), Answer::Gone);

    ask(node, "b", ALICE, release(ballot));
    let ballot = plus(ballot, 2);
    let answer = |client, op| reply(node, &all, client, op).answer;
    assert_eq!(answer(BOB, acquire(ballot, TTL_MS)), Answer::Granted);
    assert_eq!(answer(BOB, extend(ballot, TTL_MS)), Answer::Extended);
    assert_eq!(answer(BOB, release(ballot)), Answer::Released);
    for name in all {
        assert_eq!(stamp(node, name).floor, ballot);
    }
}

fn a_plain_lock_excludes_and_writes_no_fence(stage: &Stage) {
    let node = stage.node();
    let plain = Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS });
    let granted = reply(node, &["x"], ALICE, plain.clone());
    assert_eq!((granted.answer, granted.stamp), (Answer::Granted, None));
    held(ask(node, "x", ALICE, plain));
    let ballot = next_ballot(node, "x");
    assert_eq!(
        held(ask(node, "x", BOB, acquire(ballot, TTL_MS))).label,
        None
    );
    held(ask(node, "x", BOB, Op::PlainRelease));
    let prolong = Op::PlainExtend(PlainExtend { ttl_ms: TTL_MS });
    assert_eq!(ask(node, "x", ALICE, prolong.clone()), Answer::Extended);
    assert_eq!(ask(node, "x", ALICE, Op::PlainRelease), Answer::Released);
    assert_eq!(ask(node, "x", ALICE, prolong), Answer::Gone);
    assert_eq!(
        ask(node, "x", BOB, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
}

fn an_inspect_shows_the_holder_but_never_the_secret(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "b");
    ask(node, "b", ALICE, acquire(ballot, TTL_MS));
    let answer = reply(node, &["a", "b"], BOB, Op::Inspect).answer;
    let secret = token(ALICE).expose()[11..].to_owned();
    assert!(!format!("{answer:?}").contains(&secret));
    let Answer::Views(views) = answer else {
        panic!("no views but {answer:?}");
    };
    assert!(matches!(
        &views[0],
        View {
            holder: None,
            ballot: None,
            ..
        }
    ));
    assert_eq!(views[1].ballot, Some(ballot));
    assert_eq!(
        views[1].holder.as_ref().unwrap().label.as_deref(),
        Some("job")
    );
}

fn names_are_compared_byte_by_byte(stage: &Stage) {
    let node = stage.node();
    let long = "n".repeat(1024);
    let names = [
        "a",
        "A",
        "a\0",
        "a\0b",
        "ä",
        "a%",
        "{a}",
        "'; DROP TABLE entry; --",
        &long,
    ];
    for name in names {
        let ballot = next_ballot(node, name);
        assert_eq!(
            ask(node, name, ALICE, acquire(ballot, TTL_MS)),
            Answer::Granted,
            "{name:?}"
        );
    }
    for name in names {
        held(ask(
            node,
            name,
            BOB,
            acquire(next_ballot(node, name), TTL_MS),
        ));
    }
}

fn calls_for_one_token_are_executed_in_order(stage: &Stage) {
    let node = stage.node();
    let mut ballot = next_ballot(node, "x");
    let mut pending = Vec::new();
    for _ in 0..50 {
        for op in [
            acquire(ballot, TTL_MS),
            extend(ballot, TTL_MS),
            release(ballot),
        ] {
            pending.push(send(node, request(&["x"], ALICE, op), NEVER));
        }
        ballot = plus(ballot, 1);
    }
    let expected = [Answer::Granted, Answer::Extended, Answer::Released];
    for (pending, expected) in pending.into_iter().zip(expected.iter().cycle()) {
        assert_eq!(pending.wait().unwrap().answer, *expected);
    }
}

fn a_burst_of_calls_grants_exactly_one(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    let burst = (0..100).map(|client| {
        let op = acquire(plus(ballot, u64::from(client)), TTL_MS);
        send(node, request(&["x"], client, op), NEVER)
    });
    let pending: Vec<_> = burst.collect();
    let answers = pending
        .into_iter()
        .map(|pending| pending.wait().unwrap().answer);
    assert_eq!(
        answers.filter(|answer| *answer == Answer::Granted).count(),
        1
    );
}

fn a_node_reports_its_group_and_refuses_another(stage: &Stage) {
    let node = stage.node();
    let facts = probe(node).wait().unwrap();
    assert_eq!(facts.group, Some(Group::new(1)));
    assert!(facts.standing.is_some() && facts.clock_us > 0);
    assert!(!facts.run_id.is_empty() && !facts.version.is_empty());
    let other = Group {
        window: Duration::from_secs(1),
        ..Group::new(1)
    };
    assert!(matches!(
        join(node, other).wait(),
        Err(CallError::Refused(_))
    ));
    assert!(join(node, Group::new(1)).wait().is_ok());
    // A node with a lock is not new.
    let ballot = next_ballot(node, "x");
    ask(node, "x", ALICE, acquire(ballot, TTL_MS));
    assert!(matches!(
        init(node, Group::new(1), InitMode::Write).wait(),
        Err(CallError::Refused(_))
    ));
    assert!(init(node, Group::new(1), InitMode::Force).wait().is_ok());
}
