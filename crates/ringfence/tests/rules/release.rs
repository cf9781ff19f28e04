//! Rule 10: what a release reports. Rule 11: what a drop does, wherever it happens.

use std::time::Duration;

use ringfence::ReleaseError;
use ringfence::clock::Clock;
use ringfence_core::message::{Op, Release};

use crate::rules::bench::{Bench, at_once, foreign, idle, ms};

#[tokio::test]
async fn rule_10_a_release_returns_ok_when_a_majority_released() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.nodes[0].hang(true);
    assert_eq!(at_once(guard.release()).await, Ok(()));
    bench.mend();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_10_a_release_after_the_ttl_returns_expired() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    bench.time.step(ms(10_001));
    let outcome = at_once(guard.release()).await;
    assert_eq!(
        outcome,
        Err(ReleaseError::Expired),
        "at once, not after retries"
    );
}

#[tokio::test]
async fn rule_10_a_release_returns_taken_and_does_not_affect_the_new_holder() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    bench.time.step(ms(10_001));
    let next = bench.lock_x().await;
    assert_eq!(at_once(guard.release()).await, Err(ReleaseError::Taken));
    assert_eq!(bench.held_by("x", &next), 3);
}

#[tokio::test]
async fn rule_10_a_release_returns_ok_if_only_a_minority_lost_the_key() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.delete(0, "x", guard.token());
    bench.occupy(0, "x", &foreign(1), 60_000);
    assert_eq!(at_once(guard.release()).await, Ok(()));
}

#[tokio::test]
async fn rule_10_an_unconfirmed_release_is_retried_in_the_background() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.break_first(2);
    let start = bench.time.now();
    let outcome = bench.drive(guard.release()).await;
    assert_eq!(outcome, Err(ReleaseError::Unconfirmed));
    assert!(bench.time.now().since(start) <= ms(1000));
    assert_eq!(bench.holding("x"), 2);
    bench.pass(ms(3000)).await;
    bench.mend();
    bench.pass(ms(1100)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_10_a_release_is_retried_for_as_long_as_the_longest_extension_lasts() {
    let bench = Bench::new(3).await;
    let guard = bench
        .lock_x_with(|lock| lock.ttl(ms(1000)).renew(false))
        .await;
    at_once(guard.extend(ms(30_000))).await.unwrap();
    bench.break_first(3);
    drop(guard);
    bench.pass(ms(5000)).await;
    assert_eq!(bench.holding("x"), 3);
    bench.mend();
    bench.pass(ms(1100)).await;
    assert_eq!(
        bench.holding("x"),
        0,
        "the key and the retries last longer than the lock's own ttl"
    );
}

#[tokio::test]
async fn rule_11_a_drop_releases_without_blocking() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.nodes[1].hang(true);
    drop(guard);
    assert_eq!(
        bench.holding("x"),
        1,
        "nodes that answer have released before drop returns"
    );
    bench.mend();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_11_a_drop_sends_a_final_release() {
    // A drop is a release without a reply to the caller. It is final, so that no late restore
    // revives the lock.
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.log_operations();
    drop(guard);
    use ringfence_core::message::ReleaseKind::Final;
    assert_eq!(
        bench.count(|op| matches!(op, Op::Release(Release { kind: Final, .. }))),
        [1; 3]
    );
}

#[tokio::test]
async fn rule_11_a_drop_works_in_a_thread_without_a_tokio_runtime() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    // One node is unreachable at first: the keeper retries on the tokio runtime of the client.
    bench.break_first(1);
    let thread = std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
    });
    thread.join().expect("no panic");
    assert_eq!(bench.holding("x"), 1);
    bench.mend();
    bench.pass(ms(1100)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[test]
fn rule_11_a_drop_works_after_the_tokio_runtime_has_shut_down() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (bench, locks, [guard, hung, kept]) = first.block_on(async {
        let bench = Bench::new(3).await;
        let locks = bench.client().await;
        let lock = async |name| at_once(locks.mutex(name).lock()).await.unwrap();
        let guards = [lock("x").await, lock("y").await, lock("z").await];
        (bench, locks, guards)
    });
    drop(first);
    drop(guard);
    assert_eq!(bench.holding("x"), 0);
    // No task is left that could retry: the lock ends with its TTL.
    bench.break_first(3);
    drop(hung);
    bench.mend();
    bench.time.step(ms(10_001));
    assert_eq!(bench.holding("y"), 0);
    // Nothing is renewed any more: a guard reports its loss, and no lock is granted.
    runtime().block_on(async {
        assert_eq!(at_once(kept.lost()).await, ringfence::Lost::Expired);
        let error = at_once(locks.mutex("x").lock()).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
    });
}

#[tokio::test]
async fn rule_11_a_panic_releases_the_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let task = tokio::spawn(async move {
        let _guard = locks.mutex("x").lock().await.unwrap();
        // Not `panic!`: nothing should be printed by a test that passes.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(task.await.unwrap_err().is_panic());
    idle().await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn g3_the_lock_of_a_killed_holder_is_free_after_its_ttl() {
    let bench = Bench::new(3).await;
    let crashed = bench.lock_x_with(|lock| lock.renew(false)).await;
    let deadline = crashed.exact_deadline();
    // A process that is killed runs no destructors.
    std::mem::forget(crashed);
    let start = bench.time.now();
    let guard = bench
        .drive(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    assert!(
        bench.time.now() >= deadline,
        "not before the validity of the first holder is over"
    );
    assert!(
        bench.time.now().since(start) <= ms(11_000),
        "and not long after"
    );
    assert_eq!(bench.held_by("x", &guard), 3);
}

#[tokio::test]
async fn g6_a_dropped_guard_is_released_with_the_system_clock() {
    let nodes = ["a", "b", "c"].map(ringfence::node::memory::MemoryNode::new);
    let builder = || {
        nodes
            .iter()
            .cloned()
            .fold(ringfence::Locks::builder(), ringfence::Builder::node)
    };
    builder().init().await.unwrap();
    let locks = builder().clock(Clock::System).connect().await.unwrap();
    nodes[2].hold_replies(true);
    drop(locks.mutex("x").lock().await.unwrap());
    nodes[2].hold_replies(false);
    let next = locks
        .mutex("x")
        .wait(Duration::from_secs(5))
        .lock()
        .await
        .unwrap();
    assert_eq!(next.check(), Ok(()));
}
