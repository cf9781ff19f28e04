//! Semaphores on real servers, some of which die and come back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Fleet, Server, wait_until_async};
use tokio::task::JoinSet;

use crate::stage::*;

const PERMITS: u32 = 3;

/// Who is inside, and how many have been.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    most: AtomicUsize,
    visits: AtomicUsize,
    /// The last fence of each slot.
    fences: Mutex<[u64; PERMITS as usize]>,
}

async fn visit(locks: &Locks, room: &Room) {
    let semaphore = locks.semaphore("s", PERMITS).ttl(Duration::from_secs(5));
    let permit = semaphore.wait(2 * PATIENCE).acquire().await.unwrap();
    let inside = room.inside.fetch_add(1, Ordering::SeqCst) + 1;
    room.most.fetch_max(inside, Ordering::SeqCst);
    {
        let last = &mut room.fences.lock().unwrap()[permit.slot() as usize];
        assert!(*last < permit.fence(), "{last} before {permit:?}");
        *last = permit.fence();
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(permit.check(), Ok(()));
    room.inside.fetch_sub(1, Ordering::SeqCst);
    room.visits.fetch_add(1, Ordering::SeqCst);
    permit.release().await.unwrap();
}

/// The servers' keys of slots.
fn slot_keys(server: &Server) -> usize {
    let keys = server.command(&["KEYS", "ringfence:{s}slot*"]);
    keys.lines().filter(|key| !key.is_empty()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_tasks_three_are_inside_while_a_node_dies_and_comes_back() {
    let fleet = Fleet::start(5);
    builder(&fleet.urls()).init(false).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&fleet.urls()).await);
    }
    let room = Arc::<Room>::default();
    let mut tasks = JoinSet::new();
    for task in 0..50 {
        let locks = clients[task % clients.len()].clone();
        let room = Arc::clone(&room);
        tasks.spawn(async move {
            for _ in 0..6 {
                visit(&locks, &room).await;
            }
        });
    }
    let visited = async |visits: usize| {
        wait_until_async("visits", 2 * PATIENCE, async || {
            room.visits.load(Ordering::SeqCst) >= visits
        })
        .await;
    };
    visited(60).await;
    // It forgets everything, and must not give its slots to others.
    fleet[1].kill();
    visited(120).await;
    fleet[1].restart();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(room.visits.load(Ordering::SeqCst), 300);
    assert_eq!(room.most.load(Ordering::SeqCst), PERMITS as usize);
    for locks in clients {
        locks.close().await;
    }
    wait_until_async("the last slot to be free", SOON, async || {
        fleet.iter().all(|server| slot_keys(server) == 0)
    })
    .await;
}

#[tokio::test]
async fn nothing_of_a_semaphore_stays_without_an_expiry() {
    let fleet = Fleet::start(1);
    let locks = client_of(&fleet).await;
    let semaphore = locks.semaphore("s", 2);
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.acquire().await.unwrap();
    let waits = semaphore.clone().wait(Duration::from_millis(300));
    assert!(waits.acquire().await.is_err());
    let keys = fleet[0].command(&["KEYS", "*"]);
    let keys: Vec<&str> = keys
        .lines()
        .filter(|key| *key != "ringfence:born")
        .collect();
    assert!(keys.contains(&"ringfence:{s}slot1:s"), "{keys:?}");
    for key in keys {
        let left = fleet[0].command(&["PTTL", key]);
        assert_ne!(left, "-1", "{key} stays for ever");
    }
    first.release().await.unwrap();
    second.release().await.unwrap();
}
