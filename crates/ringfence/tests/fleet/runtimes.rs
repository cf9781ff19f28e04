//! A client outlives the tokio runtime in which it was connected. It must grant nothing then, since
//! nothing would be renewed, and must keep no caller waiting.

use std::time::Duration;

use ringfence::{AcquireError, ConfigError, ConnectError, ExtendError, LatchError, Locks};

use ringfence::admin::InspectError;
use ringfence_testkit::{Flavor, Server, wait_until_async};
use tokio::runtime::{Builder, Runtime};

use crate::fleet::stage::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn is_refused(error: &AcquireError) -> bool {
    let gone = matches!(error, AcquireError::Invalid(ConfigError::RuntimeGone));
    gone && !error.is_retryable()
}

/// A caller waits for "held" when the tokio runtime ends; more callers come after that.
fn outlives_its_runtime(urls: &str) {
    let (first, second) = (runtime(), runtime());
    let locks = first.block_on(connect(urls));
    let held = second.block_on(locks.mutex("held").lock()).unwrap();
    let kept = second.block_on(locks.mutex("kept").lock()).unwrap();
    let waiting = second.spawn({
        let locks = locks.clone();
        async move { locks.mutex("held").lock().await.unwrap_err() }
    });
    second.block_on(wait_until_async(
        "one caller to wait",
        PATIENCE,
        async || locks.inspect("held").await.unwrap().waiting == 1,
    ));
    drop(first);
    second.block_on(async {
        let ends = async {
            let error = waiting.await.unwrap();
            assert!(is_refused(&error), "{urls}: {error}");
            for error in [
                locks.mutex("n").lock().await.unwrap_err(),
                locks.mutex("n").try_lock().await.unwrap_err(),
                locks.semaphore("s", 2).acquire().await.unwrap_err(),
                locks.plain_mutex("p").lock().await.unwrap_err(),
            ] {
                assert!(is_refused(&error), "{urls}: {error}");
                says(&error, ["runtime", "connect again"]);
            }
            let error = locks.latch("l", 1).arrive().await.unwrap_err();
            let gone = matches!(error, LatchError::Invalid(ConfigError::RuntimeGone));
            assert!(gone && !error.is_retryable(), "{urls}: {error}");
            let error = kept.extend(TTL).await.unwrap_err();
            let gone = matches!(error, ExtendError::Invalid(ConfigError::RuntimeGone));
            assert!(gone, "{urls}: {error}");
            let error = locks.inspect("n").await.unwrap_err();
            let gone = matches!(error, InspectError::Invalid(ConfigError::RuntimeGone));
            assert!(gone, "{urls}: {error}");
            // Whether or not the node can still be reached, no call may wait for ever.
            let _ = held.release().await;
            drop(kept);
            locks.close().await;
        };
        let ended = tokio::time::timeout(PATIENCE, ends).await;
        assert!(ended.is_ok(), "{urls}: a call waits for ever");
    });
}

#[test]
fn a_client_of_servers_grants_nothing_once_its_tokio_runtime_is_gone() {
    let server = Server::start(Flavor::Redis);
    outlives_its_runtime(&server.url());
}

#[test]
fn a_client_in_memory_grants_nothing_once_its_tokio_runtime_is_gone() {
    outlives_its_runtime("memory:runtimes");
}

#[cfg(feature = "sqlite")]
#[test]
fn a_client_of_a_file_grants_nothing_once_its_tokio_runtime_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    outlives_its_runtime(&format!("sqlite:{}", file.display()));
}

/// The other way round: a tokio runtime that uses a client may end before it.
#[test]
fn a_client_outlives_the_tokio_runtimes_that_use_it() {
    let first = runtime();
    let locks = first.block_on(Locks::connect("memory:users")).unwrap();
    let lock = locks.mutex("n").ttl(Duration::from_secs(1));
    let guard = runtime().block_on(lock.lock()).unwrap();
    let held = runtime().block_on(async {
        let from = guard.exact_deadline();
        wait_until_async("a renewal", PATIENCE, async || {
            guard.exact_deadline() > from
        })
        .await;
        guard.check()
    });
    assert_eq!(held, Ok(()));
}

/// Tokio panics where a driver is missing. A client says what to change instead.
#[test]
fn a_runtime_without_a_driver_is_an_error_and_no_panic() {
    let server = Server::start(Flavor::Redis);
    let connect = |runtime: Runtime, urls: &str| {
        let connected = runtime.block_on(async { builder(urls).connect().await.map(drop) });
        drop(runtime);
        connected
    };
    let mut without_time = Builder::new_current_thread();
    let mut without_io = Builder::new_current_thread();
    for (runtime, urls, missing) in [
        (without_time.enable_io(), server.url(), "enable_time"),
        (without_io.enable_time(), server.url(), "enable_io"),
        (
            &mut Builder::new_current_thread(),
            "memory:x".to_owned(),
            "enable_time",
        ),
    ] {
        let error = connect(runtime.build().unwrap(), &urls).unwrap_err();
        assert!(
            matches!(error, ConnectError::RuntimeWithout { .. }),
            "{error}"
        );
        says(&error, [missing, "enable_all"]);
    }
    // Nodes that need no socket need no driver for sockets.
    let mut with_time = Builder::new_current_thread();
    connect(with_time.enable_time().build().unwrap(), "memory:y").unwrap();
}
