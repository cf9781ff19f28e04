//! Many readers or one writer, in the order of the wait queue.

use std::pin::pin;

use ringfence::{AcquireError, HoldError, Lost, ReadGuard};
use ringfence_core::message::Op;

use super::bench::*;

#[tokio::test]
async fn readers_share_and_a_writer_waits_for_all_of_them() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let (one, other) = (
        at_once(lock.read()).await.unwrap(),
        at_once(lock.read()).await.unwrap(),
    );
    assert!(matches!(
        at_once(lock.try_write()).await,
        Err(AcquireError::Held { .. })
    ));
    let mut writer = pin!(lock.write());
    assert!(waits(writer.as_mut()).await);
    at_once(one.release()).await.unwrap();
    assert!(waits(writer.as_mut()).await);
    let fence = other.fence();
    at_once(other.release()).await.unwrap();
    let writer = bench.drive(writer).await.unwrap();
    assert!(writer.fence() > fence);
    assert!(matches!(
        at_once(lock.try_read()).await,
        Err(AcquireError::Held { .. })
    ));
    writer.release().await.unwrap();
    let reader = at_once(lock.try_read()).await.unwrap();
    bench.pass(ms(30_000)).await;
    reader.check().expect("renewed like any other");
    at_once(reader.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_mutex_and_a_writer_are_the_same_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let reader = at_once(locks.rw_lock("x").read()).await.unwrap();
    let refused = at_once(locks.mutex("x").try_lock()).await;
    assert!(matches!(refused, Err(AcquireError::Held { .. })));
    let refused = at_once(locks.plain_mutex("x").try_lock()).await;
    assert!(matches!(refused, Err(AcquireError::Held { .. })));
    at_once(reader.release()).await.unwrap();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    assert!(at_once(locks.rw_lock("x").try_read()).await.is_err());
    drop(guard);
}

#[tokio::test]
async fn fifty_readers_alone_need_one_attempt_each() {
    let bench = Bench::new(3).await;
    let clients = [bench.client().await, bench.client().await];
    bench.log_operations();
    let mut readers: Vec<ReadGuard> = Vec::new();
    for number in 0..50 {
        let lock = clients[number % 2].rw_lock("x");
        readers.push(at_once(lock.read()).await.unwrap());
        if number % 3 == 0 {
            // Readers that leave do not delay readers that come.
            at_once(readers.remove(0).release()).await.unwrap();
        }
    }
    let attempts = bench.count(|op| matches!(op, Op::Acquire { .. }));
    assert_eq!(attempts, [50, 50, 50]);
}

#[tokio::test]
async fn a_writer_enters_after_the_readers_before_it_and_before_later_ones() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.rw_lock("x");
    let mut readers = Vec::new();
    for _ in 0..100 {
        readers.push(at_once(lock.read()).await.unwrap());
    }
    let writing = bench.client().await.rw_lock("x");
    let mut writer = pin!(writing.write());
    assert!(waits(writer.as_mut()).await);
    let refused = at_once(lock.try_read()).await;
    assert!(
        matches!(refused, Err(AcquireError::Held { .. })),
        "no reader passes the waiting writer"
    );
    bench.pass(ms(1)).await;
    let late = bench.client().await.rw_lock("x");
    let mut late = pin!(late.read());
    for reader in readers {
        assert!(waits(late.as_mut()).await, "nor does a reader in the queue");
        assert!(waits(writer.as_mut()).await);
        at_once(reader.release()).await.unwrap();
    }
    let writer = bench.drive(writer).await.unwrap();
    assert!(waits(late.as_mut()).await);
    at_once(writer.release()).await.unwrap();
    let late = bench.drive(late).await.unwrap();
    at_once(late.release()).await.unwrap();
}

#[tokio::test]
async fn a_writer_that_stops_waiting_lets_the_readers_behind_it_in() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let reader = at_once(lock.read()).await.unwrap();
    let other = bench.client().await.rw_lock("x");
    let mut late = pin!(other.read());
    {
        let mut writer = pin!(lock.write());
        assert!(waits(writer.as_mut()).await);
        bench.pass(ms(1)).await;
        assert!(waits(late.as_mut()).await);
    }
    let late = bench.drive(late).await.unwrap();
    reader.check().unwrap();
    drop((reader, late));
}

#[tokio::test]
async fn downgrade_lets_readers_in_and_keeps_the_lock() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let writer = at_once(lock.write()).await.unwrap();
    let fence = writer.fence();
    let mut waiting = pin!(lock.read());
    assert!(waits(waiting.as_mut()).await);
    let reader = at_once(writer.downgrade()).await.unwrap();
    assert_eq!(reader.fence(), fence);
    let other = bench.drive(waiting).await.unwrap();
    assert!(at_once(lock.try_write()).await.is_err());
    bench.pass(ms(30_000)).await;
    reader.check().expect("renewed as a reader");
    at_once(other.release()).await.unwrap();
    assert!(at_once(lock.try_write()).await.is_err());
    at_once(reader.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0);
    at_once(lock.try_write())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Every reply is lost. The nodes may have let readers in, so no client holds the lock exclusively.
#[tokio::test]
async fn downgrade_with_all_replies_lost_leaves_no_writer_beside_a_reader() {
    let bench = Bench::new(3).await;
    let (lock, other) = (
        bench.client().await.rw_lock("x"),
        bench.client().await.rw_lock("x"),
    );
    let writer = at_once(lock.write()).await.unwrap();
    for node in &bench.nodes {
        node.lose_replies(true);
    }
    let downgraded = bench.drive(writer.downgrade()).await;
    bench.mend();
    // `downgrade` consumes the exclusive guard before it sends anything.
    let reader = downgraded.expect("still valid: no other client can hold the lock exclusively");
    let beside = at_once(other.try_read())
        .await
        .expect("the nodes received the downgrade");
    assert!(at_once(other.try_write()).await.is_err());
    reader.check().unwrap();
    bench.pass(ms(20_000)).await;
    reader.check().expect("the hold continues as a reader");
    drop((reader, beside));
}

#[tokio::test]
async fn a_downgrade_is_repeated_to_nodes_that_did_not_receive_it() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let writer = at_once(lock.write()).await.unwrap();
    bench.break_first(2);
    let reader = bench.drive(writer.downgrade()).await.unwrap();
    bench.mend();
    bench.pass(ms(5_000)).await;
    reader.check().unwrap();
    let other = at_once(lock.try_read())
        .await
        .expect("every node has the downgrade by now");
    drop((reader, other));
}

#[tokio::test]
async fn downgrade_of_a_lost_lock_reports_the_loss() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let writer = at_once(lock.write()).await.unwrap();
    let token = writer.token().clone();
    for node in 0..3 {
        bench.delete(node, "x", &token);
    }
    let lost = bench.drive(writer.downgrade()).await.unwrap_err();
    assert_eq!(lost, Lost::Gone);
}

#[tokio::test]
async fn a_reader_is_restored_on_a_node_that_lost_it() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let (one, other) = (
        at_once(lock.read()).await.unwrap(),
        at_once(lock.read()).await.unwrap(),
    );
    bench.nodes[0].forget();
    bench.pass(ms(8_000)).await;
    assert_eq!(bench.holding("x"), 3);
    let name = ringfence_core::name::Name::new("", "x").unwrap();
    assert_eq!(bench.nodes[0].entry(&name).readers.len(), 2);
    drop((one, other));
}

#[test]
fn blocking_readers_share_and_writers_exclude() {
    let locks = ringfence::blocking::Locks::connect("memory:blocking-readers").unwrap();
    let lock = locks.rw_lock("x").label("job");
    let (one, other) = (lock.read().unwrap(), lock.try_read().unwrap());
    assert!(lock.try_write().is_err());
    one.release().unwrap();
    other.release().unwrap();
    let writer = lock.write().unwrap();
    assert!(lock.try_read().is_err());
    let reader = writer.downgrade().unwrap();
    lock.try_read().unwrap().release().unwrap();
    reader.check().unwrap();
    reader.release().unwrap();
}

#[tokio::test]
async fn hold_read_runs_beside_readers_and_hold_write_runs_alone() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.rw_lock("x");
    let beside = at_once(lock.read()).await.unwrap();
    let fence = at_once(lock.hold_read(async |guard| guard.fence())).await;
    let fence = fence.unwrap();
    at_once(beside.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0, "released");
    let written = at_once(lock.hold_write(async |guard| guard.fence())).await;
    assert!(written.unwrap() > fence);
    assert_eq!(bench.holding("x"), 0);
    // If the lock is lost, the work ends at its next await.
    let brief = lock.clone().ttl(ms(1_000)).renew(false);
    let cut = brief.hold_read(async |_| std::future::pending::<()>().await);
    let cut = bench.drive(cut).await;
    assert!(
        matches!(cut, Err(HoldError::Lost(Lost::Expired))),
        "{cut:?}"
    );
}
