//! Clocks that jump while a lock is held: when the node loses its vote, and when the guard is lost.

use std::pin::pin;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Builder, ExtendError, Locks, Lost};
use ringfence_core::protocol::Vote;

use crate::rules::bench::{Bench, at_once, idle, ms, waits};
use crate::rules::delaying_node::DelayingNode;

const TTL: Duration = ms(9_000);
/// Longer than every TTL of these tests.
const STEP_US: i64 = 30_000_000;

#[tokio::test]
async fn the_next_extend_detects_a_clock_jump_and_the_node_loses_its_vote() {
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
    // The node's key is restored, but its vote does not count until enough time has passed.
    assert_eq!(bench.held_by("x", &guard), 5);
    let text = vote.to_string();
    assert!(text.contains("clock jumped forward by 29.9"), "{text}");
    let status = at_once(locks.nodes()).await;
    let jumps: Vec<u64> = status.iter().map(|node| node.clock_jumps).collect();
    assert_eq!(jumps, [0, 0, 1, 0, 0]);
    assert!(matches!(status[2].discount, Some(Vote::ClockJumped { .. })));
    bench.pass(ms(30_000)).await;
    assert!(matches!(guard.votes()[2].vote, Vote::ClockJumped { .. }));
    bench.pass(ms(12_000)).await;
    assert_eq!(guard.votes()[2].vote, Vote::Granted);
    assert_eq!(guard.check(), Ok(()));
}

/// Client A holds nodes {1,2,3}. The clock of 3 jumps and A's key expires there. Client B must not
/// win with {3,4,5}.
#[tokio::test]
async fn a_second_client_that_knew_the_clock_does_not_win_after_a_jump() {
    let bench = Bench::new(5).await;
    let (a, b) = (bench.client().await, bench.client().await);
    bench.nodes[3].fail_with(Some(crate::rules::bench::unreachable()));
    bench.nodes[4].fail_with(Some(crate::rules::bench::unreachable()));
    let lock = a.mutex("x").ttl(TTL).renew(false);
    let _held = at_once(lock.lock()).await.unwrap();
    bench.mend();
    bench.nodes[2].clock().step_us(STEP_US);
    let error = at_once(b.mutex("x").try_lock()).await.unwrap_err();
    let votes = error.votes().unwrap();
    assert!(matches!(votes[2].vote, Vote::ClockJumped { .. }), "{error}");
}

#[tokio::test]
async fn if_a_majority_jumps_alike_every_guard_is_lost_and_every_node_keeps_its_vote() {
    for nodes in [1, 3, 5] {
        let bench = Bench::new(nodes).await;
        let locks = bench.client().await;
        let one = at_once(locks.mutex("x").ttl(TTL).lock()).await.unwrap();
        let other = at_once(locks.mutex("y").ttl(TTL).lock()).await.unwrap();
        let mut lost = pin!(other.lost());
        assert!(waits(lost.as_mut()).await);
        // As if this machine had been paused: time passed on every node but not here.
        for node in &bench.nodes {
            node.clock().step_us(STEP_US);
        }
        let error = at_once(one.extend(TTL)).await.unwrap_err();
        assert!(
            matches!(
                &error,
                ExtendError::Lost {
                    why: Lost::ClockFroze,
                    ..
                }
            ),
            "{nodes}: {error}"
        );
        assert_eq!(at_once(lost).await, Lost::ClockFroze);
        assert_eq!(one.check(), Err(Lost::ClockFroze));
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

/// t0 was read before the pause, so the client does not know how much of the TTL remains.
#[tokio::test]
async fn a_grant_requested_before_a_pause_does_not_count() {
    let bench = Bench::new(3).await;
    let delaying: Vec<DelayingNode> = bench.nodes.iter().map(DelayingNode::before).collect();
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let builder = delaying.iter().cloned().fold(builder, Builder::node);
    let locks = builder.connect().await.unwrap();
    delaying.iter().for_each(DelayingNode::keep_acquires);
    let t0 = bench.time.now();
    let lock = locks.mutex("x").ttl(TTL);
    let mut locking = pin!(lock.lock());
    assert!(waits(locking.as_mut()).await);
    // The requests were in flight while the machine was paused.
    for node in &bench.nodes {
        node.clock().step_us(STEP_US);
    }
    delaying.iter().for_each(DelayingNode::deliver);
    assert!(waits(locking.as_mut()).await, "all three granted it");
    assert_eq!(locks.standstills(), 1);
    let guard = bench.drive(locking).await.unwrap();
    assert!(
        guard.exact_deadline() > t0 + TTL - ms(92),
        "counts from a later t0"
    );
}

#[tokio::test]
async fn a_lock_delay_is_not_cut_short_after_a_pause() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").ttl(TTL).lock_delay(ms(9_000));
    let guard = at_once(lock.lock()).await.unwrap();
    for node in &bench.nodes {
        // Past the TTL, within the delay.
        node.clock().step_us(10_000_000);
    }
    drop(at_once(guard.extend(TTL)).await);
    assert_eq!(guard.check(), Err(Lost::ClockFroze));
    drop(guard);
    bench.pass(ms(100)).await;
    assert_eq!(
        bench.holding("x"),
        3,
        "the nodes keep the key for the delay"
    );
}

#[tokio::test]
async fn clocks_set_back_on_all_nodes_lose_no_lock() {
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
