//! Rule 8: renewals in the background.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence::{Lost, ReleaseError};
use ringfence_core::message::Op;
use tokio::task::yield_now;

use crate::rules::bench::{Bench, at_once, idle, ms, waits};

fn extends(op: &Op) -> bool {
    matches!(op, Op::Extend { .. })
}

#[tokio::test]
async fn rule_8_a_guard_is_renewed_at_a_third_of_its_ttl() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    bench.log_operations();
    for round in 1..=10 {
        bench.pass(ms(2999)).await;
        assert_eq!(bench.count(extends), [0; 3], "round {round}");
        bench.pass(ms(1)).await;
        assert_eq!(bench.count(extends), [1; 3], "round {round}");
        assert_eq!(guard.remaining(), ms(9000 - 90 - 2));
    }
}

#[tokio::test]
async fn rule_8_a_renewal_is_retried_until_the_deadline() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    let deadline = guard.exact_deadline();
    bench.break_first(2);
    bench.pass(ms(8000)).await;
    assert_eq!(guard.exact_deadline(), deadline);
    bench.mend();
    bench.pass(ms(890)).await;
    assert!(
        guard.exact_deadline() > deadline,
        "one of the retries succeeded"
    );
    bench.break_first(3);
    let mut lost = pin!(guard.lost());
    bench.pass(guard.remaining() - ms(1)).await;
    assert!(waits(lost.as_mut()).await);
    bench.pass(ms(1)).await;
    assert_eq!(at_once(lost).await, Lost::Expired);
}

#[tokio::test]
async fn rule_8_hung_nodes_do_not_stop_the_retries() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    let deadline = guard.exact_deadline();
    for node in [0, 1] {
        bench.nodes[node].hang(true);
    }
    bench.pass(ms(6000)).await;
    assert_eq!(guard.exact_deadline(), deadline);
    // The calls that hung are lost for good: only a renewal that is sent again can help.
    bench.break_first(2);
    bench.nodes.iter().for_each(|node| node.hang(false));
    bench.mend();
    bench.pass(ms(2500)).await;
    assert!(guard.exact_deadline() > deadline);
    assert_eq!(guard.check(), Ok(()));
}

#[tokio::test]
async fn rule_8_a_release_waits_for_a_renewal_in_flight() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    bench.log_operations();
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    bench.pass(ms(3000)).await;
    assert_eq!(bench.count(extends), [1; 3]);
    let mut releasing = pin!(guard.release());
    assert!(waits(releasing.as_mut()).await);
    assert_eq!(
        bench.count(|_| true),
        [0; 3],
        "the release waits for the reply to the renewal"
    );
    bench.mend();
    assert_eq!(at_once(releasing).await, Ok(()));
    bench.pass(ms(20_000)).await;
    assert_eq!(bench.count(extends), [0; 3], "and no renewal follows it");
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_8_no_renewal_after_a_drop() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    bench.pass(ms(3000)).await;
    drop(guard);
    bench.mend();
    bench.log_operations();
    bench.pass(ms(20_000)).await;
    assert_eq!(bench.count(extends), [0; 3]);
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_8_max_hold_ends_a_renewed_hold() {
    let bench = Bench::new(3).await;
    let guard = bench
        .lock_x_with(|lock| lock.ttl(ms(3000)).max_hold(ms(10_000)))
        .await;
    let mut lost = pin!(guard.lost());
    bench.pass(ms(9999)).await;
    assert!(waits(lost.as_mut()).await);
    bench.pass(ms(1)).await;
    assert_eq!(at_once(lost).await, Lost::MaxHold);
    assert_eq!(guard.check(), Err(Lost::MaxHold));
    bench.pass(ms(3000)).await;
    assert_eq!(bench.holding("x"), 0, "and it is not renewed any more");
}

#[tokio::test]
async fn rule_8_max_hold_limits_an_explicit_extend() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.max_hold(ms(12_000))).await;
    at_once(guard.extend(ms(30_000))).await.unwrap();
    assert_eq!(guard.remaining(), ms(12_000));
}

#[tokio::test]
async fn rule_8_max_hold_is_one_hour_by_default_and_can_be_removed() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let bounded = at_once(locks.mutex("x").ttl(ms(30_000)).lock())
        .await
        .unwrap();
    let free = at_once(locks.mutex("y").ttl(ms(30_000)).max_hold(None).lock())
        .await
        .unwrap();
    bench.pass_in(ms(3_599_999), ms(1000)).await;
    assert_eq!((bounded.check(), free.check()), (Ok(()), Ok(())));
    bench.pass(ms(1)).await;
    assert_eq!(
        (bounded.check(), free.check()),
        (Err(Lost::MaxHold), Ok(()))
    );
    bench.pass_in(ms(600_000), ms(1000)).await;
    assert_eq!(free.check(), Ok(()));
}

#[tokio::test]
async fn rule_8_renewal_can_be_switched_off() {
    let bench = Bench::new(3).await;
    let guard = bench
        .lock_x_with(|lock| lock.ttl(ms(3000)).renew(false))
        .await;
    bench.log_operations();
    bench.pass(ms(3000)).await;
    assert_eq!(bench.count(extends), [0; 3]);
    assert_eq!(guard.check(), Err(Lost::Expired));
    let text = Lost::Expired.to_string();
    assert_eq!(
        text, "the lock expired: it was not extended in time",
        "nobody tried"
    );
    bench.pass(ms(1)).await;
    assert_eq!(at_once(guard.release()).await, Err(ReleaseError::Expired));
}

#[tokio::test]
async fn rule_8_ten_thousand_guards_are_renewed_by_one_task() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let mut guards = Vec::new();
    for i in 0..10_000 {
        let lock = locks.mutex(format!("n{i}")).ttl(ms(9000));
        guards.push(at_once(lock.lock()).await.unwrap());
    }
    // The keeper of the client. That of the bench's own `init` ends when it is scheduled.
    idle().await;
    let metrics = tokio::runtime::Handle::current().metrics();
    assert_eq!(
        metrics.num_alive_tasks(),
        1,
        "one keeper, no task per guard"
    );

    // Another task on the same thread: it must be able to run while all guards are renewed.
    let turns = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            count.fetch_add(1, Ordering::SeqCst);
            yield_now().await;
        }
    });
    for _ in 0..4 {
        let before = bench.time.now();
        bench.time.step(ms(3000));
        turns.store(0, Ordering::SeqCst);
        let renewed = before + ms(3000 + 9000 - 90 - 2);
        for _ in 0..10_000 {
            if guards.iter().all(|guard| guard.exact_deadline() == renewed) {
                break;
            }
            yield_now().await;
        }
        let late = guards
            .iter()
            .filter(|guard| guard.exact_deadline() != renewed)
            .count();
        assert_eq!(late, 0, "all are renewed, without time passing");
        assert!(
            turns.load(Ordering::SeqCst) > 20,
            "the other task runs meanwhile"
        );
    }
    other.abort();
    drop(guards);
    assert!(
        bench.nodes[0]
            .entries()
            .iter()
            .all(|(_, entry)| entry.key.is_none())
    );
}

#[tokio::test]
async fn rule_8_at_most_1024_renewals_are_in_flight_at_once() {
    const GUARDS: usize = 2_500;
    const AT_ONCE: usize = 1_024;
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let mut guards = Vec::with_capacity(GUARDS);
    for number in 0..GUARDS {
        let lock = locks.mutex(format!("x:{number}")).ttl(ms(9000));
        guards.push(at_once(lock.lock()).await.unwrap());
    }
    bench.log_operations();
    for node in &bench.nodes {
        node.hold_replies(true);
    }
    let renewed = bench.time.now() + ms(3000 + 9000 - 90 - 2);
    bench.time.step(ms(3000));
    for _ in 0..1_000 {
        yield_now().await;
    }
    assert_eq!(bench.count(extends), [AT_ONCE; 3], "only these for now");
    // Some guards whose renewals wait are dropped meanwhile: they take no turn from the others.
    guards.truncate(GUARDS - 100);
    for node in &bench.nodes {
        node.hold_replies(false);
    }
    for _ in 0..1_000 {
        yield_now().await;
    }
    assert_eq!(bench.count(extends), [GUARDS - 100 - AT_ONCE; 3]);
    assert!(guards.iter().all(|guard| guard.exact_deadline() == renewed));
}

#[tokio::test]
async fn rule_8_renewals_that_time_out_make_room_for_others() {
    const GUARDS: usize = 1_500;
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let mut guards = Vec::with_capacity(GUARDS);
    for number in 0..GUARDS {
        let lock = locks.mutex(format!("x:{number}")).ttl(ms(9000));
        guards.push(at_once(lock.lock()).await.unwrap());
    }
    let deadline = guards[0].exact_deadline();
    for node in &bench.nodes {
        node.hang(true);
    }
    bench.pass(ms(3500)).await;
    // The calls that hung are lost for good: they must time out before other guards are renewed.
    bench.break_first(3);
    for node in &bench.nodes {
        node.hang(false);
    }
    bench.mend();
    bench.pass(ms(4000)).await;
    let kept = guards
        .iter()
        .filter(|guard| guard.exact_deadline() > deadline);
    assert_eq!(kept.count(), GUARDS);
}
