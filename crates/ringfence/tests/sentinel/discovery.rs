//! Finding the master: passwords and TLS on both sides, Sentinels that cannot be reached, and a
//! client that idles through a failover.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_testkit::{Certificates, Flavor, SentinelGroup, wait_until_async};

use crate::sentinel::stage::*;

#[tokio::test]
async fn servers_and_sentinels_have_passwords_of_their_own() {
    let builder = SentinelGroup::builder(Flavor::Valkey)
        .replicas(0)
        .sentinels(1);
    let group = builder
        .requirepass("data")
        .sentinel_password("watch")
        .start();
    let locks = new_client(&group.url()).await;
    let guard = locks.mutex("job").lock().await.unwrap();
    assert!(has_key(group.master(), "job"));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn servers_and_sentinels_may_require_tls() {
    let certificates = Certificates::generate();
    let builder = SentinelGroup::builder(Flavor::Redis)
        .replicas(0)
        .sentinels(1);
    let group = builder.tls(&certificates).start();
    let authority = certificates.authority_file();
    let url = format!("{}?ca={}", group.url(), authority.display());
    let locks = new_client(&url).await;
    let guard = locks.mutex("job").lock().await.unwrap();
    assert!(has_key(group.master(), "job"));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_sentinel_that_cannot_be_reached_does_not_matter() {
    let group = SentinelGroup::builder(Flavor::Redis).replicas(0).start();
    group.sentinels()[0].kill();
    let locks = new_client(&group.url()).await;
    let guard = locks.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
}

/// A client that only asks how the nodes are holds and wants no lock, so no call of it has the
/// Sentinels asked.
#[tokio::test]
async fn a_group_votes_for_as_long_as_its_state_is_watched() {
    let group = SentinelGroup::builder(Flavor::Redis).replicas(0).start();
    let locks = new_client(&group.url()).await;
    // Longer than a confirmation counts.
    let until = Clock::System.now() + Duration::from_secs(3);
    let mut answered = 0;
    while Clock::System.now() < until || answered == 0 {
        let nodes = locks.nodes().await;
        if nodes[0].facts.is_ok() {
            assert_eq!(nodes[0].discount, None, "{:?}", nodes[0]);
            answered += 1;
        }
    }
}

#[tokio::test]
async fn after_a_failover_the_new_master_tells_of_changes() {
    let group = SentinelGroup::start(Flavor::Valkey);
    let locks = new_client(&group.url()).await;
    let changed = locks.changed_names();
    wait_until_async("the master to tell of changes", PATIENCE, async || {
        changed.covers_all()
    })
    .await;
    let _guard = locks.mutex("before").lock().await.unwrap();
    group.fail_over();
    wait_until_async("the new master to tell of changes", PATIENCE, async || {
        let clients = group.master().command(&["INFO", "clients"]);
        clients.contains("tracking_clients:1") && changed.covers_all()
    })
    .await;
    group
        .master()
        .command(&["SET", "ringfence:{after}:record:after", "1"]);
    let told = async { while !changed.next().await.contains("after") {} };
    tokio::time::timeout(PATIENCE, told)
        .await
        .expect("told of it");
}
