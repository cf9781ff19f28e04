//! Sentinels that hang, lie, forget or are gone, without any failover.

use std::time::Duration;

use ringfence_testkit::{
    FakeSentinel, Flavor, SentinelGroup, Server, Testimony, wait_until, wait_until_async,
};

use crate::rules::log::Log;
use crate::sentinel::stage::*;

/// Waits until a warning has `text`. The lock `job` is held and extended meanwhile, under one birth.
async fn until_warned(group: &SentinelGroup, urls: &str, log: &Log, text: &str) {
    let locks = new_client(urls).await;
    let before = born(group);
    let guard = locks.mutex("job").lock().await.unwrap();
    wait_until_async(text, PATIENCE, async || {
        guard.extend(TTL).await.unwrap();
        log.warnings().iter().any(|warning| warning.contains(text))
    })
    .await;
    locks
        .mutex("another")
        .try_lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    guard.release().await.unwrap();
    assert_eq!(born(group), before);
}

#[tokio::test]
async fn a_hung_sentinel_of_three_costs_a_warning_and_nothing_else() {
    let (log, _listening) = Log::listen();
    let group = SentinelGroup::builder(Flavor::Redis).replicas(1).start();
    group.sentinels()[1].pause();
    until_warned(&group, &group.url(), &log, "has not answered").await;
}

#[tokio::test]
async fn a_sentinel_that_names_an_old_master_costs_a_warning_and_nothing_else() {
    let (log, _listening) = Log::listen();
    let group = SentinelGroup::builder(Flavor::Redis).replicas(1).start();
    let old = Server::start(Flavor::Redis);
    let id = "ab".repeat(20);
    let fake = FakeSentinel::start(Testimony::of(SentinelGroup::SERVICE, &id, old.addr()));
    let sentinels = group.sentinels();
    let ports = [fake.port(), sentinels[0].port(), sentinels[1].port()];
    until_warned(
        &group,
        &group.url_at(&ports),
        &log,
        "but the majority names",
    )
    .await;
    assert!(fake.asked() > 0);
    assert_eq!(old.command(&["GET", "ringfence:born"]), "");
}

#[tokio::test]
async fn a_sentinel_after_a_reset_costs_a_warning_and_nothing_else() {
    let (log, _listening) = Log::listen();
    let group = SentinelGroup::builder(Flavor::Valkey).replicas(1).start();
    // The real one would find the others again within a second.
    let id = "cd".repeat(20);
    let fake = FakeSentinel::start(Testimony {
        others: 0,
        ..Testimony::of(SentinelGroup::SERVICE, &id, group.master().addr())
    });
    group.sentinels()[2].command(&["SENTINEL", "RESET", SentinelGroup::SERVICE]);
    let ports: Vec<u16> = group.sentinels()[1..].iter().map(Server::port).collect();
    let ports = [fake.port(), ports[0], ports[1]];
    until_warned(
        &group,
        &group.url_at(&ports),
        &log,
        "knows 1 of 3 Sentinels",
    )
    .await;
}

/// It is believed neither while it is there nor when it is gone: its number is not recorded.
#[tokio::test]
async fn a_sentinel_that_invents_others_costs_a_warning_and_nothing_else() {
    for others in [3, 4_000_000_000] {
        let (log, _listening) = Log::listen();
        let group = SentinelGroup::builder(Flavor::Redis).replicas(0).start();
        let id = "ef".repeat(20);
        let fake = FakeSentinel::start(Testimony {
            others,
            ..Testimony::of(SentinelGroup::SERVICE, &id, group.master().addr())
        });
        let sentinels = group.sentinels();
        let ports = [fake.port(), sentinels[0].port(), sentinels[1].port()];
        let urls = group.url_at(&ports);
        let text = "but the majority knows 3";
        until_warned(&group, &urls, &log, text).await;
        assert_eq!(born(&group).split(' ').nth(4), Some("3"));
        drop(fake);
        let locks = client(&urls).await;
        let guard = locks.mutex("job").lock().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn without_a_majority_of_sentinels_the_holder_is_lost_at_its_deadline_and_told_why() {
    let group = SentinelGroup::builder(Flavor::Redis).replicas(0).start();
    let ttl = Duration::from_secs(4);
    let locks = new_client(&group.url()).await;
    let guard = locks.mutex("job").ttl(ttl).lock().await.unwrap();
    for sentinel in &group.sentinels()[1..] {
        sentinel.kill();
    }
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost, ringfence::Lost::Expired, "{lost}");
    let error = locks.mutex("other").try_lock().await.unwrap_err();
    let error = said(error.votes().unwrap());
    assert!(
        error.contains("1 of the 3 Sentinels of `orders` answered"),
        "{error}"
    );
    assert!(error.contains("and 2 must confirm the master"), "{error}");
    for sentinel in [1, 2] {
        group.restart_sentinel(sentinel);
    }
    let again = locks
        .mutex("other")
        .wait(PATIENCE)
        .no_quorum_after(PATIENCE);
    again.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_first_and_the_last_replica_cost_no_birth() {
    let group = SentinelGroup::builder(Flavor::Redis)
        .replicas(0)
        .sentinels(1)
        .start();
    let locks = new_client(&group.url()).await;
    let birth = || {
        let born = born(&group);
        let fields: Vec<&str> = born.split(' ').collect();
        // The run id, the epoch, since when nothing was lost, and the birth.
        [fields[1], fields[3], fields[6], fields[7]].map(str::to_owned)
    };
    let guard = locks.mutex("job").lock().await.unwrap();
    let before = birth();
    let replica = Server::builder(Flavor::Redis)
        .replica_of(group.master())
        .start();
    wait_until_async("the replica to be recorded", PATIENCE, async || {
        let _ = guard.extend(TTL).await;
        born(&group).split(' ').nth(5) == Some("1")
    })
    .await;
    replica.kill();
    wait_until("the replica to be gone", PATIENCE, || {
        group
            .master()
            .command(&["INFO", "replication"])
            .contains("connected_slaves:0")
    });
    // The backlog is freed with another replication id.
    group
        .master()
        .command(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
    let id = |text: String| {
        text.lines()
            .find(|line| line.starts_with("master_replid:"))
            .map(str::to_owned)
    };
    let old = id(group.master().command(&["INFO", "replication"]));
    wait_until("the backlog to be freed", PATIENCE, || {
        id(group.master().command(&["INFO", "replication"])) != old
    });
    wait_until_async(
        "an extend under the new replication id",
        PATIENCE,
        async || {
            guard.check().unwrap();
            guard.extend(TTL).await.is_ok()
        },
    )
    .await;
    assert_eq!(birth(), before);
    guard.release().await.unwrap();
}
