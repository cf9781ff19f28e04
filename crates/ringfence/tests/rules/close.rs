//! Rule 11, `close`: it waits until pending releases are acknowledged.

use std::pin::{Pin, pin};

use ringfence::{AcquireError, Locks};

use crate::rules::bench::{Bench, at_once, idle, ms, waits};

/// A wait for `x` whose acquire all nodes have executed. It has not been polled since they
/// answered.
async fn waiting_unpolled(bench: &Bench, locks: &Locks) -> Pin<Box<dyn Future<Output = ()>>> {
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let lock = locks.mutex("x");
    let mut waiting = Box::pin(async move { drop(lock.lock().await) });
    assert!(waits(waiting.as_mut()).await);
    bench.mend();
    waiting
}

#[tokio::test]
async fn rule_11_close_waits_until_every_release_is_acknowledged() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    bench.nodes[2].hang(true);
    drop(guard);
    let mut closing = pin!(locks.close());
    assert!(waits(closing.as_mut()).await);
    bench.nodes[2].hang(false);
    at_once(closing).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_11_close_ends_when_the_ttl_is_over_at_the_latest() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    bench.break_first(2);
    drop(guard);
    let start = bench.time.now();
    bench.drive(locks.close()).await;
    let took = bench.time.now().since(start);
    assert!(took > ms(8000) && took <= ms(10_000), "{took:?}");
}

/// Other clients can have the lock once a majority has confirmed, so `close` waits only a moment
/// for the rest.
#[tokio::test]
async fn rule_11_close_waits_100_ms_for_the_rest_once_a_majority_has_confirmed() {
    for hung in [true, false] {
        let bench = Bench::new(3).await;
        let locks = bench.client().await;
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        match hung {
            true => bench.nodes[0].hang(true),
            false => bench.break_first(1),
        }
        drop(guard);
        let start = bench.time.now();
        bench.drive(locks.close()).await;
        assert_eq!(bench.time.now().since(start), ms(100), "hung: {hung}");
        assert_eq!(bench.holding("x"), 1);
    }
}

#[tokio::test]
async fn rule_11_close_returns_at_once_if_everything_is_confirmed() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    drop(at_once(locks.mutex("x").lock()).await.unwrap());
    at_once(locks.close()).await;
}

/// A process ends and leaves its lock. A node that is about to answer gets a moment for it.
#[tokio::test]
async fn rule_11_close_waits_for_nodes_that_have_not_answered_an_acquire() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[2].hang(true);
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    guard.leave();
    let mut closing = pin!(locks.close());
    assert!(waits(closing.as_mut()).await);
    bench.nodes[2].hang(false);
    at_once(closing).await;
    assert_eq!(bench.holding("x"), 3);
}

#[tokio::test]
async fn rule_11_close_waits_at_most_100_ms_for_replies_to_an_acquire() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[2].hang(true);
    at_once(locks.mutex("x").lock()).await.unwrap().leave();
    let start = bench.time.now();
    bench.drive(locks.close()).await;
    assert_eq!(bench.time.now().since(start), ms(100));
}

#[tokio::test]
async fn rule_11_close_cancels_waiting_callers_and_undoes_their_attempts() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let waiter = locks.clone();
    let waiting = tokio::spawn(async move { waiter.mutex("x").lock().await });
    idle().await;
    assert_eq!(bench.holding("x"), 3, "the attempt is in flight");
    let mut closing = pin!(locks.close());
    assert!(waits(closing.as_mut()).await);
    assert!(
        waits(closing.as_mut()).await,
        "the undo is not acknowledged yet"
    );
    bench.mend();
    at_once(closing).await;
    assert_eq!(bench.holding("x"), 0);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn rule_11_close_waits_for_an_attempt_that_is_not_undone_yet() {
    // All nodes answered, but the task of the attempt has not been polled since when the client is
    // closed. The keys that the attempt set must be gone when `close` returns.
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let waiting = waiting_unpolled(&bench, &locks).await;
    let mut closing = pin!(locks.close());
    assert!(
        waits(closing.as_mut()).await,
        "the waiting task has not been polled since"
    );
    drop(waiting);
    at_once(closing).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_11_close_waits_at_most_one_second_for_a_future_that_is_not_polled() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let waiting = waiting_unpolled(&bench, &locks).await;
    let start = bench.time.now();
    bench.drive(locks.close()).await;
    assert_eq!(bench.time.now().since(start), ms(1000));
    drop(waiting);
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_11_guards_outlive_close() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(locks.clone().close()).await;
    bench.pass(ms(30_000)).await;
    assert_eq!(guard.check(), Ok(()), "still renewed");
    let error = at_once(locks.mutex("y").lock()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the client was closed while it waited for `y`"
    );
    assert!(!error.is_retryable() && error.votes().is_none());
    at_once(guard.release()).await.unwrap();
}
