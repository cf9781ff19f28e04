//! One endpoint with a failover behind it: the master dies before its replica has the last locks,
//! the replica is promoted, and the address leads to it.

use std::time::Duration;

use ringfence::{Builder, Held, Locks, Lost, Owner, Tier};
use ringfence_core::time::Timestamp;
use ringfence_testkit::{Flavor, Persistence, wait_until_async};

use crate::fleet::stage::{self, PATIENCE, SOON, has_key, now, says};
use crate::scenarios::failover::Pair;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::refused_by_quarantine_of;

const WINDOW: Duration = Duration::from_secs(1);
const QUARANTINE: Duration = Duration::from_secs(14);
/// Within this time the former master must have stopped serving. It is killed here.
const STALE_MASTER: Duration = Duration::from_secs(2);
/// Two thirds of it are enough for the failover, `STALE_MASTER` and the second for a reply.
const TTL: Duration = Duration::from_secs(12);

fn builder(urls: &str) -> Builder {
    let builder = stage::builder(urls).ttl(TTL).window(WINDOW);
    builder.quarantine(QUARANTINE).stale_master(STALE_MASTER)
}

async fn connect(urls: &str) -> Locks {
    let builder = builder(urls).node_timeout(Duration::from_secs(1));
    builder.connect().await.unwrap()
}

/// Waits with a new client for a lock that no client holds. Returns when it was granted.
async fn newcomer(urls: &str) -> Timestamp {
    let locks = connect(urls).await;
    let lock = locks.mutex("free").wait(PATIENCE * 2);
    let _guard = lock.lock().await.unwrap();
    now()
}

/// Waits until the holder of `name` on the new master is `token`.
async fn until_restored(pair: &Pair, name: &str, token: &ringfence::receipt::Token) {
    wait_until_async("the lock to be put back", SOON, async || {
        let holder = pair.replica.command(&["GET", name]);
        holder == token.expose()
    })
    .await;
}

/// The seeds' first failure, and what ringfence makes of it: no second holder, the holder keeps its
/// lock, and a newcomer waits for the quarantine.
#[tokio::test]
async fn a_failover_makes_no_second_holder_and_costs_the_holder_nothing() {
    for flavor in Flavor::ALL {
        let pair = Pair::start(flavor, Persistence::None);
        let urls = pair.address.url();
        builder(&urls).init().await.unwrap();
        let (plain, plain_other) = (Redlock::connect(&urls).await, Redlock::connect(&urls).await);
        let (locks, other) = (connect(&urls).await, connect(&urls).await);
        // Older than the cut: the new master will have this holder, but not its release.
        let older = other.mutex("again").lock().await.unwrap();
        wait_until_async("the replica to have the older lock", PATIENCE, async || {
            has_key(&pair.replica, "again")
        })
        .await;
        pair.cut_replication();
        older.release().await.unwrap();
        let again = locks.mutex("again").lock().await.unwrap();
        let plain_first = plain.lock("theirs", TTL).await.unwrap();
        let first = locks.mutex("ours").lock().await.unwrap();
        assert_eq!(first.durability(), Tier::Quarantined);

        let died = now();
        pair.fail_over();
        plain_other.grants_twice(&plain_first, TTL).await;
        refused_by_quarantine_of(&[0], &other, "ours").await;
        until_restored(&pair, "ours", first.token()).await;
        until_restored(&pair, "again", again.token()).await;

        let (granted, deadline) = (newcomer(&urls).await, died + TTL);
        assert!(
            granted.since(died) >= QUARANTINE,
            "{:?}",
            granted.since(died)
        );
        assert!(granted > deadline, "the first lease is over");
        for guard in [&first, &again] {
            assert_eq!(guard.check(), Ok(()), "{flavor:?}");
        }
        let fence = first.fence();
        first.release().await.unwrap();
        let second = other.mutex("ours").wait(PATIENCE).lock().await.unwrap();
        assert!(second.fence() > fence);
    }
}

#[tokio::test]
async fn a_failover_carries_every_kind_of_lock_through_but_a_plain_one() {
    let pair = Pair::start(Flavor::Redis, Persistence::None);
    let urls = pair.address.url();
    builder(&urls).init().await.unwrap();
    let locks = connect(&urls).await;
    pair.cut_replication();
    let owner = Owner::new();
    let held: Vec<Box<dyn Held>> = vec![
        Box::new(locks.mutex("mutex").lock().await.unwrap()),
        Box::new(locks.multi(["a", "b"]).lock().await.unwrap()),
        Box::new(locks.rw_lock("shared").read().await.unwrap()),
        Box::new(locks.semaphore("slots", 2).acquire().await.unwrap()),
        Box::new(locks.mutex("owned").owner(&owner).lock().await.unwrap()),
        Box::new(locks.election("leader").campaign().await.unwrap()),
    ];
    let plain = locks.plain_mutex("plain").lock().await.unwrap();
    pair.fail_over();
    // The quarantine is longer than the lease that each of them had.
    newcomer(&urls).await;
    for held in &held {
        assert_eq!(held.check(), Ok(()), "{}", held.name());
    }
    assert_eq!(plain.check(), Err(Lost::Expired));
}

#[tokio::test]
async fn a_lease_that_outlasts_a_failover_is_refused() {
    let pair = Pair::start(Flavor::Redis, Persistence::None);
    let urls = pair.address.url();
    builder(&urls).init().await.unwrap();
    let locks = connect(&urls).await;
    assert_eq!(locks.longest_ttl(), QUARANTINE - STALE_MASTER);
    let longer = TTL + Duration::from_millis(1);
    let error = locks.mutex("n").ttl(longer).try_lock().await.unwrap_err();
    says(&error, ["12.001s", "12s", "replica", "longer quarantine"]);
}

/// The operator says that the service loses no acknowledged write.
#[tokio::test]
async fn a_failover_without_losses_costs_nothing() {
    let pair = Pair::start(Flavor::Redis, Persistence::None);
    let urls = format!("{}?failover=lossless", pair.address.url());
    let (locks, other) = (connect(&urls).await, connect(&urls).await);
    let first = locks.mutex("ours").lock().await.unwrap();
    assert_eq!(first.durability(), Tier::Durable);
    wait_until_async("the replica to have the lock", PATIENCE, async || {
        has_key(&pair.replica, "ours")
    })
    .await;
    pair.fail_over();
    wait_until_async("the new master to grant", SOON, async || {
        let second = other.mutex("another").try_lock().await;
        second.is_ok()
    })
    .await;
    first.extend(TTL).await.unwrap();
    assert!(other.mutex("ours").try_lock().await.unwrap_err().is_held());
}
