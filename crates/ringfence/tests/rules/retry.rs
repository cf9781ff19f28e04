//! Rules 15 and 16: how long a caller waits, how often it asks, and what it is warned of.

use std::pin::pin;
use std::time::Duration;

use ringfence::{AcquireError, Lock};
use ringfence_core::message::Op;

use crate::bench::{Bench, at_once, idle, ms, waits};
use crate::log::Log;

fn acquires(op: &Op) -> bool {
    matches!(op, Op::Acquire { .. })
}

/// How a held or unreachable lock was refused, how long that took, and how often node `c` was asked.
async fn refused(bench: &Bench, lock: Lock) -> (AcquireError, Duration, usize) {
    bench.log_operations();
    let start = bench.time.now();
    let error = bench.drive(lock.lock()).await.map(drop).unwrap_err();
    let took = bench.time.now().since(start);
    (error, took, bench.count(acquires)[2])
}

#[tokio::test]
async fn rule_15_wait_bounds_the_retries() {
    let bench = Bench::new(3).await;
    let _guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    for wait in [1, 100, 3000] {
        let (error, took, asked) = refused(&bench, locks.mutex("x").wait(ms(wait))).await;
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        assert!(
            took >= ms(wait) && took <= ms(wait + 20),
            "{took:?} of {wait} ms"
        );
        assert!(asked >= 2, "asked once more at the end of {wait} ms");
        // Backing off to pauses of 100 to 200 ms.
        assert!(
            asked as u64 <= 10 + wait / 100,
            "{asked} times in {wait} ms"
        );
    }
    let (_, took, asked) = refused(&bench, locks.mutex("x").wait(Duration::ZERO)).await;
    assert_eq!((took, asked), (Duration::ZERO, 1));
}

#[tokio::test]
async fn rule_15_attempts_bound_the_retries() {
    let bench = Bench::new(3).await;
    let _guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    for attempts in [1, 2, 7] {
        let (error, _, asked) = refused(&bench, locks.mutex("x").attempts(attempts)).await;
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        assert_eq!(asked, attempts as usize);
    }
    bench.break_first(2);
    for attempts in [1, 2, 5] {
        let (error, _, asked) = refused(&bench, locks.mutex("y").attempts(attempts)).await;
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert_eq!(asked, attempts as usize);
    }
}

#[tokio::test]
async fn rule_15_without_a_majority_it_ends_sooner_than_the_wait() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.break_first(2);
    let mutex = || locks.mutex("x");
    for (lock, expected) in [
        (mutex(), 15_000),
        (mutex().wait(ms(60_000)), 15_000),
        (mutex().wait(ms(3000)), 3000),
        (mutex().no_quorum_after(ms(1000)), 1000),
        (mutex().no_quorum_after(ms(20_000)), 20_000),
        (mutex().no_quorum_after(ms(20_000)).wait(ms(5000)), 5000),
    ] {
        let (error, took, asked) = refused(&bench, lock).await;
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert!(
            took >= ms(expected) && took <= ms(expected + 20),
            "{took:?}, not {expected} ms"
        );
        assert!(
            asked <= 10 + expected as usize / 500,
            "no spin: {asked} times"
        );
    }
    let start = bench.time.now();
    assert!(bench.drive(mutex().try_lock()).await.is_err());
    assert!(bench.time.now().since(start) <= ms(1000));
}

#[tokio::test]
async fn rule_15_a_majority_that_comes_back_in_time_is_enough() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.mutex("x");
    bench.break_first(2);
    let mut locking = pin!(lock.lock());
    for _ in 0..100 {
        assert!(waits(locking.as_mut()).await);
        bench.pass(ms(100)).await;
    }
    bench.mend();
    let start = bench.time.now();
    drop(bench.drive(locking).await.unwrap());
    assert!(bench.time.now().since(start) <= ms(1000));
}

#[tokio::test]
async fn rule_15_a_holder_that_answers_is_no_outage() {
    // Waiting is about contention: 15 s end an outage, not a queue.
    let bench = Bench::new(3).await;
    let guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let lock = bench.client().await.mutex("x");
    let mut locking = pin!(lock.lock());
    for _ in 0..40 {
        bench.pass(ms(1000)).await;
        assert!(waits(locking.as_mut()).await);
    }
    drop(guard);
    let start = bench.time.now();
    drop(bench.drive(locking).await.unwrap());
    assert!(bench.time.now().since(start) <= ms(200));
}

#[tokio::test]
async fn rule_15_a_lease_that_ends_is_awaited_to_the_millisecond() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.mutex("x").ttl(ms(5000)).renew(false);
    let left = at_once(lock.lock()).await.unwrap().leave();
    let start = bench.time.now();
    let guard = bench
        .drive(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let took = bench.time.now().since(start);
    assert!(took >= ms(5000) && took <= ms(5002), "{took:?}");
    assert!(guard.fence() > left.fence());
}

#[tokio::test]
async fn rule_15_a_new_cluster_is_waited_for_if_the_wait_covers_it() {
    let bench = Bench::uninitialised(&[0; 3]);
    let locks = bench.client().await;
    let error = at_once(locks.mutex("x").wait(ms(30_000)).lock())
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::Quarantined { .. }), "{error}");
    let start = bench.time.now();
    let guard = bench
        .drive(locks.mutex("x").wait(ms(40_000)).lock())
        .await
        .unwrap();
    let took = bench.time.now().since(start);
    assert!(took >= ms(36_000) && took <= ms(37_000), "{took:?}");
    assert_eq!(bench.held_by("x", &guard), 3);
}

#[tokio::test]
async fn rule_15_without_a_limit_the_wait_covers_a_quarantine_and_says_so_once() {
    let bench = Bench::uninitialised(&[0; 3]);
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Quarantined { .. }), "{error}");
    assert!(error.to_string().contains("`ringfence init`"), "{error}");
    let error = at_once(locks.mutex("x").attempts(1).lock()).await;
    assert!(matches!(error, Err(AcquireError::Quarantined { .. })));
    assert!(log.warnings().is_empty(), "{:?}", log.warnings());
    let start = bench.time.now();
    let guard = bench.drive(locks.mutex("x").lock()).await.unwrap();
    let took = bench.time.now().since(start);
    assert!(took >= ms(36_000) && took <= ms(37_000), "{took:?}");
    assert_eq!(bench.held_by("x", &guard), 3);
    let warnings = log.warnings();
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    let words = "may vote in 37 s; for a new cluster run `ringfence init`";
    assert!(warning.contains(words), "{warning}");
}

#[tokio::test]
async fn rule_16_waiting_for_oneself_is_warned_of_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(
        locks
            .multi(["orders:41", "orders:42"])
            .label("checkout")
            .lock(),
    )
    .await
    .unwrap();
    let (log, _listening) = Log::listen();
    let lock = locks.mutex("orders:42").label("refund");
    let mut locking = pin!(lock.lock());
    for _ in 0..50 {
        assert!(waits(locking.as_mut()).await);
        bench.pass(ms(100)).await;
    }
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in [
        "orders:42",
        "held_by=checkout",
        "wanted_by=refund",
        "this task waits for a lock that it took itself",
    ] {
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
    drop(guard);
    drop(bench.drive(locking).await.unwrap());
    assert_eq!(log.warnings().len(), 1);
}

/// Tasks of one client that want the same lock are what a lock is for.
#[tokio::test]
async fn rule_16_contention_between_tasks_is_not_warned_of() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let jobs: Vec<_> = (0..20)
        .map(|job| {
            let lock = locks.mutex("x").label(&format!("job {job}"));
            let clock = ringfence::clock::Clock::Stepped(bench.time.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                clock.sleep_until(clock.now() + ms(1)).await;
                guard.release().await.unwrap();
            })
        })
        .collect();
    bench
        .drive(async {
            for job in jobs {
                job.await.unwrap();
            }
        })
        .await;
    assert_eq!(log.warnings(), Vec::<String>::new());
    // A task that waits for itself is warned.
    let lock = locks.mutex("x").wait(ms(500));
    let jammed = tokio::spawn(async move {
        let _first = lock.lock().await.unwrap();
        lock.lock().await.map(drop)
    });
    assert!(bench.drive(jammed).await.unwrap().is_err());
    assert_eq!(log.warnings().len(), 1, "{:?}", log.warnings());
}

#[tokio::test]
async fn rule_16_nobody_else_is_warned() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let (log, _listening) = Log::listen();
    let other = bench.client().await;
    let mutex = other.mutex("x").wait(ms(500));
    assert!(bench.drive(mutex.lock()).await.is_err(), "another client");
    assert!(
        at_once(locks.mutex("x").try_lock()).await.is_err(),
        "not waiting"
    );
    let free = at_once(locks.mutex("y").lock()).await.unwrap();
    at_once(free.release()).await.unwrap();
    drop(guard);
    idle().await;
    let _theirs = at_once(other.mutex("x").lock()).await.unwrap();
    let mutex = locks.mutex("x").wait(ms(500));
    assert!(
        bench.drive(mutex.lock()).await.is_err(),
        "no longer its own"
    );
    assert_eq!(log.warnings(), Vec::<String>::new());
}

/// The nodes have told who is the runner-up. When the holder before it is of the same client, nobody has
/// to wake it.
#[tokio::test]
async fn the_next_of_the_same_client_comes_with_the_release() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let (one, two) = (locks.mutex("x"), locks.mutex("x"));
    let (mut first, mut second) = (pin!(one.lock()), pin!(two.lock()));
    assert!(waits(first.as_mut()).await);
    assert!(waits(second.as_mut()).await);
    drop(guard);
    let guard = at_once(first).await.unwrap();
    bench.nodes.iter().for_each(|node| node.lose_wakes(true));
    bench.log_operations();
    drop(guard);
    drop(at_once(second).await.unwrap());
    assert_eq!(bench.count(acquires), [1; 3]);
}

/// What is kept from others is not free yet.
#[tokio::test]
async fn the_next_does_not_come_to_what_is_kept_from_it() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let one = locks.mutex("x").hold_at_least(ms(500));
    let two = locks.mutex("x");
    let (mut first, mut second) = (pin!(one.lock()), pin!(two.lock()));
    assert!(waits(first.as_mut()).await);
    assert!(waits(second.as_mut()).await);
    drop(guard);
    let guard = at_once(first).await.unwrap();
    bench.log_operations();
    drop(guard);
    assert!(waits(second.as_mut()).await);
    assert_eq!(bench.count(acquires), [0; 3]);
}
