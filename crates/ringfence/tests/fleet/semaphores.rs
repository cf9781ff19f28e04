//! Semaphores on real servers, some of which are killed and restarted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::{Locks, ReleaseError, SemaphoreGuard};
use ringfence_core::time::Timestamp;
use ringfence_testkit::{Fleet, Server, wait_until_async};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fleet::stage::*;

const PERMITS: u32 = 3;

/// How long a permit may be idle while a client waits. Much less than its TTL: an idle permit must
/// not become free only because it expired.
const IDLE_MAX: Duration = Duration::from_secs(6);

/// The permits that are held, and counters of all holds.
#[derive(Default)]
struct Permits {
    inside: AtomicUsize,
    most: AtomicUsize,
    holds: AtomicUsize,
    slots: Mutex<[Slot; PERMITS as usize]>,
}

/// The history of one slot.
#[derive(Debug, Default, Clone, Copy)]
struct Slot {
    fence: u64,
    left: Option<Timestamp>,
    longest_idle: Duration,
}

impl Permits {
    fn enter(&self, permit: &SemaphoreGuard) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let slot = &mut self.slots.lock().unwrap()[permit.slot() as usize];
        assert!(slot.fence < permit.fence(), "{slot:?} before {permit:?}");
        slot.fence = permit.fence();
        slot.end_idle_time();
    }

    fn leave(&self, permit: &SemaphoreGuard) {
        self.slots.lock().unwrap()[permit.slot() as usize].left = Some(now());
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.holds.fetch_add(1, Ordering::SeqCst);
    }

    /// The longest time that any permit was idle, from the beginning until now.
    fn longest_idle(&self) -> Duration {
        let mut slots = *self.slots.lock().unwrap();
        slots.iter_mut().for_each(Slot::end_idle_time);
        slots.iter().map(|slot| slot.longest_idle).max().unwrap()
    }
}

impl Slot {
    fn end_idle_time(&mut self) {
        if let Some(left) = self.left.take() {
            self.longest_idle = self.longest_idle.max(now().since(left));
        }
    }
}

/// A client takes a permit for a moment. One in ten holds it for longer than a server needs to
/// restart without data.
async fn hold_once(locks: &Locks, permits: &Permits) {
    let semaphore = locks.semaphore("s", PERMITS);
    let permit = semaphore.wait(2 * PATIENCE).acquire().await.unwrap();
    permits.enter(&permit);
    let holds_ms = match permits.holds.load(Ordering::SeqCst) % 10 {
        0 => 300,
        _ => 2,
    };
    tokio::time::sleep(Duration::from_millis(holds_ms)).await;
    assert_eq!(permit.check(), Ok(()));
    permits.leave(&permit);
    // A node of the majority may have died meanwhile: the permit is released all the same.
    let released = permit.release().await;
    assert!(
        matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
        "{released:?}"
    );
}

/// The number of slot keys on `server`.
fn slot_keys(server: &Server) -> usize {
    let keys = server.command(&["KEYS", "ringfence:{s}:slot:*"]);
    keys.lines().filter(|key| !key.is_empty()).count()
}

/// Two nodes restart without data while 50 clients wait for permits. They must not grant slots that
/// are held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_clients_three_hold_permits_while_nodes_restart_without_data() {
    let fleet = Fleet::start(5);
    builder(&fleet.urls()).init().await.unwrap();
    let permits = Arc::<Permits>::default();
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let locks = connect(&fleet.urls()).await;
        let (permits, stopped) = (Arc::clone(&permits), stopped.clone());
        tasks.spawn(async move {
            while !*stopped.borrow() {
                hold_once(&locks, &permits).await;
            }
            locks.close().await;
        });
    }
    let more_holds = async |more: usize| {
        let holds = || permits.holds.load(Ordering::SeqCst);
        let enough = holds() + more;
        wait_until_async("more holds", 2 * PATIENCE, async || holds() >= enough).await;
    };
    more_holds(60).await;
    for node in [1, 3] {
        fleet[node].kill();
        more_holds(60).await;
        fleet[node].restart();
        more_holds(60).await;
    }
    // Until now all 50 clients wanted a permit.
    let longest_idle = permits.longest_idle();
    assert!(longest_idle < IDLE_MAX, "{longest_idle:?}");
    stop.send(true).unwrap();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(permits.most.load(Ordering::SeqCst), PERMITS as usize);
    wait_until_async("the last slot to be free", SOON, async || {
        fleet.iter().all(|server| slot_keys(server) == 0)
    })
    .await;
}

#[tokio::test]
async fn every_key_of_a_semaphore_expires() {
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
    assert!(keys.contains(&"ringfence:{s}:slot:1:s"), "{keys:?}");
    for key in keys {
        let left = fleet[0].command(&["PTTL", key]);
        assert_ne!(left, "-1", "{key} stays for ever");
    }
    first.release().await.unwrap();
    second.release().await.unwrap();
}
