//! Semaphores under contention: never too many holders, and no permit stays idle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ringfence::Locks;
use tokio::task::{JoinSet, yield_now};

use crate::rules::bench::{Bench, Dice, ms};
use crate::rules::semaphore::taken;

/// How many permits are held, how many were held at most, and the last fence of each slot.
#[derive(Default)]
struct Held {
    now: usize,
    most: usize,
    slots: BTreeMap<u32, u64>,
}

async fn take_permits(locks: Locks, permits: u32, seed: u64, held: Arc<Mutex<Held>>) {
    let mut dice = Dice::new(seed);
    for _ in 0..6 {
        let permit = locks.semaphore("s", permits).acquire().await.unwrap();
        {
            let mut held = held.lock().unwrap();
            held.now += 1;
            held.most = held.most.max(held.now);
            let before = held.slots.insert(permit.slot(), permit.fence());
            assert!(before < Some(permit.fence()), "fences of a slot rise");
        }
        for _ in 0..dice.roll(20) {
            yield_now().await;
        }
        held.lock().unwrap().now -= 1;
        permit.release().await.unwrap();
    }
}

async fn contend(sizes: &[u32], workers: usize, seed: u64) -> usize {
    let bench = Bench::new(5).await;
    let held = Arc::<Mutex<Held>>::default();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(bench.client().await);
    }
    let mut tasks = JoinSet::new();
    for worker in 0..workers {
        let locks = clients[worker % clients.len()].clone();
        let size = sizes[worker % sizes.len()];
        let seed = seed * 1000 + worker as u64;
        tasks.spawn(take_permits(locks, size, seed, Arc::clone(&held)));
    }
    let started = bench.time.now();
    bench
        .drive(async {
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        })
        .await;
    let took = bench.time.now().since(started);
    assert!(
        took < ms(20_000),
        "no permit is idle while a client waits: {took:?}"
    );
    bench.pass(ms(3_000)).await;
    assert_eq!(taken(&bench, "s", 8), 0, "all slots are released");
    held.lock().unwrap().most
}

#[tokio::test]
async fn never_more_holders_than_permits_and_no_permit_stays_idle() {
    for seed in 0..3 {
        assert_eq!(contend(&[3], 20, seed).await, 3);
    }
}

#[tokio::test]
async fn with_two_sizes_never_more_holders_than_the_larger_size() {
    for seed in 0..3 {
        let most = contend(&[2, 4], 20, seed).await;
        assert!((2..=4).contains(&most), "{most}");
    }
}
