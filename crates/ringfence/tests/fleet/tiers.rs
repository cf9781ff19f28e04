//! Durability tiers: the client finds out what a crash of each server loses, and reports it per
//! grant.

use ringfence::node::{Tier, TroubleKind};
use ringfence::{Guard, Locks};
use ringfence_core::protocol::Vote;
use ringfence_testkit::{Flavor, Fleet, Persistence, Server, ServerBuilder, wait_until_async};

use crate::fleet::stage::*;

use Persistence::{AofAlways, AofEverysec, Snapshot};

fn keeping(flavor: Flavor, persistence: Persistence) -> ServerBuilder {
    Server::builder(flavor).persistence(persistence)
}

/// A guard that all nodes have granted.
async fn held(locks: &Locks) -> Guard {
    let guard = locks.mutex("n").lock().await.unwrap();
    wait_until_async("every node to vote", PATIENCE, async || {
        granted_by(&guard).iter().all(|granted| *granted)
    })
    .await;
    guard
}

#[tokio::test]
async fn a_grant_is_as_durable_as_its_majority() {
    for (persistences, expected) in [
        ([AofAlways, AofAlways, Persistence::None], Tier::Durable),
        ([AofAlways, AofEverysec, Snapshot], Tier::Quarantined),
    ] {
        let fleet = Fleet::start_with(3, |node| keeping(Flavor::Redis, persistences[node]));
        builder(&fleet.urls()).init().await.unwrap();
        let locks = connect(&fleet.urls()).await;
        let guard = held(&locks).await;
        let tiers: Vec<Tier> = guard.votes().iter().filter_map(|node| node.tier).collect();
        let single = persistences.map(|persistence| match persistence {
            AofAlways => Tier::Durable,
            _ => Tier::Quarantined,
        });
        assert_eq!(tiers, single);
        assert_eq!(guard.durability(), expected);
        let seen = locks.inspect("n").await.unwrap();
        assert_eq!(seen.durability, Some(expected));
        guard.release().await.unwrap();
        assert_eq!(locks.inspect("n").await.unwrap().durability, None);
    }
}

#[tokio::test]
async fn a_single_node_without_durability_is_best_effort() {
    for (persistence, expected) in [
        (Persistence::None, Tier::BestEffort),
        (AofEverysec, Tier::BestEffort),
        (AofAlways, Tier::Durable),
    ] {
        let server = keeping(Flavor::Valkey, persistence).start();
        let locks = connect(&server.url()).await;
        assert_eq!(held(&locks).await.durability(), expected, "{persistence:?}");
    }
}

#[tokio::test]
async fn without_quarantine_every_grant_is_best_effort() {
    let fleet = Fleet::start_with(3, |_| keeping(Flavor::Redis, AofAlways));
    let locks = client_of(&fleet).await;
    assert_eq!(held(&locks).await.durability(), Tier::BestEffort);
}

#[tokio::test]
async fn without_the_right_to_config_the_durable_option_of_the_url_counts() {
    let guarded = |persistence| {
        keeping(Flavor::Redis, persistence)
            .acl_file("user default on nopass ~* &* +@all -config")
            .start()
    };
    let server = guarded(AofAlways);
    let locks = connect(&server.url()).await;
    assert_eq!(held(&locks).await.durability(), Tier::BestEffort);
    // A server that was recorded as not durable stays so until its restart.
    let server = guarded(AofAlways);
    let locks = connect(&format!("{}?durable=yes", server.url())).await;
    assert_eq!(held(&locks).await.durability(), Tier::Durable);
    // But not if the server has no append-only file at all.
    let server = guarded(Persistence::None);
    let error = builder(&format!("{}?durable=yes", server.url()))
        .connect()
        .await;
    says(&error.unwrap_err(), ["is not durable", "appendonly"]);
}

#[tokio::test]
async fn a_server_that_is_less_durable_than_its_url_claims_does_not_vote() {
    let fleet = Fleet::start_with(3, |node| match node {
        1 => keeping(Flavor::Redis, AofEverysec),
        _ => keeping(Flavor::Redis, AofAlways),
    });
    let urls: Vec<String> = fleet
        .iter()
        .map(|server| format!("{}?durable=yes", server.url()))
        .collect();
    let error = builder(&urls.join(",")).init().await.unwrap_err();
    says(
        &error,
        [&address(&fleet[1]), "is not durable", "appendfsync"],
    );
    builder(&fleet.urls()).init().await.unwrap();
    let locks = connect(&urls.join(",")).await;
    until_granted_by(&locks, "n", &[true, false, true]).await;
    let guard = locks.mutex("n").lock().await.unwrap();
    assert_eq!(guard.durability(), Tier::Durable);
    wait_until_async("the vote of the second node", SOON, async || {
        matches!(&guard.votes()[1].vote, Vote::Failed(error) if error.trouble().kind == TroubleKind::NotDurable)
    })
    .await;
}
