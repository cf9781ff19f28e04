//! Rule 14: invalid requests and settings are refused before anything is sent.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{AcquireError, Builder, ConfigError, ConnectError, Lock, Locks};

use crate::rules::bench::{Bench, at_once, ms};
use crate::rules::delaying_node::DelayingNode;

/// Takes `lock`, which must be refused with `text` before anything is sent to the nodes.
async fn refused(bench: &Bench, lock: Lock, text: &str) {
    bench.log_operations();
    for error in [
        at_once(lock.lock()).await.map(drop).unwrap_err(),
        at_once(lock.try_lock()).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, AcquireError::Invalid(_)), "{error}");
        assert_eq!(error.to_string(), text);
        assert!(!error.is_retryable() && error.votes().is_none());
    }
    assert_eq!(bench.count(|_| true), vec![0; bench.nodes.len()], "{text}");
}

#[tokio::test]
async fn rule_14_bad_names_are_refused_before_anything_is_sent() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let reserved = "names that begin with `ringfence:` are kept for ringfence's own records";
    refused(&bench, locks.mutex(""), "a lock's name must not be empty").await;
    let long = "a lock's name may have 1024 bytes, this one has 1025";
    refused(&bench, locks.mutex("x".repeat(1025)), long).await;
    refused(&bench, locks.mutex("ringfence:x"), reserved).await;
    let none: [&str; 0] = [];
    let text = "a lock over several names needs at least one";
    refused(&bench, locks.multi(none), text).await;
    refused(
        &bench,
        locks.multi(["a", "b", "a"]),
        "the name `a` is given twice",
    )
    .await;
    let many = locks.multi((0..129).map(|i| i.to_string()));
    refused(&bench, many, "a lock may cover 128 names, this one has 129").await;
    for name in ["x".repeat(1024), "ringfence".into(), "\u{0}\u{7f}".into()] {
        drop(at_once(locks.mutex(&name).lock()).await.unwrap());
    }
    let most = locks.multi((0..128).map(|i| i.to_string()));
    drop(at_once(most.lock()).await.unwrap());
    let error = at_once(locks.inspect("")).await.unwrap_err();
    assert_eq!(error.to_string(), "a lock's name must not be empty");
}

#[tokio::test]
async fn rule_14_the_prefix_counts_as_part_of_the_name() {
    let bench = Bench::new(3).await;
    let locks = bench.builder().prefix("app:").connect().await.unwrap();
    let guard = at_once(locks.mutex("ringfence:x").lock()).await.unwrap();
    assert_eq!(bench.held_by("app:ringfence:x", &guard), 3);
    let long = "a lock's name may have 1024 bytes, this one has 1025";
    refused(&bench, locks.mutex("x".repeat(1021)), long).await;
    let locks = bench.builder().prefix("ring").connect().await.unwrap();
    let reserved = "names that begin with `ringfence:` are kept for ringfence's own records";
    refused(&bench, locks.mutex("fence:x"), reserved).await;
}

#[tokio::test]
async fn rule_14_bad_ttls_are_refused_before_anything_is_sent() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    for (ttl, text) in [
        (
            Duration::ZERO,
            "a ttl must be at least 50ms, this one is 0ns",
        ),
        (ms(1), "a ttl must be at least 50ms, this one is 1ms"),
        (
            Duration::from_micros(49_999),
            "a ttl must be at least 50ms, this one is 49ms",
        ),
    ] {
        refused(&bench, locks.mutex("x").ttl(ttl), text).await;
    }
    assert_eq!(locks.longest_ttl(), ms(30_000));
    let long = "the longest ttl of these nodes is 30s, this one is 30.001s; a node of a quorum that \
                restarts, or a replica that is promoted, must stay out until every lock that it may \
                have forgotten has ended, so a longer ttl needs a longer quarantine on all clients";
    refused(&bench, locks.mutex("x").ttl(ms(30_001)), long).await;
    for ttl in [Duration::from_secs(u64::MAX), Duration::MAX] {
        let error = at_once(locks.mutex("x").ttl(ttl).lock()).await.unwrap_err();
        let AcquireError::Invalid(error) = error else {
            panic!("{error}")
        };
        assert!(matches!(error, ConfigError::TtlTooLong { .. }), "{error}");
    }
    for ttl in [ms(50), ms(30_000)] {
        let guard = at_once(locks.mutex("x").ttl(ttl).lock()).await.unwrap();
        assert!(guard.remaining() < ttl && guard.remaining() > ttl * 9 / 10);
        for bad in [Duration::ZERO, ms(49), ms(30_001), Duration::MAX] {
            bench.log_operations();
            let error = at_once(guard.extend(bad)).await.unwrap_err();
            assert!(
                matches!(error, ringfence::ExtendError::Invalid(_)),
                "{error}"
            );
            assert_eq!(bench.count(|_| true), [0; 3]);
        }
    }
}

#[tokio::test]
async fn rule_14_a_single_node_allows_ttls_of_up_to_a_year() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let year = Duration::from_secs(365 * 24 * 3600);
    assert_eq!(locks.longest_ttl(), year);
    let guard = at_once(locks.mutex("x").ttl(year).lock()).await.unwrap();
    assert!(guard.remaining() > year / 2);
    bench.log_operations();
    let error = at_once(locks.mutex("y").ttl(year + ms(1)).lock())
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        AcquireError::Invalid(ConfigError::TtlTooLong { .. })
    ));
    assert!(
        !error.to_string().contains("quarantine"),
        "a single node has no quarantine: {error}"
    );
    assert_eq!(bench.count(|_| true), [0]);
}

#[tokio::test]
async fn rule_14_bad_lock_options_are_refused_before_anything_is_sent() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = || locks.mutex("x").ttl(ms(1000));
    let text = "min_validity 988ms cannot be met with a ttl of 1s";
    refused(&bench, lock().min_validity(ms(988)), text).await;
    let text = format!(
        "min_validity {:?} cannot be met with a ttl of 1s",
        Duration::MAX
    );
    refused(&bench, lock().min_validity(Duration::MAX), &text).await;
    refused(&bench, lock().attempts(0), "attempts must be at least 1").await;
    let text = "max_hold must not be zero";
    refused(&bench, lock().max_hold(Duration::ZERO), text).await;
    let text = "a label may have 128 bytes, this one has 129";
    refused(&bench, lock().label(&"l".repeat(129)), text).await;
    let fine = lock()
        .min_validity(ms(987))
        .attempts(1)
        .label(&"l".repeat(128));
    drop(at_once(fine.max_hold(ms(987)).lock()).await.unwrap());
    let fine = lock()
        .wait(Duration::MAX)
        .no_quorum_after(Duration::MAX)
        .max_hold(Duration::MAX);
    drop(at_once(fine.lock()).await.unwrap());
    let fine = lock()
        .min_validity(Duration::ZERO)
        .no_quorum_after(Duration::ZERO);
    drop(at_once(fine.lock()).await.unwrap());
}

type Set = fn(Builder) -> Builder;

/// Settings that are invalid, each with the text of the error.
fn bad_settings() -> [(Set, &'static str); 12] {
    [
        (
            |b| b.ttl(Duration::ZERO),
            "a ttl must be at least 50ms, this one is 0ns",
        ),
        (
            |b| b.ttl(ms(1)),
            "a ttl must be at least 50ms, this one is 1ms",
        ),
        (
            |b| b.node_timeout(Duration::ZERO),
            "the node timeout must not be zero",
        ),
        (
            |b| b.drift(0.3, ms(0)),
            "the drift must be a fraction between 0 and 0.25, not 0.3",
        ),
        (
            |b| b.drift(f64::NAN, ms(0)),
            "the drift must be a fraction between 0 and 0.25, not NaN",
        ),
        (
            |b| b.window(ms(99)),
            "the window must be between 100 ms and 1 h, not 99ms",
        ),
        (
            |b| b.window(ms(3_600_001)),
            "the window must be between 100 ms and 1 h, not 3600.001s",
        ),
        (
            |b| b.quarantine(ms(14_999)),
            "with a window of 5s the quarantine must be at least 15s, not 14.999s",
        ),
        (
            |b| b.prefix(&"p".repeat(1024)),
            "the prefix leaves no room for names",
        ),
        (
            |b| b.prefix("ringfence:"),
            "names that begin with `ringfence:` are kept for ringfence's own records",
        ),
        (
            |b| b.label(&"l".repeat(129)),
            "a label may have 128 bytes, this one has 129",
        ),
        (
            |b| b.nodes("memory:"),
            "`memory:` cannot be one of several nodes: only this machine can reach it",
        ),
    ]
}

#[tokio::test]
async fn rule_14_bad_settings_are_refused_before_anything_is_sent() {
    let bench = Bench::new(2).await;
    let node = DelayingNode::before(&bench.nodes[0]);
    for (set, text) in bad_settings() {
        let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
        let error = at_once(set(builder.node(node.clone())).connect())
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Config(_)), "{error}");
        assert_eq!(error.to_string(), text);
        assert_eq!(node.calls(), 0, "{text}");
    }
}

#[tokio::test]
async fn rule_14_a_drift_longer_than_every_ttl_is_refused() {
    let bench = Bench::new(1).await;
    let builder = bench.builder().drift(0.0, Duration::from_secs(3600));
    let error = at_once(builder.connect()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a ttl must be at least 7200s, this one is 10s"
    );
    let builder = bench.builder().drift(0.25, Duration::MAX);
    assert!(at_once(builder.connect()).await.is_err(), "no overflow");
}

#[tokio::test]
async fn rule_14_no_node_and_the_same_node_twice_are_refused() {
    let error = at_once(Locks::builder().connect()).await.unwrap_err();
    let text = "no node given; `redis://HOST:PORT` or `sqlite:PATH` is one";
    assert_eq!(error.to_string(), text);
    let bench = Bench::uninitialised(&[0, 0]);
    let twice = bench.builder().node(bench.nodes[1].clone());
    let error = at_once(twice.connect()).await.unwrap_err();
    let text = "b and b are the same server; every node must be a server of its own";
    assert_eq!(error.to_string(), text);
    assert!(matches!(error, ConnectError::Config(_)));
}

#[test]
fn rule_14_connecting_without_a_tokio_runtime_is_an_error() {
    let mut connecting = std::pin::pin!(Locks::connect("memory:no-runtime"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(outcome) = connecting.as_mut().poll(&mut cx) else {
        panic!("connecting should fail without waiting");
    };
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "a client needs a tokio runtime; without one use `ringfence::blocking`"
    );
}
