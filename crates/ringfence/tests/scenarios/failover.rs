//! A replica is promoted that had not received the last lock.

use std::time::Duration;

use ringfence_core::protocol::Vote;
use ringfence_testkit::{Flavor, Fleet, Persistence, Proxy, Server, wait_until, wait_until_async};

use crate::fleet::stage::*;
use crate::scenarios::partition::Partition;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::{refused_by_quarantine_of, until_held_by};

/// A master with a replica, and the address of whichever is the present master.
pub(crate) struct Pair {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    link: Proxy,
    pub(crate) address: Proxy,
}

impl Pair {
    pub(crate) fn start(flavor: Flavor, persistence: Persistence) -> Self {
        let master = Server::builder(flavor).persistence(persistence).start();
        let link = Proxy::in_front_of(&master);
        let replica = Server::builder(flavor)
            .persistence(persistence)
            .replica_through(&link, &master)
            .start();
        let address = Proxy::in_front_of(&master);
        Self {
            master,
            replica,
            link,
            address,
        }
    }

    /// From now on the replica misses what its master writes, but has what was written before.
    pub(crate) fn cut_replication(&self) {
        until_same_birth(&self.master, &self.replica);
        self.link.refuse();
    }

    pub(crate) fn fail_over(&self) {
        self.master.kill();
        self.replica.command(&["REPLICAOF", "NO", "ONE"]);
        self.address.lead_to(&self.replica);
    }
}

fn until_same_birth(master: &Server, replica: &Server) {
    let born = ["GET", "ringfence:born"];
    wait_until("the replica to have the birth record", PATIENCE, || {
        let birth = replica.command(&born);
        !birth.is_empty() && birth == master.command(&born)
    });
}

#[tokio::test]
async fn a_promoted_replica_that_missed_a_lock_does_not_vote() {
    for (flavor, persistence) in [
        (Flavor::Redis, Persistence::None),
        (Flavor::Redis, Persistence::AofAlways),
        (Flavor::Valkey, Persistence::AofAlways),
    ] {
        let pair = Pair::start(flavor, persistence);
        let rest = Fleet::start_with(2, |_| Server::builder(flavor).persistence(persistence));
        let party = Partition::before(&rest, &[1]);
        let urls = format!("{},{}", pair.address.url(), rest.urls());
        let party_urls = format!("{},{}", pair.address.url(), party.urls());
        builder(&urls).init().await.unwrap();
        let (plain, plain_other) = (
            Redlock::connect(&party_urls).await,
            Redlock::connect(&urls).await,
        );
        let (locks, other) = (connect(&party_urls).await, connect(&urls).await);
        pair.cut_replication();
        party.begin();

        let plain_first = plain.lock("theirs", TTL).await.unwrap();
        let first = locks.mutex("ours").lock().await.unwrap();
        assert!(has_key(&pair.master, "ours") && !has_key(&rest[1], "ours"));
        pair.fail_over();
        assert!(!has_key(&pair.replica, "ours"));

        plain_other.grants_twice(&plain_first, TTL).await;

        for other in [other, connect(&urls).await] {
            refused_by_quarantine_of(&[0], &other, "ours").await;
            assert_eq!(first.check(), Ok(()));
        }
    }
}

/// With `failover=ignore` the lock of a single server may be granted twice. The order remains: the
/// later grant has the higher fence.
#[tokio::test]
async fn a_failover_of_a_single_node_that_is_ignored_keeps_the_order_of_fences() {
    let pair = Pair::start(Flavor::Redis, Persistence::None);
    let urls = format!("{}?failover=ignore", pair.address.url());
    let plain = Redlock::connect(&urls).await;
    let (locks, other) = (connect(&urls).await, connect(&urls).await);
    pair.cut_replication();
    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();
    pair.fail_over();

    plain.grants_twice(&plain_first, TTL).await;
    let second = other.mutex("ours").wait(PATIENCE).lock().await.unwrap();
    assert!(second.fence() > first.fence());
}

#[tokio::test]
async fn the_next_extend_notices_a_demoted_master() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    until_granted_by(&locks, "another", &[true; 3]).await;
    let guard = locks.mutex("n").lock().await.unwrap();
    until_held_by(&fleet, "n", &[true; 3]).await;
    let stranger = Server::start(Flavor::Redis);
    let port = stranger.port().to_string();
    fleet[1].command(&["REPLICAOF", "127.0.0.1", &port]);
    wait_until_async("the demotion to be noticed", SOON, async || {
        guard.extend(TTL).await.unwrap();
        let vote = guard.votes()[1].vote.clone();
        assert_ne!(vote, Vote::Granted);
        vote.to_string().contains("replica")
    })
    .await;
    assert!(guard.remaining() > TTL / 2, "{:?}", guard.remaining());
    tokio::time::timeout(Duration::from_secs(5), guard.release())
        .await
        .expect("a release in time")
        .unwrap();
}

/// Started as a master it does not show that it was a replica, and has the birth of a durable
/// master.
#[tokio::test]
async fn a_replica_that_is_started_as_a_master_does_not_vote() {
    for flavor in Flavor::ALL {
        let durable = || Server::builder(flavor).persistence(Persistence::AofAlways);
        let (master, replica) = (durable().start(), durable().start());
        let link = Proxy::in_front_of(&master);
        let address = Proxy::in_front_of(&master);
        let rest = Fleet::start_with(2, |_| durable());
        let party = Partition::before(&rest, &[1]);
        let urls = format!("{},{}", address.url(), rest.urls());
        let party_urls = format!("{},{}", address.url(), party.urls());
        builder(&urls).init().await.unwrap();
        // Not in its configuration, so that its next start makes it a master.
        let port = link.addr().port().to_string();
        replica.command(&["REPLICAOF", "127.0.0.1", &port]);
        wait_until("the master to have a replica", PATIENCE, || {
            let replication = master.command(&["INFO", "replication"]);
            replication.contains("state=online")
        });
        let (plain, plain_other) = (
            Redlock::connect(&party_urls).await,
            Redlock::connect(&urls).await,
        );
        let (locks, other) = (connect(&party_urls).await, connect(&urls).await);
        until_granted_by(&locks, "another", &[true; 3]).await;
        until_same_birth(&master, &replica);
        // The data of the initial synchronisation is on its disk only after this.
        wait_until("the replica to start the rewrite", PATIENCE, || {
            replica.try_command(&["BGREWRITEAOF"]).is_ok()
        });
        wait_until("the replica to have everything on disk", PATIENCE, || {
            let persistence = replica.command(&["INFO", "persistence"]);
            persistence.contains("aof_rewrite_in_progress:0")
                && persistence.contains("aof_rewrite_scheduled:0")
        });
        link.refuse();
        party.begin();

        let plain_first = plain.lock("theirs", TTL).await.unwrap();
        let first = locks.mutex("ours").lock().await.unwrap();
        assert!(has_key(&master, "ours") && !has_key(&rest[1], "ours"));
        master.kill();
        replica.restart();
        assert!(has_key(&replica, "ringfence:born") && !has_key(&replica, "ours"));
        assert!(replica.command(&["ROLE"]).starts_with("master"));
        address.lead_to(&replica);

        plain_other.grants_twice(&plain_first, TTL).await;
        for other in [other, connect(&urls).await] {
            refused_by_quarantine_of(&[0], &other, "ours").await;
            assert_eq!(first.check(), Ok(()));
        }
    }
}
