//! `lock_delay` and `hold_at_least`: nodes refuse a lock to other clients although it has no
//! holder.

use ringfence::{AcquireError, ExtendError, Lock, Lost, ReleaseError};
use ringfence_core::message::{Op, Restore};

use crate::rules::bench::{Bench, at_once, idle, ms};

/// A lock with a TTL of 2 s that the nodes keep for 3 s longer.
fn delayed(lock: Lock) -> Lock {
    lock.ttl(ms(2000)).lock_delay(ms(3000))
}

/// A lock with a TTL of 2 s that is kept for at least a minute.
fn kept(lock: Lock) -> Lock {
    lock.ttl(ms(2000)).hold_at_least(ms(60_000))
}

#[tokio::test]
async fn with_a_lock_delay_the_nodes_keep_the_key_past_the_deadline() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let guard = bench.lock_x_with(|lock| delayed(lock).renew(false)).await;
    assert!(guard.remaining() < ms(2000), "{:?}", guard.remaining());
    let seen = at_once(locks.inspect("x")).await.unwrap();
    assert_eq!(seen.remaining, Some(ms(5000)));
    bench.time.step(ms(2000));
    assert_eq!(guard.check(), Err(Lost::Expired));
    // Too late: the release must not shorten the delay.
    assert_eq!(at_once(guard.release()).await, Err(ReleaseError::Expired));
    idle().await;
    assert_eq!(bench.holding("x"), 3);
    bench.time.step(ms(2999));
    assert!(at_once(other.mutex("x").try_lock()).await.is_err());
    bench.time.step(ms(2));
    drop(at_once(other.mutex("x").try_lock()).await.unwrap());
}

#[tokio::test]
async fn a_guard_dropped_after_the_deadline_does_not_shorten_the_delay() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| delayed(lock).renew(false)).await;
    bench.time.step(ms(2500));
    drop(guard);
    idle().await;
    assert_eq!(bench.holding("x"), 3);
}

/// An extension that is in flight at the deadline may be confirmed after it, since the nodes keep
/// the key for the delay.
#[tokio::test]
async fn an_extension_confirmed_after_the_loss_does_not_let_a_release_shorten_the_delay() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| delayed(lock).renew(false)).await;
    let deadline = guard.exact_deadline();
    bench.time.step(ms(1900));
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let mut extending = Box::pin(guard.extend(ms(2000)));
    assert!(crate::rules::bench::waits(extending.as_mut()).await);
    bench.time.step(ms(100));
    assert_eq!(guard.check(), Err(Lost::Expired));
    bench.nodes.iter().for_each(|node| node.hold_replies(false));
    let error = at_once(extending).await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost { .. }), "{error}");
    assert_eq!(guard.exact_deadline(), deadline);
    assert_eq!(at_once(guard.release()).await, Err(ReleaseError::Expired));
    idle().await;
    assert_eq!(bench.holding("x"), 3);
}

#[tokio::test]
async fn a_release_in_time_frees_the_lock_at_once_in_spite_of_a_delay() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = bench.lock_x_with(delayed).await;
    bench.pass(ms(10_000)).await;
    assert_eq!(guard.check(), Ok(()), "renewed");
    let left = at_once(locks.inspect("x"))
        .await
        .unwrap()
        .remaining
        .unwrap();
    assert!(left > ms(4000), "each renewal adds the delay: {left:?}");
    at_once(guard.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_restore_includes_the_delay() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(delayed).await;
    bench.delete(0, "x", guard.token());
    bench.log_operations();
    bench.pass(ms(700)).await;
    let restores = bench.nodes[0].take_operations();
    let restored = restores.iter().find_map(|one| match one.request.op {
        Op::Restore(Restore { ttl_ms, .. }) => Some(ttl_ms),
        _ => None,
    });
    assert_eq!(restored, Some(5000));
}

#[tokio::test]
async fn ttl_and_delay_together_are_bounded() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").ttl(ms(10_000)).lock_delay(ms(20_001));
    let error = at_once(lock.lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("lock delay"), "{error}");
    let lock = locks.mutex("x").ttl(ms(10_000)).lock_delay(ms(20_000));
    let guard = at_once(lock.lock()).await.unwrap();
    assert!(at_once(guard.extend(ms(10_001))).await.is_err());
    at_once(guard.extend(ms(10_000))).await.unwrap();
}

#[tokio::test]
async fn a_lock_released_early_is_kept_for_the_rest_of_hold_at_least() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.labelled("nightly").await, bench.client().await);
    let lock = locks.mutex("x").hold_at_least(ms(60_000));
    let guard = at_once(lock.lock()).await.unwrap();
    let (token, fence) = (guard.token().clone(), guard.fence());
    bench.time.step(ms(1000));
    at_once(guard.release()).await.unwrap();
    assert_eq!(
        bench.keys("x"),
        vec![Some(format!("kept.{}", token.id())); 3]
    );
    let error = at_once(other.mutex("x").try_lock()).await.unwrap_err();
    let words = "`x` is kept for 59.0 s after nightly released it";
    assert!(error.to_string().starts_with(words), "{error}");
    assert!(at_once(other.plain_mutex("x").try_lock()).await.is_err());
    let seen = at_once(other.inspect("x")).await.unwrap();
    assert!(seen.is_held() && seen.kept);
    assert_eq!(seen.remaining, Some(ms(59_000)));
    bench.time.step(ms(58_999));
    assert!(
        at_once(lock.try_lock()).await.is_err(),
        "not even its last holder"
    );
    bench.time.step(ms(2));
    let next = at_once(other.mutex("x").try_lock()).await.unwrap();
    assert!(next.fence() > fence);
}

#[tokio::test]
async fn a_lock_released_after_hold_at_least_is_not_kept() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").hold_at_least(ms(500));
    let guard = at_once(lock.lock()).await.unwrap();
    bench.pass(ms(500)).await;
    at_once(guard.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0);
    drop(at_once(lock.lock()).await.unwrap());
    assert_eq!(bench.holding("x"), 3, "a guard dropped early keeps it");
    bench.time.step(ms(501));
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_waiter_gets_the_lock_when_it_is_no_longer_kept() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let lock = locks.mutex("x").hold_at_least(ms(5000));
    let begun = bench.time.now();
    let guard = at_once(lock.lock()).await.unwrap();
    let next = other.mutex("x");
    let mut next = Box::pin(next.lock());
    assert!(crate::rules::bench::waits(next.as_mut()).await);
    at_once(guard.release()).await.unwrap();
    let next = bench.drive(next).await.unwrap();
    let took = bench.time.now().since(begun);
    assert!(took >= ms(5000) && took < ms(6500), "{took:?}");
    drop(next);
}

#[tokio::test]
async fn a_node_that_receives_the_release_late_does_not_keep_the_lock_longer() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").hold_at_least(ms(5000)).ttl(ms(8000));
    let guard = at_once(lock.lock()).await.unwrap();
    bench.nodes[2].fail_with(Some(crate::rules::bench::unreachable()));
    at_once(guard.release()).await.unwrap();
    bench.pass(ms(2000)).await;
    bench.mend();
    bench.pass(ms(2000)).await;
    assert_eq!(bench.holding("x"), 3);
    assert!(
        bench
            .keys("x")
            .iter()
            .flatten()
            .all(|key| key.starts_with("kept."))
    );
    bench.pass(ms(1100)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_kept_lock_cannot_be_extended_or_released() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").hold_at_least(ms(60_000));
    let guard = at_once(lock.lock()).await.unwrap();
    let receipt = guard.receipt();
    at_once(guard.release()).await.unwrap();
    assert!(
        at_once(lock.extend_receipt(&receipt, ms(5000)))
            .await
            .is_err()
    );
    assert!(at_once(lock.release_receipt(&receipt)).await.is_err());
    assert!(bench.keys("x")[0].as_ref().unwrap().starts_with("kept."));
    let forged = bench.keys("x")[0].clone().unwrap() + ".1";
    assert!(ringfence::receipt::Receipt::parse(&forged).is_err());
}

#[tokio::test]
async fn a_release_without_a_majority_before_the_ttl_ends_still_keeps_the_lock() {
    for reached in [0, 1] {
        let bench = Bench::new(3).await;
        let other = bench.client().await;
        let guard = bench.lock_x_with(kept).await;
        bench.break_first(3 - reached);
        let outcome = bench.drive(guard.release()).await;
        assert_eq!(outcome, Err(ReleaseError::Unconfirmed));
        // The TTL is over on all nodes, and no client has asked for the lock.
        bench.pass(ms(5000)).await;
        assert_eq!(bench.holding("x"), reached);
        bench.mend();
        bench.pass(ms(1500)).await;
        let kept = |key: &Option<String>| key.as_ref().is_some_and(|key| key.starts_with("kept."));
        let kept = bench.keys("x").iter().filter(|key| kept(key)).count();
        assert!(kept >= 2, "{kept} of 3 keep it");
        let error = at_once(other.mutex("x").try_lock()).await.unwrap_err();
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        bench.pass(ms(55_000)).await;
        drop(at_once(other.mutex("x").try_lock()).await.unwrap());
    }
}

#[tokio::test]
async fn a_late_release_does_not_keep_a_lock_that_another_client_holds_by_then() {
    let bench = Bench::new(3).await;
    let other = bench.client().await;
    let guard = bench.lock_x_with(kept).await;
    bench.break_first(3);
    drop(guard);
    bench.pass(ms(5000)).await;
    bench.mend();
    let next = at_once(other.mutex("x").try_lock()).await.unwrap();
    bench.pass(ms(3000)).await;
    assert_eq!(bench.held_by("x", &next), 3);
    at_once(next.release()).await.unwrap();
    bench.pass(ms(3000)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn once_a_majority_keeps_the_lock_the_rest_is_retried_only_until_the_ttl_ends() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(kept).await;
    bench.break_first(1);
    at_once(guard.release()).await.unwrap();
    bench.pass(ms(5000)).await;
    bench.mend();
    bench.pass(ms(3000)).await;
    assert_eq!(bench.keys("x")[0], None);
    assert_eq!(bench.holding("x"), 2);
}

/// After an outage of all nodes a kept lock may still have to be sent, but `close` waits for the
/// TTL at most.
#[tokio::test]
async fn close_waits_at_most_for_the_ttl_of_a_kept_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(kept(locks.mutex("x")).lock()).await.unwrap();
    bench.break_first(3);
    drop(guard);
    let begun = bench.time.now();
    bench.drive(locks.close()).await;
    let took = bench.time.now().since(begun);
    assert!(took < ms(4000), "{took:?}");
}
