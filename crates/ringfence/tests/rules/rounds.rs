//! Rules 3, 4 and 12: one round, with nodes that are slow, unreachable or split between clients.

use std::pin::pin;
use std::time::Duration;

use ringfence::admin::LockState;
use ringfence::clock::Clock;
use ringfence::node::{CallError, Trouble, TroubleKind};
use ringfence::{AcquireError, ExtendError, Locks, ReleaseError};
use ringfence_core::message::{Acquire, Op};
use ringfence_core::protocol::Vote;

use crate::rules::bench::{Bench, at_once, foreign, ms, unreachable, waits};
use crate::rules::delaying_node::DelayingNode;

#[tokio::test]
async fn rule_3_all_nodes_receive_the_request_at_once() {
    let bench = Bench::new(5).await;
    let delaying: Vec<DelayingNode> = bench.nodes.iter().map(DelayingNode::before).collect();
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let builder = delaying
        .iter()
        .cloned()
        .fold(builder, ringfence::Builder::node);
    let locks = builder.connect().await.unwrap();
    delaying.iter().for_each(DelayingNode::keep_acquires);
    let lock = locks.mutex("x");
    let mut locking = pin!(lock.lock());
    assert!(waits(locking.as_mut()).await);
    let kept: Vec<usize> = delaying.iter().map(DelayingNode::kept).collect();
    assert_eq!(kept, [1; 5], "each before any node has answered");
    delaying.iter().for_each(DelayingNode::deliver);
    drop(at_once(locking).await.unwrap());
}

#[tokio::test]
async fn rule_3_a_majority_wins_and_late_grants_are_released_with_the_guard() {
    let bench = Bench::new(5).await;
    let locks = bench.client().await;
    for node in [1, 3] {
        bench.nodes[node].hang(true);
    }
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let votes: Vec<Vote> = guard.votes().iter().map(|node| node.vote.clone()).collect();
    use Vote::{Granted, Pending};
    assert_eq!(votes, [Granted, Pending, Granted, Pending, Granted]);
    bench.nodes[1].hang(false);
    assert_eq!(
        bench.held_by("x", &guard),
        4,
        "a late grant belongs to the holder"
    );
    assert_eq!(guard.votes()[1].vote, Granted);
    at_once(guard.release()).await.unwrap();
    bench.nodes[3].hang(false);
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_3_an_attempt_fails_as_soon_as_no_majority_is_possible() {
    let bench = Bench::new(5).await;
    let holder = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    for node in [0, 4] {
        bench.nodes[node].hang(true);
    }
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    bench.mend();
    drop(holder);
    assert_eq!(bench.holding("x"), 0);
}

/// How long `future` takes on the bench's clock.
async fn timed<F: Future>(bench: &Bench, future: F) -> (F::Output, Duration) {
    let start = bench.time.now();
    let output = bench.drive(future).await;
    (output, bench.time.now().since(start))
}

#[tokio::test]
async fn rule_4_every_call_has_a_timeout() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("held").lock()).await.unwrap();
    bench.nodes.iter().for_each(|node| node.hang(true));

    // A tenth of the TTL, between 20 ms and 1 s.
    for (ttl, timeout) in [(50, 20), (2000, 200), (30_000, 1000)] {
        let lock = locks.mutex("x").ttl(ms(ttl));
        let (outcome, took) = timed(&bench, lock.try_lock()).await;
        assert!(matches!(outcome, Err(AcquireError::NoQuorum { .. })));
        assert_eq!(took, ms(timeout), "ttl {ttl} ms");
    }
    let (outcome, took) = timed(&bench, guard.extend(ms(10_000))).await;
    assert!(matches!(outcome, Err(ExtendError::Unconfirmed { .. })));
    assert_eq!(took, ms(1000));
    let (outcome, took) = timed(&bench, locks.inspect("held")).await;
    assert!(outcome.is_ok_and(|seen| seen.state == LockState::Unknown));
    assert_eq!(took, ms(1000));
    let (nodes, took) = timed(&bench, locks.nodes()).await;
    assert!(nodes.iter().all(|node| node.facts.is_err()));
    assert_eq!(took, ms(1000));
    let (outcome, took) = timed(&bench, guard.release()).await;
    assert_eq!(outcome, Err(ReleaseError::Unconfirmed));
    // A renewal in flight is awaited first.
    assert!(took <= ms(2000), "{took:?}");
    let (outcome, took) = timed(&bench, bench.builder().connect()).await;
    assert!(
        outcome.is_ok(),
        "connecting to unreachable nodes is not an error"
    );
    assert!(took <= ms(2100), "{took:?}");
}

#[tokio::test]
async fn rule_4_the_builder_can_set_the_timeout() {
    let bench = Bench::new(3).await;
    let locks = bench
        .builder()
        .node_timeout(ms(77))
        .connect()
        .await
        .unwrap();
    bench.nodes.iter().for_each(|node| node.hang(true));
    let (outcome, took) = timed(&bench, locks.mutex("x").try_lock()).await;
    assert!(matches!(outcome, Err(AcquireError::NoQuorum { .. })));
    assert_eq!(took, ms(77));
}

#[tokio::test]
async fn g4_a_failed_minority_does_not_delay_a_lock() {
    let trouble_of = |kind, detail: &str| Trouble::new(kind, detail);
    let troubles = [
        unreachable(),
        CallError::Refused(trouble_of(TroubleKind::Denied, "wrong password")),
        CallError::Unknown(trouble_of(TroubleKind::Garbage, "no Redis")),
    ];
    for trouble in troubles {
        let bench = Bench::new(5).await;
        let locks = bench.client().await;
        bench.nodes[0].hang(true);
        bench.nodes[3].fail_with(Some(trouble));
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        at_once(guard.extend(ms(20_000))).await.unwrap();
        at_once(guard.release()).await.unwrap();
    }
}

#[tokio::test]
async fn g4_a_node_that_did_not_answer_delays_a_failed_attempt_by_its_timeout_at_most() {
    let bench = Bench::new(3).await;
    let holder = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    // One node does not have the holder, one hangs: only the hanging node could still decide.
    bench.delete(0, "x", holder.token());
    bench.time.step(ms(1));
    let locks = bench.client().await;
    bench.nodes[1].hang(true);
    let (outcome, took) = timed(&bench, locks.mutex("x").try_lock()).await;
    assert!(outcome.is_err());
    assert_eq!(
        took,
        ms(1000),
        "the client did not know that it would not answer"
    );
    let (outcome, took) = timed(&bench, locks.mutex("x").try_lock()).await;
    assert!(matches!(
        outcome,
        Err(AcquireError::NoQuorum { .. } | AcquireError::Held { .. })
    ));
    assert!(took <= ms(1000), "{took:?}");
}

#[tokio::test]
async fn rule_12_a_tie_is_reported_as_contended() {
    for nodes in [2, 4] {
        let bench = Bench::new(nodes).await;
        for node in 0..nodes {
            let half = u8::from(node >= nodes / 2);
            bench.occupy(node, "x", &foreign(half), 60_000);
        }
        let locks = bench.client().await;
        let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        let text = error.to_string();
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "`x` is contended: no holder has a majority of the nodes"
        );
        let waiting = locks.mutex("x").wait(ms(3000));
        let (outcome, took) = timed(&bench, waiting.lock()).await;
        assert!(matches!(outcome, Err(AcquireError::Held { .. })));
        assert!(took >= ms(3000) && took < ms(3100), "{took:?}");
    }
}

#[tokio::test]
async fn rule_12_half_of_an_even_number_of_nodes_is_not_a_majority() {
    for nodes in [2, 4] {
        let bench = Bench::new(nodes).await;
        let locks = bench.client().await;
        bench.break_first(nodes / 2);
        let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert_eq!(
            bench.holding("x"),
            0,
            "the grants of the other half are undone"
        );
        bench.mend();
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        assert_eq!(bench.held_by("x", &guard), nodes);
    }
}

#[tokio::test]
async fn rule_12_two_clients_that_split_the_nodes_both_get_the_lock_in_turn() {
    let bench = Bench::new(4).await;
    let (one, other) = (bench.client().await, bench.client().await);
    // Each client reaches a different half of the nodes first.
    let (a, b) = (one.mutex("x"), other.mutex("x"));
    let (mut a, mut b) = (pin!(a.lock()), pin!(b.lock()));
    bench.nodes[2].hang(true);
    bench.nodes[3].hang(true);
    assert!(waits(a.as_mut()).await);
    bench.nodes[2].hang(false);
    assert!(bench.holding("x") >= 2);
    let mut first = None;
    let mut second = None;
    bench
        .drive(async {
            tokio::select! {
                guard = a.as_mut() => first = Some(guard.unwrap()),
                guard = b.as_mut() => second = Some(guard.unwrap()),
            }
        })
        .await;
    bench.mend();
    match (first, second) {
        (Some(guard), None) => {
            at_once(guard.release()).await.unwrap();
            at_once(bench.drive(b).await.unwrap().release())
                .await
                .unwrap();
        }
        (None, Some(guard)) => {
            at_once(guard.release()).await.unwrap();
            at_once(bench.drive(a).await.unwrap().release())
                .await
                .unwrap();
        }
        _ => panic!("exactly one client is first"),
    }
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_12_a_single_node_follows_the_same_rules() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    bench.log_operations();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    at_once(guard.extend(ms(20_000))).await.unwrap();
    at_once(guard.release()).await.unwrap();
    assert_eq!(bench.count(|op| matches!(op, Op::Acquire { .. })), [2]);
    bench.break_first(1);
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
}

#[tokio::test]
async fn g4_a_node_that_never_answered_before_may_complete_the_majority() {
    let bench = Bench::new(3).await;
    bench.nodes[2].hang(true);
    let locks = bench.client().await;
    bench.nodes[2].hang(false);
    bench.nodes[1].fail_with(Some(unreachable()));
    let guard = at_once(locks.mutex("x").try_lock()).await.unwrap();
    assert_eq!(bench.held_by("x", &guard), 2);
}

#[tokio::test]
async fn only_the_first_caller_of_a_client_tries_without_a_ticket() {
    let bench = Bench::new(3).await;
    let holder = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    bench.log_operations();
    let acquires = |op: &Op| matches!(op, Op::Acquire { .. });
    let lock = locks.mutex("x");
    let mut first = Box::pin(lock.lock());
    assert!(waits(first.as_mut()).await);
    assert_eq!(
        bench.count(acquires),
        [2; 3],
        "without a ticket, and with one"
    );
    let mut second = Box::pin(lock.lock());
    assert!(waits(second.as_mut()).await);
    assert_eq!(bench.count(acquires), [1; 3]);
    // Each gets the lock in its turn, whichever polls first.
    at_once(holder.release()).await.unwrap();
    assert!(waits(second.as_mut()).await);
    let guard = at_once(first).await.unwrap();
    at_once(guard.release()).await.unwrap();
    at_once(second).await.unwrap().release().await.unwrap();
    // Without other callers, an acquire carries no ticket.
    bench.count(acquires);
    at_once(lock.lock()).await.unwrap().release().await.unwrap();
    let with_ticket = |op: &Op| {
        matches!(
            op,
            Op::Acquire(Acquire {
                ticket: Some(_),
                ..
            })
        )
    };
    assert_eq!(bench.count(with_ticket), [0; 3]);
}
