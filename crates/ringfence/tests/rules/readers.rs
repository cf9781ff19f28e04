//! Many readers or one writer, first come, first served.

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

/// Each reader of `50` is granted by its first attempt.
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
            // Those who leave do not hold up those who come.
            at_once(readers.remove(0).release()).await.unwrap();
        }
    }
    let attempts = bench.count(|op| matches!(op, Op::Acquire { .. }));
    assert_eq!(attempts, [50, 50, 50]);
}

#[tokio::test]
async fn the_writer_enters_next_after_a_hundred_readers() {
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
        "no way past the writer"
    );
    bench.pass(ms(1)).await;
    let late = bench.client().await.rw_lock("x");
    let mut late = pin!(late.read());
    for reader in readers {
        assert!(waits(late.as_mut()).await, "nor for one in line");
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
async fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
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
async fn downgrade_lets_readers_in_without_letting_go() {
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

/// With every reply lost the nodes have let readers in, and nobody says that it is alone.
#[tokio::test]
async fn downgrade_with_all_replies_cut_leaves_no_writer_beside_a_reader() {
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
    // The exclusive guard is gone, by its type, since the first send.
    let reader = downgraded.expect("still valid: no writer can be there");
    let beside = at_once(other.try_read())
        .await
        .expect("the nodes had been told");
    assert!(at_once(other.try_write()).await.is_err());
    reader.check().unwrap();
    bench.pass(ms(20_000)).await;
    reader.check().expect("and it goes on as a reader");
    drop((reader, beside));
}

#[tokio::test]
async fn a_downgrade_that_some_nodes_never_heard_of_is_made_up_for() {
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
        .expect("every node knows by now");
    drop((reader, other));
}

#[tokio::test]
async fn downgrade_of_a_lock_that_is_gone_is_a_loss() {
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
async fn a_reader_comes_back_to_a_node_that_lost_it() {
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
fn blocking_readers_and_writers() {
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
async fn work_is_done_beside_other_readers_and_by_one_writer() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.rw_lock("x");
    let beside = at_once(lock.read()).await.unwrap();
    let fence = at_once(lock.hold_read(async |guard| guard.fence())).await;
    let fence = fence.unwrap();
    at_once(beside.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0, "given back");
    let written = at_once(lock.hold_write(async |guard| guard.fence())).await;
    assert!(written.unwrap() > fence);
    assert_eq!(bench.holding("x"), 0);
    // Lost, the work is over at its next await.
    let brief = lock.clone().ttl(ms(1_000)).renew(false);
    let cut = brief.hold_read(async |_| std::future::pending::<()>().await);
    let cut = bench.drive(cut).await;
    assert!(
        matches!(cut, Err(HoldError::Lost(Lost::Expired))),
        "{cut:?}"
    );
}
