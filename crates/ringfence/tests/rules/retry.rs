//! Rules 15 and 16: how long a caller waits, how often it retries, and what it is warned of.

use std::pin::pin;
use std::time::Duration;

use ringfence::{AcquireError, Lock};
use ringfence_core::message::Op;
use tracing::Level;

use crate::rules::bench::{Bench, at_once, idle, ms, waits};
use crate::rules::log::Log;

fn acquires(op: &Op) -> bool {
    matches!(op, Op::Acquire { .. })
}

/// The error of a held or unreachable lock, how long it took, and how many acquires node `c` got.
async fn refused(bench: &Bench, lock: Lock) -> (AcquireError, Duration, usize) {
    bench.log_operations();
    let start = bench.time.now();
    let error = bench.drive(lock.lock()).await.map(drop).unwrap_err();
    let took = bench.time.now().since(start);
    (error, took, bench.count(acquires)[2])
}

#[tokio::test]
async fn rule_15_wait_limits_the_retries() {
    let bench = Bench::new(3).await;
    let _guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    for wait in [1, 100, 3000] {
        let (error, took, acquired) = refused(&bench, locks.mutex("x").wait(ms(wait))).await;
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        assert!(
            took >= ms(wait) && took <= ms(wait + 20),
            "{took:?} of {wait} ms"
        );
        assert!(acquired >= 2, "one more attempt at the end of {wait} ms");
        // The pauses grow to 100 to 200 ms.
        assert!(
            acquired as u64 <= 10 + wait / 100,
            "{acquired} times in {wait} ms"
        );
    }
    let (_, took, acquired) = refused(&bench, locks.mutex("x").wait(Duration::ZERO)).await;
    assert_eq!((took, acquired), (Duration::ZERO, 1));
}

#[tokio::test]
async fn rule_15_attempts_limits_the_retries() {
    let bench = Bench::new(3).await;
    let _guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    for attempts in [1, 2, 7] {
        let (error, _, acquired) = refused(&bench, locks.mutex("x").attempts(attempts)).await;
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
        assert_eq!(acquired, attempts as usize);
    }
    bench.break_first(2);
    for attempts in [1, 2, 5] {
        let (error, _, acquired) = refused(&bench, locks.mutex("y").attempts(attempts)).await;
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert_eq!(acquired, attempts as usize);
    }
}

#[tokio::test]
async fn rule_15_without_a_majority_a_call_ends_before_its_wait_limit() {
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
        let (error, took, acquired) = refused(&bench, lock).await;
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert!(
            took >= ms(expected) && took <= ms(expected + 20),
            "{took:?}, not {expected} ms"
        );
        assert!(
            acquired <= 10 + expected as usize / 500,
            "does not retry too often: {acquired} times"
        );
    }
    let start = bench.time.now();
    assert!(bench.drive(mutex().try_lock()).await.is_err());
    assert!(bench.time.now().since(start) <= ms(1000));
}

#[tokio::test]
async fn rule_15_a_call_succeeds_if_a_majority_returns_in_time() {
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
async fn rule_15_waiting_for_a_holder_does_not_end_with_the_outage_limit() {
    // The limit of 15 s is for outages. Waiting for a holder has no limit.
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
async fn rule_15_an_expiring_lock_is_acquired_within_milliseconds_of_its_end() {
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
async fn rule_15_a_call_waits_for_a_quarantine_that_ends_within_its_wait_limit() {
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
async fn rule_15_a_call_without_a_limit_waits_for_a_quarantine_and_warns_once() {
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

/// Only this is certain: the lock is not released before its work has ended.
#[tokio::test]
async fn rule_16_work_that_waits_for_its_own_lock_is_warned_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let outer = locks.multi(["orders:41", "orders:42"]).label("checkout");
    let inner = locks.mutex("orders:42").label("refund").wait(ms(5_000));
    let work = outer.hold(async |_| inner.lock().await.map(drop));
    assert!(bench.drive(work).await.unwrap().is_err());
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in [
        "orders:42",
        "held_by=checkout",
        "wanted_by=refund",
        "the work under a lock waits for the same lock",
        "it waits until max_hold ends it in 3600 s",
        "use the guard that the work has",
    ] {
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
    let guard = at_once(outer.lock()).await.unwrap();
    let waiting = guard.run(inner.lock());
    assert!(bench.drive(waiting).await.unwrap().is_err());
    assert_eq!(log.warnings().len(), 2, "{:?}", log.warnings());
    drop(guard);
    drop(bench.drive(inner.lock()).await.unwrap());
    assert_eq!(log.warnings().len(), 2, "the work is over");
}

/// Other futures of the task may release it, so nothing is claimed, and nothing is said at once.
#[tokio::test]
async fn rule_16_of_a_task_that_waits_for_its_own_lock_for_a_ttl_the_log_tells_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").label("checkout").lock()).await;
    let guard = guard.unwrap();
    let (log, _listening) = Log::listen();
    let lock = locks.mutex("x").label("refund");
    let mut locking = pin!(lock.lock());
    assert!(waits(locking.as_mut()).await);
    let told = || log.told(Level::INFO);
    for _ in 0..80 {
        assert!(waits(locking.as_mut()).await);
        bench.pass(ms(100)).await;
    }
    assert_eq!(told(), Vec::<String>::new(), "8 s of normal contention");
    for _ in 0..250 {
        assert!(waits(locking.as_mut()).await);
        bench.pass(ms(100)).await;
    }
    assert_eq!(log.warnings(), Vec::<String>::new());
    assert_eq!(told().len(), 1, "{:?}", told());
    for part in [
        "held_by=checkout",
        "wanted_by=refund",
        "the same task took and still holds",
        "if no other future of this task releases it, the wait lasts until max_hold ends it in 35",
    ] {
        assert!(told()[0].contains(part), "{:?}", told());
    }
    drop(guard);
    drop(bench.drive(locking).await.unwrap());
    assert_eq!(told().len(), 1);
}

/// Futures of one task that take turns exclude each other, and a common owner would end that.
#[tokio::test]
async fn rule_16_contention_between_futures_of_one_task_logs_nothing() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let clock = ringfence::clock::Clock::Stepped(bench.time.clone());
    let (log, _listening) = Log::listen();
    let job = async || {
        let guard = locks.mutex("x").lock().await.unwrap();
        clock.sleep_until(clock.now() + ms(3_000)).await;
        guard.release().await.unwrap();
    };
    let all = async { tokio::join!(job(), job(), job(), job(), job()) };
    bench.drive(all).await;
    assert_eq!(log.told(Level::INFO), Vec::<String>::new());
}

/// Tasks of one client that wait for the same lock are normal contention.
#[tokio::test]
async fn rule_16_contention_between_tasks_logs_no_warning() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let jobs: Vec<_> = (0..20)
        .map(|job| {
            let lock = locks.mutex("x").label(&format!("job {job}"));
            let clock = ringfence::clock::Clock::Stepped(bench.time.clone());
            tokio::spawn(async move {
                let guard = lock.lock().await.unwrap();
                // The first for longer than a TTL.
                let span = if job == 0 { ms(12_000) } else { ms(1) };
                clock.sleep_until(clock.now() + span).await;
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
    assert_eq!(log.told(Level::INFO), Vec::<String>::new());
}

#[tokio::test]
async fn rule_16_waiting_for_another_client_logs_no_warning() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let (log, _listening) = Log::listen();
    let other = bench.client().await;
    let mutex = other.mutex("x").wait(ms(500));
    assert!(bench.drive(mutex.lock()).await.is_err(), "another client");
    assert!(
        at_once(locks.mutex("x").try_lock()).await.is_err(),
        "does not wait"
    );
    let free = at_once(locks.mutex("y").lock()).await.unwrap();
    at_once(free.release()).await.unwrap();
    drop(guard);
    idle().await;
    let _theirs = at_once(other.mutex("x").lock()).await.unwrap();
    let mutex = locks.mutex("x").wait(ms(500));
    assert!(
        bench.drive(mutex.lock()).await.is_err(),
        "the lock is no longer its own"
    );
    assert_eq!(log.warnings(), Vec::<String>::new());
}

/// The nodes have reported the runner-up in the queue. If it belongs to the same client as the
/// holder before it, the client wakes it without a wake from a node.
#[tokio::test]
async fn a_release_starts_the_next_waiter_of_the_same_client_without_a_wake() {
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

/// A kept lock is not free yet.
#[tokio::test]
async fn a_release_does_not_start_the_next_waiter_while_the_lock_is_kept() {
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
