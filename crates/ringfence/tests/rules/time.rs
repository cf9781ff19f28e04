//! Rules 1, 2, 6 and 9: deadlines, remaining time and loss of a guard.

use std::pin::pin;
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::{AcquireError, Locks, Lost};

use crate::rules::bench::{Bench, at_once, idle, ms, waits};
use crate::rules::delaying_node::DelayingNode;

/// Ten seconds minus the drift: one per cent and two milliseconds.
const TEN_SECONDS_LESS_DRIFT: Duration = ms(10_000 - 100 - 2);

#[tokio::test]
async fn rule_1_a_clock_step_on_a_node_does_not_move_a_deadline() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    let deadline = guard.exact_deadline();
    assert_eq!(guard.remaining(), TEN_SECONDS_LESS_DRIFT);
    bench.nodes[0].clock().step_us(3_600_000_000);
    bench.nodes[1].clock().step_us(-2_000_000);
    idle().await;
    assert_eq!((guard.check(), guard.exact_deadline()), (Ok(()), deadline));
    bench.pass(ms(1000)).await;
    assert_eq!(guard.remaining(), TEN_SECONDS_LESS_DRIFT - ms(1000));
}

#[tokio::test]
async fn rule_1_a_memory_node_uses_the_clock_of_its_client() {
    let time = SteppedClock::starting_at(ms(1000));
    let connect = async || {
        let clock = Clock::Stepped(time.clone());
        let builder = Locks::builder().nodes("memory:stepped").clock(clock);
        at_once(builder.connect()).await.unwrap()
    };
    let lock = async |locks: Locks| at_once(locks.mutex("x").renew(false).try_lock()).await;
    let (one, other) = (connect().await, connect().await);
    let guard = lock(one).await.unwrap();
    let held = lock(other.clone()).await.unwrap_err();
    assert!(matches!(held, AcquireError::Held { .. }), "{held}");
    time.step(ms(10_001));
    assert!(guard.check().is_err());
    let _next = lock(other).await.unwrap();
    // A client with another clock does not share the node.
    let elsewhere = Locks::connect("memory:stepped").await.unwrap();
    let _another = elsewhere.mutex("x").try_lock().await.unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn rule_1_durations_are_measured_with_the_clock_that_counts_suspend() {
    let boottime = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let (before, now, after) = (boottime(), Clock::System.now().as_nanos(), boottime());
    assert!((before..=after).contains(&now), "{before} {now} {after}");
}

#[tokio::test]
async fn rule_2_a_slow_reply_shortens_the_validity() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[1].hold_replies(true);
    bench.nodes[2].hold_replies(true);
    let t0 = bench.time.now();
    let lock = locks.mutex("x");
    let mut locking = pin!(lock.lock());
    assert!(waits(locking.as_mut()).await);
    bench.pass(ms(300)).await;
    bench.nodes[2].hold_replies(false);
    let guard = at_once(locking).await.unwrap();
    assert_eq!(guard.exact_deadline(), t0 + TEN_SECONDS_LESS_DRIFT);
    assert_eq!(guard.remaining(), TEN_SECONDS_LESS_DRIFT - ms(300));
}

#[tokio::test]
async fn rule_2_t0_is_read_before_the_first_send() {
    let bench = Bench::new(1).await;
    let node = DelayingNode::before(&bench.nodes[0]);
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let locks = builder.node(node.clone()).connect().await.unwrap();
    node.be_slow(&bench.time, ms(70));
    let t0 = bench.time.now();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    assert_eq!(guard.exact_deadline(), t0 + TEN_SECONDS_LESS_DRIFT);
    let t0 = bench.time.now();
    at_once(guard.extend(ms(20_000))).await.unwrap();
    assert_eq!(guard.exact_deadline(), t0 + ms(20_000 - 200 - 2));
}

#[tokio::test]
async fn rule_2_each_attempt_has_its_own_t0() {
    let bench = Bench::new(3).await;
    let holder = bench.lock_x().await;
    let lock = bench.client().await.mutex("x");
    let mut waiting = pin!(lock.lock());
    for _ in 0..30 {
        assert!(waits(waiting.as_mut()).await);
        bench.pass(ms(100)).await;
    }
    drop(holder);
    let guard = bench.drive(waiting).await.unwrap();
    assert_eq!(guard.remaining(), TEN_SECONDS_LESS_DRIFT);
}

/// Whether a lock with a TTL of one second is granted if the replies take `elapsed`.
async fn granted_after(elapsed: Duration, min_validity: Option<Duration>) -> bool {
    let bench = Bench::new(3).await;
    let locks = bench
        .builder()
        .node_timeout(ms(5000))
        .connect()
        .await
        .unwrap();
    let mut lock = locks.mutex("x").ttl(ms(1000)).renew(false);
    if let Some(min_validity) = min_validity {
        lock = lock.min_validity(min_validity);
    }
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let mut locking = pin!(lock.try_lock());
    assert!(waits(locking.as_mut()).await);
    bench.time.step(elapsed);
    bench.mend();
    match at_once(locking).await {
        Ok(guard) => {
            assert_eq!(guard.remaining(), ms(988) - elapsed);
            true
        }
        Err(error) => {
            assert!(matches!(error, AcquireError::Expired { .. }), "{error}");
            assert_eq!(
                bench.holding("x"),
                0,
                "a grant that came too late is undone"
            );
            false
        }
    }
}

#[tokio::test]
async fn rule_6_a_grant_below_min_validity_is_not_returned() {
    // The default is a tenth of the TTL.
    assert!(granted_after(ms(888), None).await);
    assert!(!granted_after(ms(889), None).await);
    assert!(granted_after(ms(488), Some(ms(500))).await);
    assert!(!granted_after(ms(489), Some(ms(500))).await);
    assert!(!granted_after(ms(988), Some(ms(1))).await);
}

#[tokio::test]
async fn rule_6_a_task_that_was_not_polled_in_time_gets_no_stale_grant() {
    // The replies came in time, but the task was not polled until too little time remained, or
    // none.
    for pause in [ms(889), ms(5000)] {
        let bench = Bench::new(3).await;
        let lock = bench.client().await.mutex("x").ttl(ms(1000));
        bench.nodes.iter().for_each(|node| node.hold_replies(true));
        let mut locking = pin!(lock.try_lock());
        assert!(waits(locking.as_mut()).await);
        bench.mend();
        bench.time.step(pause);
        let error = at_once(locking).await.unwrap_err();
        assert!(matches!(error, AcquireError::Expired { .. }), "{error}");
    }
}

#[tokio::test]
async fn rule_9_the_deadline_never_moves_back() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    at_once(guard.extend(ms(30_000))).await.unwrap();
    let longest = guard.exact_deadline();
    at_once(guard.extend(ms(1000))).await.unwrap();
    assert_eq!(guard.exact_deadline(), longest);
    let mut last = longest;
    for _ in 0..400 {
        bench.pass(ms(100)).await;
        assert!(guard.exact_deadline() >= last);
        last = guard.exact_deadline();
    }
    assert!(last > longest, "and renewals move it forward in the end");
}

#[tokio::test]
async fn rule_9_an_extension_counts_whole_milliseconds_as_the_nodes_do() {
    let bench = Bench::new(3).await;
    let locks = bench
        .builder()
        .drift(0.0, Duration::ZERO)
        .connect()
        .await
        .unwrap();
    let guard = at_once(locks.mutex("x").ttl(ms(60)).renew(false).lock())
        .await
        .unwrap();
    at_once(guard.extend(Duration::from_micros(100_999)))
        .await
        .unwrap();
    assert_eq!(guard.remaining(), ms(100));
}

#[tokio::test]
async fn rule_9_lost_fires_at_the_deadline() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    let mut lost = pin!(guard.lost());
    assert!(waits(lost.as_mut()).await);
    bench
        .time
        .step(TEN_SECONDS_LESS_DRIFT - Duration::from_nanos(1));
    assert!(waits(lost.as_mut()).await);
    assert_eq!(guard.check(), Ok(()));
    bench.time.step(Duration::from_nanos(1));
    assert_eq!(at_once(lost).await, Lost::Expired);
    assert_eq!(
        (guard.check(), guard.remaining()),
        (Err(Lost::Expired), Duration::ZERO)
    );
}

#[tokio::test]
async fn g5_check_reads_the_clock_and_not_a_timer() {
    // The machine was suspended: nothing was polled while the deadline passed.
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.time.step(ms(60_000));
    assert_eq!(guard.check(), Err(Lost::Expired));
    idle().await;
    assert_eq!(guard.check(), Err(Lost::Expired), "no renewal revives it");
    assert_eq!(at_once(guard.lost()).await, Lost::Expired);
}

#[tokio::test]
async fn rule_9_lost_fires_at_the_first_proof() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    for node in [0, 2] {
        bench.delete(node, "x", guard.token());
    }
    let mut lost = pin!(guard.lost());
    bench.pass(ms(2995)).await;
    assert!(waits(lost.as_mut()).await, "no renewal has noticed it yet");
    bench.pass(ms(5)).await;
    assert_eq!(at_once(lost).await, Lost::Gone);
    assert_eq!(guard.check(), Err(Lost::Gone));
}

#[tokio::test]
async fn rule_9_nodes_that_lost_their_data_do_not_prove_a_loss() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    bench.nodes[0].forget();
    bench.nodes[1].forget();
    bench.pass(ms(8000)).await;
    assert_eq!(guard.check(), Ok(()), "valid until its own deadline");
    bench.pass(ms(1000)).await;
    assert_eq!(guard.check(), Err(Lost::Expired));
}
