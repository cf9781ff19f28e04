//! Clocks that jump while a lock is held: what it costs the node, and when it costs the guard.

use std::pin::pin;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Builder, ExtendError, Locks, Lost};
use ringfence_core::protocol::{Discount, Vote};

use crate::bench::{Bench, at_once, idle, ms, waits};
use crate::postman::Postman;

const TTL: Duration = ms(9_000);
/// Past every TTL of these tests.
const STEP_US: i64 = 30_000_000;

#[tokio::test]
async fn a_node_whose_clock_jumped_is_found_out_at_the_next_extend_and_does_not_vote() {
    let bench = Bench::new(5).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").ttl(TTL).lock()).await.unwrap();
    bench.nodes[2].clock().step_us(STEP_US);
    at_once(guard.extend(TTL)).await.unwrap();
    idle().await;
    let vote = guard.votes()[2].vote.clone();
    assert!(
        matches!(vote, Vote::ClockJumped { by_us, .. } if (29_900_000..=STEP_US).contains(&by_us)),
        "{vote}"
    );
    // What it lost is put back, and still does not count: only time helps.
    assert_eq!(bench.held_by("x", &guard), 5);
    let said = vote.to_string();
    assert!(said.contains("clock jumped forward by 29.9"), "{said}");
    let status = at_once(locks.nodes()).await;
    let jumps: Vec<u64> = status.iter().map(|node| node.clock_jumps).collect();
    assert_eq!(jumps, [0, 0, 1, 0, 0]);
    assert!(matches!(
        status[2].discount,
        Some(Discount::ClockJumped { .. })
    ));
    bench.pass(ms(30_000)).await;
    assert!(matches!(guard.votes()[2].vote, Vote::ClockJumped { .. }));
    bench.pass(ms(12_000)).await;
    assert_eq!(guard.votes()[2].vote, Vote::Granted);
    assert_eq!(guard.check(), Ok(()));
}

/// The seeds' case: A holds {1,2,3}, the clock of 3 jumps and its key expires, B must not get {3,4,5}.
#[tokio::test]
async fn a_jump_does_not_let_a_second_client_in_that_knew_the_clock_before() {
    let bench = Bench::new(5).await;
    let (a, b) = (bench.client().await, bench.client().await);
    bench.nodes[3].fail_with(Some(crate::bench::unreachable()));
    bench.nodes[4].fail_with(Some(crate::bench::unreachable()));
    let lock = a.mutex("x").ttl(TTL).renew(false);
    let _held = at_once(lock.lock()).await.unwrap();
    bench.mend();
    bench.nodes[2].clock().step_us(STEP_US);
    let error = at_once(b.mutex("x").try_lock()).await.unwrap_err();
    let votes = error.votes().unwrap();
    assert!(matches!(votes[2].vote, Vote::ClockJumped { .. }), "{error}");
}

#[tokio::test]
async fn a_majority_that_jumps_alike_loses_every_guard_at_once_and_no_vote() {
    for nodes in [1, 3, 5] {
        let bench = Bench::new(nodes).await;
        let locks = bench.client().await;
        let one = at_once(locks.mutex("x").ttl(TTL).lock()).await.unwrap();
        let other = at_once(locks.mutex("y").ttl(TTL).lock()).await.unwrap();
        let mut lost = pin!(other.lost());
        assert!(waits(lost.as_mut()).await);
        // As if the machine had been paused: everybody's time passed but ours.
        for node in &bench.nodes {
            node.clock().step_us(STEP_US);
        }
        let error = at_once(one.extend(TTL)).await.unwrap_err();
        assert!(
            matches!(
                &error,
                ExtendError::Lost {
                    why: Lost::ClockStoodStill,
                    ..
                }
            ),
            "{nodes}: {error}"
        );
        assert_eq!(at_once(lost).await, Lost::ClockStoodStill);
        assert_eq!(one.check(), Err(Lost::ClockStoodStill));
        assert_eq!(other.remaining(), Duration::ZERO);
        assert_eq!(locks.standstills(), 1);
        // The next grant counts from after the pause, with every node's vote.
        bench.pass(ms(5)).await;
        let next = at_once(locks.mutex("z").ttl(TTL).lock()).await.unwrap();
        idle().await;
        assert!(next.votes().iter().all(|node| node.vote == Vote::Granted));
        let jumps = at_once(locks.nodes()).await;
        assert!(
            jumps
                .iter()
                .all(|node| node.clock_jumps == 0 && node.discount.is_none())
        );
    }
}

/// t0 was read before the pause: nobody knows what is left of the TTL.
#[tokio::test]
async fn a_grant_that_was_asked_for_before_the_pause_does_not_count() {
    let bench = Bench::new(3).await;
    let postmen: Vec<Postman> = bench.nodes.iter().map(Postman::before).collect();
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let builder = postmen.iter().cloned().fold(builder, Builder::node);
    let locks = builder.connect().await.unwrap();
    postmen.iter().for_each(Postman::keep_acquires);
    let t0 = bench.time.now();
    let lock = locks.mutex("x").ttl(TTL);
    let mut locking = pin!(lock.lock());
    assert!(waits(locking.as_mut()).await);
    // The requests were on their way while the machine was paused.
    for node in &bench.nodes {
        node.clock().step_us(STEP_US);
    }
    postmen.iter().for_each(Postman::deliver);
    assert!(waits(locking.as_mut()).await, "all three granted it");
    assert_eq!(locks.standstills(), 1);
    let guard = bench.drive(locking).await.unwrap();
    assert!(
        guard.exact_deadline() > t0 + TTL - ms(92),
        "counts from a later t0"
    );
}

#[tokio::test]
async fn a_guard_with_a_lock_delay_is_not_given_back_early_after_a_pause() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").ttl(TTL).lock_delay(ms(9_000));
    let guard = at_once(lock.lock()).await.unwrap();
    for node in &bench.nodes {
        // Past the TTL, within the delay.
        node.clock().step_us(10_000_000);
    }
    drop(at_once(guard.extend(TTL)).await);
    assert_eq!(guard.check(), Err(Lost::ClockStoodStill));
    drop(guard);
    bench.pass(ms(100)).await;
    assert_eq!(bench.holding("x"), 3, "the delay protects the others");
}

#[tokio::test]
async fn a_clock_set_back_on_all_nodes_loses_nothing() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").ttl(TTL).lock()).await.unwrap();
    for node in &bench.nodes {
        node.clock().step_us(-2_000_000);
    }
    at_once(guard.extend(TTL)).await.ok();
    at_once(guard.extend(TTL)).await.unwrap();
    assert_eq!(guard.check(), Ok(()));
}
