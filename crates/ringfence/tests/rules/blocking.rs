//! The API without async: the same rules, from ordinary threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::blocking::Locks;
use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::NodeClock;
use ringfence::node::memory::MemoryNode;
use ringfence::receipt::ReleaseReceiptError;
use ringfence::{AcquireError, HoldError, LatchError, Lost, ReleaseError};

use crate::rules::bench::{ms, unreachable};
use crate::rules::log::Log;

/// A client of one node, on a clock that only the test moves.
fn stepped() -> (Locks, MemoryNode, SteppedClock) {
    let time = SteppedClock::starting_at(Duration::from_secs(1000));
    let clock = Clock::Stepped(time.clone());
    let node = MemoryNode::with_clock(
        "m",
        NodeClock::following(clock.clone(), 1_700_000_000_000_000),
    );
    let builder = Locks::builder().clock(clock).node(node.clone());
    (Locks::build(builder).unwrap(), node, time)
}

fn is_free(node: &MemoryNode) -> bool {
    node.entries().iter().all(|(_, entry)| entry.key.is_none())
}

/// Waits for something that a thread of the library does. The limit allows for a slow machine.
fn eventually(what: &str, done: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        std::thread::park_timeout(ms(1));
    }
    panic!("never happened: {what}");
}

#[test]
fn blocking_lock_extend_and_release() {
    let (locks, node, time) = stepped();
    let guard = locks.mutex("x").label("me").lock().unwrap();
    assert_eq!((guard.check(), guard.name()), (Ok(()), "x"));
    assert_eq!(guard.remaining(), ms(9898));
    let error = locks.mutex("x").try_lock().unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    let error = locks.mutex("x").attempts(1).lock().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`x` is held by me; lease ends in 10.0 s unless renewed"),
        "{error}"
    );
    guard.extend(ms(20_000)).unwrap();
    assert_eq!(guard.remaining(), ms(19_798));
    let seen = locks.inspect("x").unwrap();
    assert_eq!((seen.is_held(), seen.fence), (true, Some(guard.fence())));
    assert_eq!(seen.durability, Some(guard.durability()));
    assert_eq!(locks.nodes().len(), 1);
    let fence = guard.fence();
    guard.release().unwrap();
    assert!(is_free(&node));
    let again = locks.multi(["x", "y"]).renew(false).lock().unwrap();
    assert!(again.fence() > fence);
    time.step(ms(10_001));
    assert_eq!(again.lost(), Lost::Expired);
    assert_eq!(again.release(), Err(ReleaseError::Expired));
    assert!(locks.mutex("").lock().is_err());
}

#[test]
fn blocking_guards_are_renewed_and_report_their_loss() {
    let (locks, node, time) = stepped();
    let guard = locks.mutex("x").ttl(ms(9000)).lock().unwrap();
    let deadline = guard.exact_deadline();
    time.step(ms(3000));
    eventually("a renewal", || guard.exact_deadline() > deadline);
    node.fail_with(Some(unreachable()));
    time.step(ms(9000));
    assert_eq!(guard.lost(), Lost::Expired);
    node.fail_with(None);
    drop(guard);
    assert!(is_free(&node), "the release is done before drop returns");
}

#[test]
fn blocking_hold_is_lost_if_the_work_ends_after_the_deadline() {
    let (locks, node, time) = stepped();
    let fence = locks.mutex("x").hold(|guard| guard.fence()).unwrap();
    assert!(fence > 0 && is_free(&node));
    let lock = locks.mutex("x").renew(false);
    let late = lock.hold(|_| time.step(ms(9898)));
    assert!(
        matches!(late, Err(HoldError::Lost(Lost::Expired))),
        "{late:?}"
    );
    time.step(ms(1000));
    let late = lock.hold_to_end(|guard| {
        time.step(ms(9898));
        guard.check()
    });
    let late = late.unwrap();
    assert_eq!(
        (late.output, late.lost),
        (Err(Lost::Expired), Some(Lost::Expired))
    );
}

#[test]
fn blocking_receipts_and_plain_locks_are_extended_and_released() {
    let (locks, node, _time) = stepped();
    let receipt = locks.mutex("x").lock().unwrap().leave();
    assert!(!is_free(&node));
    let valid = locks
        .mutex("x")
        .extend_receipt(&receipt, ms(20_000))
        .unwrap();
    assert_eq!(valid, ms(19_798));
    locks.mutex("x").release_receipt(&receipt).unwrap();
    let again = locks.mutex("x").release_receipt(&receipt);
    assert!(matches!(
        again,
        Err(ReleaseReceiptError::Release(ReleaseError::Expired))
    ));
    let plain = locks.plain_mutex("x").lock().unwrap();
    assert!(locks.mutex("x").try_lock().is_err());
    assert!(locks.plain_mutex("x").try_lock().is_err());
    plain.extend(ms(20_000)).unwrap();
    assert_eq!(plain.remaining(), ms(19_798));
    plain.release().unwrap();
    assert!(is_free(&node));
}

#[test]
fn blocking_threads_exclude_each_other() {
    let node = MemoryNode::new("m");
    let inside = AtomicUsize::new(0);
    let fences = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let locks = Locks::build(Locks::builder().node(node.clone())).unwrap();
                for _ in 0..10 {
                    let guard = locks
                        .mutex("x")
                        .wait(Duration::from_secs(60))
                        .lock()
                        .unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    fences.lock().unwrap().push(guard.fence());
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    let fences = fences.into_inner().unwrap();
    assert_eq!(fences.len(), 40);
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn blocking_close_waits_until_the_ttl_is_over_if_no_node_answers() {
    let (locks, node, time) = stepped();
    let guard = locks.mutex("x").lock().unwrap();
    node.fail_with(Some(unreachable()));
    let start = time.now();
    drop(guard);
    let closing = std::thread::spawn(move || locks.close());
    // No node receives the release, so `close` waits for the whole TTL, however fast that passes.
    eventually("the end of the TTL", || {
        time.step(ms(100));
        closing.is_finished()
    });
    closing.join().unwrap();
    assert!(time.now().since(start) > ms(8000));
}

#[tokio::test]
async fn blocking_handles_may_be_dropped_inside_an_async_task() {
    let (locks, node, guard) = tokio::task::spawn_blocking(|| {
        let (locks, node, _) = stepped();
        let guard = locks.mutex("x").lock().unwrap();
        (locks, node, guard)
    })
    .await
    .unwrap();
    drop(locks);
    assert_eq!(guard.check(), Ok(()), "the guard keeps the client alive");
    // The last handle owns a whole tokio runtime, which must not be dropped inside an async task.
    drop(guard);
    assert!(is_free(&node));
}

#[test]
fn blocking_semaphore_grants_and_releases_its_permits() {
    let (locks, node, _time) = stepped();
    let semaphore = locks.semaphore("s", 2).label("me").ttl(ms(5000));
    let one = semaphore.acquire().unwrap();
    let two = semaphore.try_acquire().unwrap();
    assert_eq!((one.slot(), two.slot(), one.name()), (0, 1, "s"));
    assert_eq!((one.check(), two.fence() > 0), (Ok(()), true));
    one.extend(ms(8000)).unwrap();
    assert_eq!(one.remaining(), ms(7918));
    let error = semaphore.try_acquire().unwrap_err();
    assert!(matches!(error, AcquireError::Full { .. }), "{error}");
    one.release().unwrap();
    drop(two);
    let name = ringfence_core::name::Name::new("", "s").unwrap();
    eventually("both permits are released", || {
        (0..2).all(|slot| node.entry(&name.slot(slot)).key.is_none())
    });
    drop(locks);
}

#[test]
fn blocking_latch_opens_when_the_last_party_has_arrived() {
    let locks = Locks::connect("memory:").unwrap();
    let waiting = {
        let latch = locks.latch("x", 2).ttl(ms(60_000));
        std::thread::spawn(move || latch.opened())
    };
    let first = locks.latch("x", 2).party("a").arrive().unwrap();
    assert_eq!((first.arrived, first.missing), (1, 1));
    let error = locks.latch("x", 2).wait(ms(0)).opened().unwrap_err();
    assert!(
        matches!(error, LatchError::Shut { arrived: 1, .. }),
        "{error}"
    );
    let latch = locks.latch("x", 2).no_quorum_after(ms(100));
    assert!(latch.arrive().unwrap().is_open());
    waiting.join().unwrap().unwrap();
}

#[test]
fn work_that_waits_for_its_own_lock_is_warned() {
    let locks = Locks::connect("memory:own-lock").unwrap();
    let (log, _listening) = Log::listen();
    let inner = locks.mutex("x").wait(ms(50));
    let outer = locks.mutex("x").hold(|_| inner.lock().map(drop));
    assert!(outer.unwrap().is_err());
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("the work under a lock waits for the same lock"));
    inner.lock().unwrap().release().unwrap();
    assert_eq!(log.warnings().len(), 1, "the work is over");
}

#[test]
fn a_client_is_ready_or_says_why_not() {
    let (locks, node, _time) = stepped();
    locks.ready().unwrap();
    node.fail_with(Some(unreachable()));
    let error = locks.ready_within(Duration::ZERO).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no lock can be taken: m: connection refused"
    );
}

#[test]
fn a_new_cluster_is_initialised_without_async() {
    let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1000)));
    let nodes = ["a", "b", "c"].map(|name| {
        let clock = NodeClock::following(clock.clone(), 1_700_000_000_000_000);
        MemoryNode::with_clock(name, clock)
    });
    let builder = nodes
        .into_iter()
        .fold(Locks::builder().clock(clock), |builder, node| {
            builder.node(node)
        });
    let locks = Locks::build(builder.clone()).unwrap();
    let error = locks.mutex("x").try_lock().unwrap_err();
    assert!(error.to_string().contains("`Builder::init`"), "{error}");
    Locks::init(builder).unwrap();
    locks.mutex("x").try_lock().unwrap().release().unwrap();
}
