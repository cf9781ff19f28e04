//! Whether a client can take locks: what `connect` and `ready` say, and what the log says of nodes
//! that go and come back.

use std::pin::pin;

use ringfence::ConnectError;
use ringfence::node::{CallError, Trouble, TroubleKind};
use tracing::Level;

use crate::rules::bench::{Bench, at_once, idle, ms, waits};
use crate::rules::log::Log;

fn failing(kind: TroubleKind, detail: &str) -> Option<CallError> {
    Some(CallError::NotSent(Trouble::new(kind, detail)))
}

#[tokio::test]
async fn a_node_that_goes_is_logged_once_and_once_when_it_is_back() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    bench.break_first(1);
    for _ in 0..5 {
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        at_once(guard.release()).await.unwrap();
        bench.pass(ms(100)).await;
    }
    let told = log.told(Level::INFO);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(log.warnings(), told);
    for part in ["the node does not vote: connection refused", "node=\"a\""] {
        assert!(told[0].contains(part), "{told:?}");
    }
    bench.mend();
    for _ in 0..5 {
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        at_once(guard.release()).await.unwrap();
    }
    let told = log.told(Level::INFO);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("the node is back and votes"), "{told:?}");
    assert!(told[1].contains("node=\"a\""), "{told:?}");
    assert_eq!(log.warnings().len(), 1);
}

#[tokio::test]
async fn a_hung_majority_is_logged_when_its_time_is_over() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    bench.nodes[0].hang(true);
    bench.nodes[2].hang(true);
    bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (line, node) in warnings.iter().zip(["a", "c"]) {
        assert!(line.contains("does not vote: no answer in time"), "{line}");
        assert!(line.contains(&format!("node=\"{node}\"")), "{line}");
    }
}

#[tokio::test]
async fn a_node_that_is_down_when_a_client_connects_is_logged() {
    let bench = Bench::new(3).await;
    bench.break_first(1);
    let (log, _listening) = Log::listen();
    let _locks = at_once(bench.client()).await;
    idle().await;
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("does not vote: connection refused"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_client_that_connects_without_a_majority_logs_it_at_once_and_ready_says_why() {
    let bench = Bench::new(3).await;
    bench.break_first(2);
    let (log, _listening) = Log::listen();
    let locks = at_once(bench.client()).await;
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let text = "connected without a majority of the nodes, so no lock can be taken until one \
                answers: a, b: connection refused; c: answers";
    assert!(warnings[0].contains(text), "{warnings:?}");
    let error = at_once(locks.ready_within(ms(0))).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoQuorum { .. }) && error.is_retryable());
    let mut ready = pin!(locks.ready());
    assert!(waits(ready.as_mut()).await, "until a majority answers");
    bench.mend();
    bench.drive(ready).await.unwrap();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(guard.release()).await.unwrap();
    assert_eq!(log.warnings().len(), 1, "{:?}", log.warnings());
    let back = log.told(Level::INFO).split_off(1);
    assert_eq!(back.len(), 3, "{back:?}");
}

#[tokio::test]
async fn ready_gives_up_after_fifteen_seconds_with_the_reason() {
    let bench = Bench::new(1).await;
    bench.break_first(1);
    let locks = at_once(bench.client()).await;
    let began = bench.time.now();
    let error = bench.drive(locks.ready()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no lock can be taken: a: connection refused"
    );
    let waited = bench.time.now().since(began);
    assert!(waited >= ms(15_000) && waited < ms(17_000), "{waited:?}");
}

#[tokio::test]
async fn ready_does_not_wait_for_a_quarantine_that_lasts_longer() {
    let bench = Bench::uninitialised(&[0; 3]);
    let locks = bench.client().await;
    let error = at_once(locks.ready()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Quarantined { .. }), "{error}");
    assert!(error.to_string().contains("`Builder::init`"), "{error}");
    bench.drive(locks.ready_within(ms(60_000))).await.unwrap();
    drop(at_once(locks.mutex("x").try_lock()).await.unwrap());
}

/// The first contact shows a mistake. A client that has reached its nodes goes on asking.
#[tokio::test]
async fn a_wrong_host_name_or_certificate_fails_the_first_connect_and_no_later_call() {
    for kind in [TroubleKind::NoSuchHost, TroubleKind::Tls] {
        let bench = Bench::new(1).await;
        let connected = bench.client().await;
        bench.nodes[0].fail_with(failing(kind, "no such host"));
        let error = bench.drive(bench.builder().connect()).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::Misconfigured { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("no such host"), "{error}");
        let lock = connected.mutex("x");
        let mut locking = pin!(lock.lock());
        assert!(waits(locking.as_mut()).await, "it may come back");
        bench.mend();
        drop(bench.drive(locking).await.unwrap());
    }
}

#[tokio::test]
async fn a_refused_password_is_tried_again_before_the_first_connect_fails() {
    let bench = Bench::new(1).await;
    bench.nodes[0].fail_with(failing(TroubleKind::Denied, "wrong password"));
    let mut connecting = pin!(bench.builder().connect());
    assert!(waits(connecting.as_mut()).await);
    bench.pass(ms(200)).await;
    assert!(waits(connecting.as_mut()).await);
    bench.mend();
    bench.drive(connecting).await.unwrap();
    // A setting that stays as it is needs no second question.
    bench.nodes[0].fail_with(failing(TroubleKind::Replica, "a replica"));
    at_once(bench.builder().connect()).await.unwrap_err();
}
