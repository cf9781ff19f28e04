//! What `tracing` reports of a lock: one event for each loss, release and refusal.

use ringfence::{AcquireError, Lost};
use tracing::Level;

use crate::rules::bench::{Bench, at_once, ms};
use crate::rules::log::{Log, LoggedEvent};

/// The events whose text contains `words`.
fn logged(log: &Log, words: &str) -> Vec<LoggedEvent> {
    let events = log.events().into_iter();
    events.filter(|event| event.line.contains(words)).collect()
}

/// The only event whose text contains `words`. It names the lock, and its target is the library.
#[track_caller]
fn only(log: &Log, words: &str) -> LoggedEvent {
    let found = logged(log, words);
    let [event] = &found[..] else {
        panic!("{words}: {found:?}");
    };
    assert_eq!(event.target, "ringfence");
    assert!(event.line.contains("orders:42"), "{event:?}");
    event.clone()
}

#[tokio::test]
async fn an_expired_lock_is_logged_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let lock = locks.mutex("orders:42").renew(false);
    let guard = at_once(lock.lock()).await.unwrap();
    bench.pass(ms(10_000)).await;
    assert_eq!(guard.check(), Err(Lost::Expired));
    assert_eq!(at_once(guard.lost()).await, Lost::Expired);
    let event = only(&log, "lock lost");
    assert_eq!(event.level, Level::WARN);
    assert!(event.line.contains("expired"), "{event:?}");
    let fence = guard.fence().to_string();
    assert!(event.line.contains(&fence), "{event:?}");
    let (id, secret) = guard.token().expose().split_once('.').unwrap();
    assert!(event.line.contains(id), "{event:?}");
    drop(guard.token().clone());
    assert!(log.lines().iter().all(|line| !line.contains(secret)));
    drop(guard);
    assert_eq!(logged(&log, "lock lost").len(), 1);
}

#[tokio::test]
async fn the_end_of_max_hold_is_logged() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let lock = locks.mutex("orders:42").max_hold(ms(20_000));
    let guard = at_once(lock.lock()).await.unwrap();
    bench.pass(ms(20_000)).await;
    assert_eq!(guard.check(), Err(Lost::MaxHold));
    let event = only(&log, "lock lost");
    assert_eq!(event.level, Level::WARN);
    assert!(event.line.contains("max_hold"), "{event:?}");
}

#[tokio::test]
async fn a_loss_that_the_nodes_prove_is_logged_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let guard = at_once(locks.mutex("orders:42").lock()).await.unwrap();
    for node in 0..3 {
        bench.delete(node, "orders:42", guard.token());
    }
    bench.pass(ms(10_000)).await;
    assert_eq!(guard.check(), Err(Lost::Gone));
    assert_eq!(only(&log, "lock lost").level, Level::WARN);
}

#[tokio::test]
async fn releases_and_refusals_are_logged() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let guard = at_once(locks.mutex("orders:42").lock()).await.unwrap();
    let fence = guard.fence().to_string();
    let refused = at_once(locks.mutex("orders:42").try_lock()).await;
    assert!(matches!(refused, Err(AcquireError::Held { .. })));
    let event = only(&log, "lock refused");
    assert_eq!(event.level, Level::DEBUG);
    assert!(event.line.contains("held by job"), "{event:?}");
    at_once(guard.release()).await.unwrap();
    let event = only(&log, "lock released");
    assert_eq!(event.level, Level::DEBUG);
    assert!(event.line.contains(&fence), "{event:?}");
    drop(at_once(locks.mutex("orders:42").lock()).await.unwrap());
    assert_eq!(logged(&log, "lock released").len(), 2, "dropped guards too");
    assert!(logged(&log, "lock lost").is_empty(), "a release is no loss");
}

#[tokio::test]
async fn every_event_has_the_library_as_its_target() {
    let bench = Bench::new(3).await;
    let (log, _listening) = Log::listen();
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("orders:42").lock()).await.unwrap();
    bench.break_first(2);
    bench.pass(ms(20_000)).await;
    assert!(guard.check().is_err());
    let events = log.events();
    assert!(events.len() > 3, "{events:?}");
    let other: Vec<LoggedEvent> = events
        .into_iter()
        .filter(|event| event.target != "ringfence")
        .collect();
    assert!(other.is_empty(), "{other:?}");
}

#[tokio::test]
async fn a_grant_is_a_span_with_a_child_for_each_node() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let guard = at_once(locks.mutex("orders:42").lock()).await.unwrap();
    let spans = log.spans();
    let acquire = spans.iter().position(|span| span.name == "lock acquire");
    let acquire = acquire.expect("a span for the call");
    assert_eq!(spans[acquire].parent, None);
    let calls = spans.iter().filter(|span| span.name == "node call");
    let parents: Vec<_> = calls.clone().map(|span| span.parent).collect();
    assert_eq!(parents, [Some(acquire); 3]);
    for call in calls {
        assert!(
            call.fields.contains("db.operation.name=\"acquire\""),
            "{call:?}"
        );
        assert!(
            call.fields.contains("ringfence.answer=\"granted\""),
            "{call:?}"
        );
        assert!(!call.fields.contains("error.type"), "{call:?}");
    }
    let named = spans.iter().find(|span| span.fields.contains("orders"));
    assert!(named.is_none(), "no names unless asked: {named:?}");
    drop(guard);
}

#[tokio::test]
async fn a_span_has_the_name_of_the_lock_if_asked() {
    let bench = Bench::new(3).await;
    let builder = bench.builder().trace_names(true);
    let locks = builder.connect().await.expect("a client");
    let (log, _listening) = Log::listen();
    drop(at_once(locks.mutex("orders:42").lock()).await.unwrap());
    let spans = log.spans();
    let named = spans
        .iter()
        .filter(|span| span.fields.contains("orders:42"));
    let named: Vec<_> = named.map(|span| span.name).collect();
    assert_eq!(named, ["lock acquire"]);
}

#[tokio::test]
async fn the_span_of_a_call_that_failed_says_why() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.break_first(1);
    let (log, _listening) = Log::listen();
    drop(at_once(locks.mutex("orders:42").lock()).await.unwrap());
    let spans = log.spans();
    let failed = spans
        .iter()
        .filter(|span| span.fields.contains("error.type=Unreachable"));
    assert_eq!(failed.count(), 1, "{spans:?}");
}
