//! Readers and writers on real servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringfence_testkit::Fleet;
use tokio::task::JoinSet;

use crate::fleet::stage::*;

/// One number counts all holders: a reader is one, a writer a thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_a_writer_is_alone() {
    let fleet = Fleet::start(3);
    let clients = [client_of(&fleet).await, client_of(&fleet).await];
    let (inside, together) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..48 {
        let lock = clients[task % 2].rw_lock("n").wait(PATIENCE);
        let (inside, together) = (Arc::clone(&inside), Arc::clone(&together));
        tasks.spawn(async move {
            if task % 6 == 0 {
                let guard = lock.write().await.unwrap();
                assert_eq!(
                    inside.fetch_add(1_000, Ordering::SeqCst),
                    0,
                    "a writer is not alone"
                );
                tokio::task::yield_now().await;
                inside.fetch_sub(1_000, Ordering::SeqCst);
                guard.release().await.unwrap();
                return;
            }
            let guard = lock.read().await.unwrap();
            let before = inside.fetch_add(1, Ordering::SeqCst);
            assert!(before < 1_000, "a reader beside a writer");
            together.fetch_max(before + 1, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert!(together.load(Ordering::SeqCst) > 1, "readers share");
    no_key_remains(fleet.iter()).await;
}

#[tokio::test]
async fn a_writer_that_downgrades_lets_readers_in_with_one_node_down() {
    let fleet = Fleet::start(3);
    let (locks, others) = (client_of(&fleet).await, client_of(&fleet).await);
    fleet.iter().next().unwrap().kill();
    let writer = locks.rw_lock("n").write().await.unwrap();
    let lock = others.rw_lock("n").wait(SOON);
    assert!(lock.try_read().await.is_err());
    let reader = writer.downgrade().await.unwrap();
    let other = lock.read().await.unwrap();
    assert!(lock.try_write().await.is_err());
    reader.release().await.unwrap();
    other.release().await.unwrap();
    lock.write().await.unwrap().release().await.unwrap();
    no_key_remains(fleet.iter().skip(1)).await;
}
