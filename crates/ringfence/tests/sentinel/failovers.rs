//! Failovers of real Sentinels: holders keep their locks, newcomers wait.

use std::time::Duration;

use ringfence::{AcquireError, Locks};
use ringfence_testkit::{Flavor, Fleet, SentinelGroup, Server, wait_until_async};

use crate::sentinel::stage::*;

/// One holder of each kind, and what all of them must see after a failover.
struct Holders {
    mutex: ringfence::Guard,
    several: ringfence::Guard,
    reader: ringfence::ReadGuard,
    permit: ringfence::SemaphoreGuard,
}

impl Holders {
    async fn hold(locks: &Locks) -> Self {
        Self {
            mutex: locks.mutex("one").lock().await.unwrap(),
            several: locks.multi(["two", "three"]).lock().await.unwrap(),
            reader: locks.rw_lock("shared").read().await.unwrap(),
            permit: locks.semaphore("permits", 2).acquire().await.unwrap(),
        }
    }

    /// Waits until every lock is on `master`, and checks that none was lost.
    async fn until_carried_to(&self, master: &Server) {
        let names = [
            "one",
            "two",
            "three",
            "shared",
            "ringfence:{permits}:slot:0:permits",
        ];
        wait_until_async(
            "the holders to be on the new master",
            PATIENCE,
            async || {
                self.check();
                names.iter().all(|name| has_key(master, name))
            },
        )
        .await;
        // Not only the copy of a key: the new master accepts an extend.
        wait_until_async("an extend on the new master", PATIENCE, async || {
            self.check();
            self.mutex.extend(TTL).await.is_ok()
        })
        .await;
    }

    /// Whether the failover was fast enough to keep the locks: the nodes accept a carried hold only
    /// while enough of its validity is left.
    fn are_in_time(&self) -> bool {
        let left = [
            self.mutex.remaining(),
            self.several.remaining(),
            self.reader.remaining(),
            self.permit.remaining(),
        ];
        left.into_iter().all(|left| left >= Duration::from_secs(5))
    }

    fn check(&self) {
        self.mutex.check().unwrap();
        self.several.check().unwrap();
        self.reader.check().unwrap();
        self.permit.check().unwrap();
    }

    async fn release(self) {
        self.mutex.release().await.unwrap();
        self.several.release().await.unwrap();
        self.reader.release().await.unwrap();
        self.permit.release().await.unwrap();
    }
}

/// A newcomer gets no lock, whether it is held or not, and is told why.
async fn assert_newcomers_wait(locks: &Locks) {
    wait_until_async(
        "the quarantine of the new master",
        PATIENCE,
        async || match locks.mutex("never held").try_lock().await {
            Ok(_) => panic!("granted in the quarantine"),
            Err(error) => matches!(error, AcquireError::Quarantined { .. }),
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_keep_their_locks_through_a_planned_failover_and_newcomers_wait() {
    let group = SentinelGroup::start(Flavor::Redis);
    let locks = new_client(&group.url()).await;
    let other = client(&group.url()).await;
    let holders = Holders::hold(&locks).await;
    let fence = holders.mutex.fence();
    group.fail_over();
    holders.until_carried_to(group.master()).await;
    assert_eq!(holders.mutex.fence(), fence);
    assert_newcomers_wait(&other).await;
    holders.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_keep_their_locks_when_the_master_is_killed() {
    // On a busy machine the Sentinels may take longer to elect a leader than the leases last.
    for _ in 0..5 {
        let group = SentinelGroup::start(Flavor::Valkey);
        let locks = new_client(&group.url()).await;
        let other = client(&group.url()).await;
        let holders = Holders::hold(&locks).await;
        let killed = group.master();
        killed.kill();
        group.wait_for_new_master(killed.port());
        if !holders.are_in_time() {
            continue;
        }
        holders.until_carried_to(group.master()).await;
        assert_newcomers_wait(&other).await;
        holders.release().await;
        return;
    }
    panic!("five failovers in a row took too long");
}

/// The old master is stopped with a lock that only it knows, and serves again after the failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_stopped_grants_nothing_when_it_is_back_and_newcomers_follow_later() {
    let group = SentinelGroup::start(Flavor::Redis);
    let quick = || {
        builder(&group.url())
            .window(Duration::from_millis(500))
            .quarantine(Duration::from_secs(8))
            .ttl(Duration::from_secs(4))
    };
    quick().init().await.unwrap();
    let (locks, other) = (
        quick().connect().await.unwrap(),
        quick().connect().await.unwrap(),
    );
    let first = locks.mutex("job").lock().await.unwrap();
    let fence = first.fence();
    let stopped = group.master();
    stopped.pause();
    drop(first);
    group.wait_for_new_master(stopped.port());
    // Until then the former master may grant: the client knows no other, and the new one grants
    // nothing for longer than such a lock lasts.
    wait_until_async(
        "the client to follow to the new master",
        PATIENCE,
        async || {
            let nodes = other.nodes().await;
            let facts = nodes[0].facts.as_ref();
            facts.is_ok_and(|facts| {
                let server = group.master().command(&["INFO", "server"]);
                server.contains(&format!("run_id:{}", facts.run_id))
            })
        },
    )
    .await;
    stopped.resume();
    let second = other
        .mutex("job")
        .wait(PATIENCE)
        .no_quorum_after(PATIENCE)
        .lock()
        .await
        .unwrap();
    assert!(second.fence() > fence);
    assert!(has_key(group.master(), "job"));
    second.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_one_of_three_nodes_and_its_promotion_costs_one_vote() {
    let group = SentinelGroup::start(Flavor::Redis);
    let rest = Fleet::start(2);
    let urls = format!("{},{}", group.url(), rest.urls());
    let locks = new_client(&urls).await;
    let guard = locks.mutex("job").lock().await.unwrap();
    group.fail_over();
    let master = group.master();
    wait_until_async(
        "the lock to be back on the promoted node",
        PATIENCE,
        async || {
            guard.check().unwrap();
            let _ = guard.extend(TTL).await;
            has_key(master, "job")
        },
    )
    .await;
    // The two others are a majority.
    let other = locks.mutex("other").lock().await.unwrap();
    other.release().await.unwrap();
    guard.release().await.unwrap();
}
