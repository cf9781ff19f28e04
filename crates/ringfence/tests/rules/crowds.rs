//! Semaphores that many want at once: never too many inside, and no permit idle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ringfence::Locks;
use tokio::task::{JoinSet, yield_now};

use crate::bench::{Bench, Dice, ms};
use crate::semaphore::taken;

/// How many are inside, of each size, and whether there were ever too many.
#[derive(Default)]
struct Inside {
    now: usize,
    most: usize,
    slots: BTreeMap<u32, u64>,
}

async fn visit(locks: Locks, permits: u32, seed: u64, inside: Arc<Mutex<Inside>>) {
    let mut dice = Dice::new(seed);
    for _ in 0..6 {
        let permit = locks.semaphore("s", permits).acquire().await.unwrap();
        {
            let mut inside = inside.lock().unwrap();
            inside.now += 1;
            inside.most = inside.most.max(inside.now);
            let before = inside.slots.insert(permit.slot(), permit.fence());
            assert!(before < Some(permit.fence()), "fences of a slot rise");
        }
        for _ in 0..dice.roll(20) {
            yield_now().await;
        }
        inside.lock().unwrap().now -= 1;
        permit.release().await.unwrap();
    }
}

async fn crowd(sizes: &[u32], visitors: usize, seed: u64) -> usize {
    let bench = Bench::new(5).await;
    let inside = Arc::<Mutex<Inside>>::default();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(bench.client().await);
    }
    let mut tasks = JoinSet::new();
    for visitor in 0..visitors {
        let locks = clients[visitor % clients.len()].clone();
        let size = sizes[visitor % sizes.len()];
        let seed = seed * 1000 + visitor as u64;
        tasks.spawn(visit(locks, size, seed, Arc::clone(&inside)));
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
        "no permit idles while somebody waits: {took:?}"
    );
    bench.pass(ms(3_000)).await;
    assert_eq!(taken(&bench, "s", 8), 0, "nothing is left");
    inside.lock().unwrap().most
}

#[tokio::test]
async fn never_more_than_its_permits_are_inside_and_none_is_idle() {
    for seed in 0..3 {
        assert_eq!(crowd(&[3], 20, seed).await, 3);
    }
}

#[tokio::test]
async fn of_two_sizes_never_more_than_the_larger_are_inside() {
    for seed in 0..3 {
        let most = crowd(&[2, 4], 20, seed).await;
        assert!((2..=4).contains(&most), "{most}");
    }
}
