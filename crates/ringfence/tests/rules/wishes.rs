//! What users of the API asked for, one behaviour per test.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use ringfence::admin::InspectError;
use ringfence::observe::{LeaderChange, Observer};
use ringfence::{AcquireError, ConfigError, ConnectError, HoldError, Locks, Lost, Owner};

use crate::rules::bench::{Bench, at_once, ms, poll_once, waits};

#[tokio::test]
async fn a_wait_can_go_back_to_no_limit() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    let lock = bench.client().await.mutex("x").wait(ms(100)).wait(None);
    let mut waiting = pin!(lock.lock());
    bench.pass(ms(1000)).await;
    assert!(waits(waiting.as_mut()).await, "no limit any more");
    at_once(guard.release()).await.unwrap();
    drop(bench.drive(waiting).await.unwrap());

    let latch = bench.client().await.latch("l", 1);
    let latch = latch.wait(ms(100)).wait(None);
    let mut waiting = pin!(latch.opened());
    assert!(waits(waiting.as_mut()).await);
    bench.pass(ms(1000)).await;
    assert!(waits(waiting.as_mut()).await);
}

#[tokio::test]
async fn a_client_is_closed_by_reference_and_says_so() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let clone = locks.clone();
    assert!(!locks.is_closed() && !clone.is_closed());
    at_once(locks.close()).await;
    assert!(locks.is_closed() && clone.is_closed());
    let error = at_once(clone.mutex("x").lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
    assert!(!error.is_retryable() && !error.is_held() && error.holder().is_none());
    at_once(locks.close()).await;
}

#[tokio::test]
async fn a_builder_can_be_cloned_to_make_two_clients_of_one_cluster() {
    let bench = Bench::new(3).await;
    let builder = bench.builder();
    let one = builder.clone().label("one").connect().await.unwrap();
    let other = builder.label("other").connect().await.unwrap();
    let _guard = at_once(one.mutex("x").lock()).await.unwrap();
    let error = at_once(other.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(error.holder().unwrap().label.as_deref(), Some("one"));
}

#[tokio::test]
async fn a_candidate_that_does_not_wait_is_refused_while_another_leads() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.labelled("one").await, bench.client().await);
    let lead = at_once(one.election("e").try_campaign()).await.unwrap();
    let error = at_once(other.election("e").try_campaign())
        .await
        .unwrap_err();
    assert!(error.is_held(), "{error}");
    assert_eq!(error.holder().unwrap().label.as_deref(), Some("one"));
    at_once(lead.resign()).await.unwrap();
    drop(at_once(other.election("e").try_campaign()).await.unwrap());
}

#[tokio::test]
async fn leader_is_what_a_majority_of_the_nodes_sees() {
    let bench = Bench::new(3).await;
    let (locks, asking) = (bench.labelled("one").await, bench.client().await);
    let election = asking.election("e");
    assert_eq!(at_once(election.leader()).await.unwrap(), None);
    let lead = at_once(locks.election("e").campaign()).await.unwrap();
    bench.break_first(1);
    let leader = at_once(election.leader()).await.unwrap().unwrap();
    assert_eq!((leader.label.as_str(), leader.term), ("one", lead.term()));
    bench.break_first(2);
    let error = at_once(election.leader()).await.unwrap_err();
    assert!(matches!(error, InspectError::NoQuorum { .. }), "{error}");
    assert!(error.is_retryable() && error.votes().unwrap().len() == 3);
    bench.mend();
    at_once(lead.resign()).await.unwrap();
    assert_eq!(at_once(election.leader()).await.unwrap(), None);
    assert!(matches!(
        at_once(asking.election("").leader()).await,
        Err(InspectError::Invalid(_))
    ));
}

#[tokio::test]
async fn lead_does_the_work_and_resigns() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let election = locks.election("e");
    let led = at_once(election.lead(async |lead| lead.term())).await;
    assert!(led.unwrap() > 0);
    assert_eq!(bench.holding("e"), 0);
    let lead = async |_: &ringfence::Leadership| std::future::pending::<()>().await;
    let mut leading = pin!(election.lead(lead));
    assert!(waits(leading.as_mut()).await);
    bench.break_first(3);
    let error = bench.drive(leading).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(Lost::Expired)), "{error}");
    assert!(error.clone().is_retryable());
}

/// The next item, by the interface of every stream.
async fn next_of(observer: &mut Observer) -> Option<LeaderChange> {
    poll_fn(|cx| Pin::new(&mut *observer).poll_next(cx)).await
}

#[tokio::test]
async fn an_observer_is_a_stream_that_reports_vacancies() {
    let bench = Bench::new(3).await;
    let (locks, watching) = (bench.client().await, bench.client().await);
    let mut observer = watching.election("e").observe().unwrap();
    let seen = at_once(next_of(&mut observer)).await;
    assert_eq!(seen, Some(LeaderChange::Vacant));
    let lead = at_once(locks.election("e").campaign()).await.unwrap();
    let seen = bench.drive(next_of(&mut observer)).await.unwrap();
    assert_eq!(seen.leader().unwrap().term, lead.term());
    // Dropping one wait for a change loses nothing.
    for _ in 0..3 {
        let mut next = pin!(observer.next());
        assert!(waits(next.as_mut()).await);
    }
    at_once(lead.resign()).await.unwrap();
    let seen = bench.drive(observer.next()).await;
    assert_eq!(seen, Some(LeaderChange::Vacant));
    {
        let mut next = pin!(observer.next());
        bench.pass(ms(2000)).await;
        assert!(waits(next.as_mut()).await, "a vacancy is reported once");
    }
    at_once(watching.close()).await;
    assert_eq!(bench.drive(observer.next()).await, None);
    assert_eq!(bench.drive(observer.next()).await, None);
}

#[tokio::test]
async fn an_observer_reports_nothing_while_too_few_nodes_answer() {
    let bench = Bench::new(3).await;
    let (locks, watching) = (bench.client().await, bench.client().await);
    let lead = at_once(locks.election("e").campaign()).await.unwrap();
    let mut observer = watching.election("e").observe().unwrap();
    at_once(observer.next_leader()).await.unwrap();
    // One node may still hold the lead, and two more cannot be asked.
    bench.break_first(2);
    let mut next = pin!(observer.next());
    for _ in 0..100 {
        bench.pass(ms(20)).await;
        assert!(poll_once(next.as_mut()).await.is_pending());
    }
    bench.mend();
    bench.pass(ms(1000)).await;
    assert_eq!(poll_once(next.as_mut()).await, Poll::Pending);
    drop(lead);
}

#[tokio::test]
async fn a_plain_lock_is_held_for_work() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.plain_mutex("p");
    let name = at_once(lock.hold(async |guard| guard.name().to_owned())).await;
    assert_eq!(name.unwrap(), "p");
    assert_eq!(bench.holding("p"), 0);
}

#[test]
fn every_kind_is_held_for_work_without_async() {
    let locks = ringfence::blocking::Locks::connect("memory:held-for-work").unwrap();
    let rw = locks.rw_lock("rw");
    let names = [
        locks.mutex("a").hold(|guard| guard.name().to_owned()),
        locks.plain_mutex("b").hold(|guard| guard.name().to_owned()),
        rw.hold_read(|guard| guard.name().to_owned()),
        rw.hold_write(|guard| guard.name().to_owned()),
        locks
            .semaphore("s", 1)
            .hold(|guard| guard.name().to_owned()),
        locks.election("e").lead(|lead| lead.name().to_owned()),
    ];
    assert_eq!(
        names.map(Result::unwrap),
        ["a", "b", "rw", "rw", "s", "e"],
        "each released what it took"
    );
    assert_eq!(locks.election("e").leader().unwrap(), None);
    drop(locks.election("e").try_campaign().unwrap());
    locks.close();
    assert!(locks.is_closed());
}

#[tokio::test]
async fn a_read_lock_is_reentrant_for_its_owner() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let owner = Owner::new();
    let lock = locks.rw_lock("x").owner(&owner);
    let outer = at_once(lock.read()).await.unwrap();
    let writer = other.rw_lock("x");
    let mut writing = pin!(writer.write());
    assert!(waits(writing.as_mut()).await);
    // Another reader would wait behind the writer, and the owner for ever.
    let inner = at_once(lock.read()).await.unwrap();
    assert_eq!(outer.fence(), inner.fence());
    let error = at_once(lock.write()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this owner cannot take `x`: it already holds or waits for `x (shared)`, and would wait for \
         itself; release that first, or take all the names together"
    );
    at_once(outer.release()).await.unwrap();
    assert!(waits(writing.as_mut()).await, "one share is left");
    at_once(inner.release()).await.unwrap();
    drop(bench.drive(writing).await.unwrap());
    let outer = at_once(lock.write()).await.unwrap();
    let inner = at_once(lock.write()).await.unwrap();
    assert_eq!(outer.fence(), inner.fence());
}

#[tokio::test]
async fn a_lost_reader_s_lock_delay_keeps_writers_out() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let lock = locks.rw_lock("x").ttl(ms(2000)).renew(false);
    let reader = at_once(lock.lock_delay(ms(3000)).read()).await.unwrap();
    bench.pass(ms(2100)).await;
    assert_eq!(reader.check(), Err(Lost::Expired));
    let error = at_once(other.rw_lock("x").try_write()).await.unwrap_err();
    assert!(error.is_held(), "{error}");
    bench.pass(ms(3000)).await;
    drop(at_once(other.rw_lock("x").try_write()).await.unwrap());
}

#[tokio::test]
async fn errors_are_typed_and_can_be_cloned() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let invalid = |error: AcquireError| match error {
        AcquireError::Invalid(error) => error,
        error => panic!("{error}"),
    };
    let permits = at_once(locks.semaphore("x", 0).acquire()).await;
    let expected = ConfigError::Permits {
        permits: 0,
        most: ringfence::Semaphore::PERMITS_MAX,
    };
    assert_eq!(invalid(permits.unwrap_err()), expected);
    let attempts = at_once(locks.mutex("x").attempts(0).lock()).await;
    assert_eq!(invalid(attempts.unwrap_err()), ConfigError::NoAttempts);
    let error = Locks::connect("nowhere://x").await.unwrap_err();
    let ConnectError::Config(ConfigError::Url(url)) = error.clone() else {
        panic!("{error}");
    };
    assert_eq!(url.to_string(), error.to_string());
    let error = bench.builder().drift(2.0, ms(1)).connect().await;
    let drift = ConfigError::Drift { fraction: 2.0 };
    assert!(matches!(error, Err(ConnectError::Config(error)) if error == drift));
}

/// What a call that must not be made inside a task panics with, and where.
fn panic_of(call: impl FnOnce() + Send + 'static) -> (String, u32) {
    use std::sync::{Arc, Mutex};
    let seen = Arc::new(Mutex::new(0));
    let line = Arc::clone(&seen);
    let thread = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == thread {
            *line.lock().unwrap() = info.location().unwrap().line();
        } else {
            before(info);
        }
    }));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_err();
    drop(std::panic::take_hook());
    let text = panicked.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panicked.downcast_ref::<&str>().map(|&text| text.to_owned()));
    let line = *seen.lock().unwrap();
    (text.unwrap(), line)
}

#[test]
fn a_blocking_call_inside_a_task_panics_with_our_text_at_the_caller_s_line() {
    let locks = ringfence::blocking::Locks::connect("memory:inside-a-task").unwrap();
    let lock = locks.mutex("x");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (within, allowed) = (lock.clone(), lock.clone());
    let (text, line) = runtime.block_on(async move { panic_of(move || drop(within.lock())) });
    assert!(text.contains("inside a tokio task"), "{text}");
    assert_eq!(line, line!() - 2);
    let connect = || drop(ringfence::blocking::Locks::connect("memory:"));
    let (text, _) = runtime.block_on(async move { panic_of(connect) });
    assert!(text.contains("`ringfence::Locks`"), "{text}");
    // Threads for blocking work may block, although a runtime is current there.
    let blocking = async move { tokio::task::spawn_blocking(move || allowed.lock().is_ok()).await };
    assert!(runtime.block_on(blocking).unwrap());
    let _current = runtime.enter();
    assert!(lock.lock().is_ok(), "a current runtime is no task");
}

#[tokio::test]
async fn the_defaults_of_a_client_count_unless_a_lock_sets_its_own() {
    let bench = Bench::new(3).await;
    let builder = bench.builder().label("defaults");
    let builder = builder.wait(ms(700)).no_quorum_after(ms(300));
    let builder = builder.max_hold(ms(30_000)).renew(false);
    let locks = builder.connect().await.unwrap();

    // Not renewed: it ends with its TTL.
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let began = bench.time.now();
    assert_eq!(bench.drive(guard.lost()).await, Lost::Expired);
    assert!(bench.time.now().since(began) < ms(11_000));
    drop(guard);
    // Renewed because the lock says so, until the bound of the client.
    let guard = at_once(locks.mutex("x").renew(true).lock()).await.unwrap();
    let began = bench.time.now();
    assert_eq!(bench.drive(guard.lost()).await, Lost::MaxHold);
    assert!(bench.time.now().since(began) >= ms(29_000));
    drop(guard);

    let _held = bench.lock_x().await;
    for (lock, wait) in [
        (locks.mutex("x"), ms(700)),
        (locks.mutex("x").wait(ms(100)), ms(100)),
    ] {
        let began = bench.time.now();
        let error = bench.drive(lock.lock()).await.unwrap_err();
        let waited = bench.time.now().since(began);
        assert!(error.is_held(), "{error}");
        assert!(waited >= wait && waited < wait + ms(200), "{waited:?}");
    }
    bench.break_first(2);
    let began = bench.time.now();
    let error = bench.drive(locks.mutex("y").lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    let waited = bench.time.now().since(began);
    assert!(waited >= ms(300) && waited < ms(650), "{waited:?}");

    let zero = bench.builder().max_hold(Duration::ZERO).connect().await;
    assert!(zero.unwrap_err().to_string().contains("max_hold"));
}
