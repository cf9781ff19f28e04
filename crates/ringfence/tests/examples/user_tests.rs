//! The samples of `docs/testing.md`, as a user would write them. A test compares the page with this
//! file, so that every sample has been run.

use std::sync::LazyLock;
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::NodeClock;
use ringfence::node::memory::MemoryNode;
use ringfence::{AcquireError, Builder, ConfigError, HoldError, Locks, Lost, blocking};

use crate::examples::document;

#[test]
fn the_samples_of_the_page_are_the_tests_of_this_file() {
    let here = include_str!("user_tests.rs");
    let page = document("docs/testing.md");
    let mut samples = page.split("```rust\n").skip(1).peekable();
    assert!(samples.peek().is_some());
    for rest in samples {
        let (sample, _) = rest.split_once("```\n").unwrap();
        assert!(here.contains(sample), "this sample was not run:\n{sample}");
    }
}

// The code under test.
async fn settle(locks: &Locks, order: u32) -> Result<u64, HoldError> {
    let lock = locks
        .mutex(format!("order:{order}"))
        .wait(Duration::from_millis(100));
    lock.hold(async |guard| guard.fence()).await
}

#[tokio::test]
async fn an_order_is_settled() {
    let locks = Locks::connect("memory:an_order_is_settled").await.unwrap();
    let first = settle(&locks, 42).await.unwrap();
    assert!(settle(&locks, 42).await.unwrap() > first);
}

#[tokio::test]
async fn an_order_that_another_client_holds_is_refused() {
    let locks = Locks::connect("memory:an_order_that_is_held")
        .await
        .unwrap();
    let other = Locks::connect("memory:an_order_that_is_held")
        .await
        .unwrap();
    let _held = other.mutex("order:42").label("other").lock().await.unwrap();
    let error = settle(&locks, 42).await.unwrap_err();
    assert!(
        matches!(error, HoldError::Acquire(AcquireError::Held { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn a_lock_that_is_not_renewed_ends_after_its_ttl() {
    let clock = SteppedClock::starting_at(Duration::from_secs(1000));
    let builder = Locks::builder()
        .nodes("memory:")
        .clock(Clock::Stepped(clock.clone()));
    let locks = builder.connect().await.unwrap();
    let lock = locks.mutex("job").ttl(Duration::from_secs(10));
    let guard = lock.clone().renew(false).lock().await.unwrap();

    clock.step(Duration::from_secs(9)); // takes no time
    assert_eq!(guard.check(), Ok(()));
    clock.step(Duration::from_secs(1));
    assert_eq!(guard.lost().await, Lost::Expired);
    clock.step(Duration::from_secs(1)); // the node lets go a little later than the holder
    assert!(lock.try_lock().await.unwrap().fence() > guard.fence());
}

/// Three nodes in this process, all on `clock`, and a client of them.
async fn three_nodes(clock: &SteppedClock) -> (Vec<MemoryNode>, Locks) {
    let stepped = || Clock::Stepped(clock.clone());
    let node = |name| MemoryNode::with_clock(name, NodeClock::following(stepped(), 1 << 50));
    let nodes: Vec<MemoryNode> = ["a", "b", "c"].map(node).into();
    let builder = || {
        nodes
            .iter()
            .cloned()
            .fold(Locks::builder(), Builder::node)
            .clock(stepped())
    };
    builder().init().await.unwrap();
    let locks = builder().connect().await.unwrap();
    (nodes, locks)
}

#[tokio::test]
async fn one_hung_node_does_no_harm_and_two_cost_the_lock() {
    let clock = SteppedClock::starting_at(Duration::from_secs(1000));
    let (nodes, locks) = three_nodes(&clock).await;
    nodes[0].hang(true);
    let guard = locks.mutex("job").lock().await.unwrap();

    nodes[1].hang(true);
    let work = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
    while !work.is_finished() {
        clock.step(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    assert_eq!(work.await.unwrap(), Err(Lost::Expired));
}

static LOCKS: LazyLock<blocking::Locks> =
    LazyLock::new(|| blocking::Locks::connect("memory:static").unwrap());

#[test]
fn a_static_client_serves_every_test() {
    let guard = LOCKS.mutex("job").lock().unwrap();
    assert!(guard.fence() > 0);
}

#[test]
fn an_async_client_does_not_outlive_its_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let locks = runtime().block_on(Locks::connect("memory:")).unwrap();
    let error = runtime().block_on(locks.mutex("job").lock()).unwrap_err();
    assert!(
        matches!(error, AcquireError::Invalid(ConfigError::RuntimeGone)),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_tries_every_minute_gets_the_lock_after_its_ttl() {
    let clock = SteppedClock::starting_at(Duration::from_secs(1000));
    let builder = Locks::builder()
        .nodes("memory:")
        .clock(Clock::Stepped(clock.clone()));
    let locks = builder.connect().await.unwrap();
    let lock = locks.mutex("job").ttl(Duration::from_secs(90));
    let _held = lock.clone().renew(false).lock().await.unwrap();

    let mut tries = 1;
    while lock.try_lock().await.is_err() {
        tries += 1;
        tokio::time::sleep(Duration::from_secs(60)).await; // tokio's clock: takes no time
        clock.step(Duration::from_secs(60)); // the clock of the locks
    }
    assert_eq!(tries, 3);
}
