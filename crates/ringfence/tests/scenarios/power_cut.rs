//! Nodes that write to disk and lose power.

use std::time::Duration;

use ringfence_testkit::{Flavor, Fleet, Persistence, Server, wait_until};

use crate::fleet::stage::*;
use crate::scenarios::partition::Partition;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::{refused_by_quarantine_of, until_held_by};

fn fleet_with(flavor: Flavor, persistence: Persistence) -> Fleet {
    Fleet::start_with(3, |_| Server::builder(flavor).persistence(persistence))
}

/// What a node has on disk at one moment.
enum OnDisk {
    Snapshot,
    /// The length of its append-only file.
    Written(u64),
}

impl OnDisk {
    /// The present data on the disk of `server`, with its birth record, so that it is not a new
    /// node.
    fn of(server: &Server, persistence: Persistence) -> Self {
        if persistence == Persistence::Snapshot {
            server.command(&["SAVE"]);
            return Self::Snapshot;
        }
        wait_until("the data to be written", SOON, || server.written() > 0);
        Self::Written(server.written())
    }

    /// Cuts the power of `server`, which restarts with this data only.
    fn restart_with_it(self, server: &Server) {
        server.kill();
        if let Self::Written(mark) = self {
            server.lose_writes_after(mark);
        }
        server.restart();
    }
}

#[tokio::test]
async fn a_node_that_lost_its_last_writes_does_not_grant_a_held_lock() {
    for (flavor, persistence) in [
        (Flavor::Redis, Persistence::AofEverysec),
        (Flavor::Valkey, Persistence::AofEverysec),
        (Flavor::Redis, Persistence::Snapshot),
    ] {
        let fleet = fleet_with(flavor, persistence);
        builder(&fleet.urls()).init().await.unwrap();
        let party = Partition::before(&fleet, &[2]);
        let (plain, plain_other) = (
            Redlock::connect(&party.urls()).await,
            Redlock::connect(&fleet.urls()).await,
        );
        let (locks, other) = (connect(&party.urls()).await, connect(&fleet.urls()).await);
        let before = round(&locks, "before").await;
        let on_disk = OnDisk::of(&fleet[1], persistence);
        party.begin();

        let plain_first = plain.lock("theirs", TTL).await.unwrap();
        let first = locks.mutex("ours").lock().await.unwrap();
        assert!(first.fence() > before);
        for name in ["theirs", "ours"] {
            until_held_by(&fleet, name, &[true, true, false]).await;
        }
        on_disk.restart_with_it(&fleet[1]);
        assert!(has_key(&fleet[1], "ringfence:born") && !has_key(&fleet[1], "ours"));

        plain_other.grants_twice(&plain_first, TTL).await;
        for other in [other, connect(&fleet.urls()).await] {
            refused_by_quarantine_of(&[1], &other, "ours").await;
            assert_eq!(first.check(), Ok(()));
        }
    }
}

#[tokio::test]
async fn a_durable_node_keeps_the_lock_after_a_power_cut_and_votes_at_once() {
    for flavor in Flavor::ALL {
        let fleet = fleet_with(flavor, Persistence::AofAlways);
        builder(&fleet.urls()).init().await.unwrap();
        let party = Partition::before(&fleet, &[2]);
        let (locks, other) = (connect(&party.urls()).await, connect(&fleet.urls()).await);
        party.begin();
        let first = locks.mutex("ours").lock().await.unwrap();
        until_held_by(&fleet, "ours", &[true, true, false]).await;
        fleet[1].restart();
        until_granted_by(&other, "another", &[true; 3]).await;
        let error = other.mutex("ours").try_lock().await.unwrap_err();
        let votes = error.votes().unwrap().iter();
        let held = votes.filter(|node| node.vote.to_string().contains("held by"));
        assert_eq!(held.count(), 2, "{error}");
        first.extend(TTL).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_expired_while_its_nodes_were_down_is_free_after_their_restart() {
    for persistence in [Persistence::AofAlways, Persistence::AofEverysec] {
        let fleet = fleet_with(Flavor::Redis, persistence);
        builder(&fleet.urls()).init().await.unwrap();
        let locks = connect(&fleet.urls()).await;
        until_granted_by(&locks, "another", &[true; 3]).await;
        let ttl = Duration::from_secs(2);
        let plain = Redlock::connect(&fleet.urls()).await;
        let plain_first = plain.lock("theirs", ttl).await.unwrap();
        let lock = locks.mutex("ours").ttl(ttl).renew(false);
        let first = lock.lock().await.unwrap();
        fleet.iter().for_each(Server::shutdown_cleanly);
        let (deadline, fence) = (first.exact_deadline(), first.fence());
        wait_until("the lock to expire", PATIENCE, || {
            now() > deadline + ttl / 10
        });
        fleet.iter().for_each(Server::restart);
        assert!(!plain_first.is_valid());
        for server in fleet.iter() {
            assert!(!has_key(server, "theirs") && !has_key(server, "ours"));
        }
        let record = "ringfence:{ours}:record:ours";
        let remember = fleet.iter().filter(|server| has_key(server, record));
        assert!(remember.count() >= 2);
        // A durable node votes at once, and has the fence.
        if persistence == Persistence::AofAlways {
            assert!(round(&locks, "ours").await > fence);
        }
    }
}
