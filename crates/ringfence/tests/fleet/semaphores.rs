//! Semaphores on real servers, some of which die and come back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::{Locks, ReleaseError, SemaphoreGuard};
use ringfence_core::time::Timestamp;
use ringfence_testkit::{Fleet, Server, wait_until_async};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::stage::*;

const PERMITS: u32 = 3;

/// How long a permit may be idle while somebody waits: much less than its TTL, so that what was idle
/// did not only come back because it expired.
const IDLE_MAX: Duration = Duration::from_secs(6);

/// Who is inside, and how many have been.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    most: AtomicUsize,
    visits: AtomicUsize,
    slots: Mutex<[Slot; PERMITS as usize]>,
}

/// What became of one permit.
#[derive(Debug, Default, Clone, Copy)]
struct Slot {
    fence: u64,
    left: Option<Timestamp>,
    longest_idle: Duration,
}

impl Room {
    fn enter(&self, permit: &SemaphoreGuard) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let slot = &mut self.slots.lock().unwrap()[permit.slot() as usize];
        assert!(slot.fence < permit.fence(), "{slot:?} before {permit:?}");
        slot.fence = permit.fence();
        slot.comes_to_use();
    }

    fn leave(&self, permit: &SemaphoreGuard) {
        self.slots.lock().unwrap()[permit.slot() as usize].left = Some(now());
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
    }

    /// How long any permit was idle at most, from the beginning until now.
    fn longest_idle(&self) -> Duration {
        let mut slots = *self.slots.lock().unwrap();
        slots.iter_mut().for_each(Slot::comes_to_use);
        slots.iter().map(|slot| slot.longest_idle).max().unwrap()
    }
}

impl Slot {
    fn comes_to_use(&mut self) {
        if let Some(left) = self.left.take() {
            self.longest_idle = self.longest_idle.max(now().since(left));
        }
    }
}

/// Somebody comes, is inside for a moment, and goes. One in ten stays for longer than a server needs
/// to forget and to come back.
async fn visit(locks: &Locks, room: &Room) {
    let semaphore = locks.semaphore("s", PERMITS);
    let permit = semaphore.wait(2 * PATIENCE).acquire().await.unwrap();
    room.enter(&permit);
    let stays_ms = match room.visits.load(Ordering::SeqCst) % 10 {
        0 => 300,
        _ => 2,
    };
    tokio::time::sleep(Duration::from_millis(stays_ms)).await;
    assert_eq!(permit.check(), Ok(()));
    room.leave(&permit);
    // Of the three nodes that had it, one may have died meanwhile: it is released all the same.
    let released = permit.release().await;
    assert!(
        matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
        "{released:?}"
    );
}

/// The servers' keys of slots.
fn slot_keys(server: &Server) -> usize {
    let keys = server.command(&["KEYS", "ringfence:{s}slot*"]);
    keys.lines().filter(|key| !key.is_empty()).count()
}

/// Two of the nodes die and come back while 50 clients want in: they forget everything, and must not
/// give to others what is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_clients_three_are_inside_while_nodes_die_and_come_back() {
    let fleet = Fleet::start(5);
    builder(&fleet.urls()).init(false).await.unwrap();
    let room = Arc::<Room>::default();
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let locks = connect(&fleet.urls()).await;
        let (room, stopped) = (Arc::clone(&room), stopped.clone());
        tasks.spawn(async move {
            while !*stopped.borrow() {
                visit(&locks, &room).await;
            }
            locks.close().await;
        });
    }
    let more_visits = async |more: usize| {
        let visits = || room.visits.load(Ordering::SeqCst);
        let enough = visits() + more;
        wait_until_async("visits", 2 * PATIENCE, async || visits() >= enough).await;
    };
    more_visits(60).await;
    for node in [1, 3] {
        fleet[node].kill();
        more_visits(60).await;
        fleet[node].restart();
        more_visits(60).await;
    }
    // All 50 wanted in until now.
    let longest_idle = room.longest_idle();
    assert!(longest_idle < IDLE_MAX, "{longest_idle:?}");
    stop.send(true).unwrap();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(room.most.load(Ordering::SeqCst), PERMITS as usize);
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
