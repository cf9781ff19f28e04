//! `FLUSHALL` while a lock is held.

use ringfence::ExtendError;
use ringfence_testkit::{Flavor, Fleet, Server, wait_until_async};

use crate::fleet::stage::*;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::short_quarantine;
use crate::scenarios::witness::{refused_by_quarantine_of, until_held_by};

#[tokio::test]
async fn a_flushed_minority_does_not_affect_the_lock() {
    let fleet = Fleet::start_with(5, |node| Server::builder(Flavor::ALL[node % 2]));
    builder(&fleet.urls()).init().await.unwrap();
    let plain = Redlock::connect(&fleet.urls()).await;
    let (locks, other) = (connect(&fleet.urls()).await, connect(&fleet.urls()).await);
    until_granted_by(&locks, "another", &[true; 5]).await;
    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();
    for name in ["theirs", "ours"] {
        until_held_by(&fleet, name, &[true; 5]).await;
    }

    for flushed in [1, 4] {
        fleet[flushed].command(&["FLUSHALL"]);
    }
    // All five held the lock, so three still do: the original algorithm is right here, too.
    assert!(plain.lock("theirs", TTL).await.is_none() && plain_first.is_valid());
    refused_by_quarantine_of(&[1, 4], &other, "ours").await;
    wait_until_async("every node to have the lock again", PATIENCE, async || {
        first.extend(TTL).await.unwrap();
        let token = first.token().expose();
        fleet
            .iter()
            .all(|node| node.command(&["GET", "ours"]) == token)
    })
    .await;
    first.release().await.unwrap();
}

#[tokio::test]
async fn a_flushed_majority_is_noticed_and_grants_no_lock_before_its_quarantine_ends() {
    let fleet = Fleet::start(5);
    short_quarantine::init(&fleet).await;
    let plain = Redlock::connect(&fleet.urls()).await;
    let locks = short_quarantine::connect(&fleet.urls()).await;
    let other = short_quarantine::connect(&fleet.urls()).await;
    until_granted_by(&locks, "another", &[true; 5]).await;
    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();
    for name in ["theirs", "ours"] {
        until_held_by(&fleet, name, &[true; 5]).await;
    }

    let flushed_at = now();
    for flushed in [0, 2, 3] {
        fleet[flushed].command(&["FLUSHALL"]);
    }
    plain.grants_twice(&plain_first, TTL).await;

    let error = first.extend(short_quarantine::TTL).await.unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
    let _second = short_quarantine::granted_after_quarantine(&other, &first, flushed_at).await;
}
