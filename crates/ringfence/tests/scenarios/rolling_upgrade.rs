//! One node after the other is shut down cleanly and started again, with everything on disk.

use ringfence_core::protocol::Vote;
use ringfence_testkit::{Flavor, Fleet, Persistence, Server, wait_until_async};

use crate::fleet::stage::*;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::until_held_by;

#[tokio::test]
async fn a_lock_is_held_through_a_rolling_upgrade_of_durable_nodes() {
    let fleet = Fleet::start_with(3, |node| {
        Server::builder(Flavor::ALL[node % 2]).persistence(Persistence::AofAlways)
    });
    builder(&fleet.urls()).init().await.unwrap();
    let plain = Redlock::connect(&fleet.urls()).await;
    let (locks, other) = (connect(&fleet.urls()).await, connect(&fleet.urls()).await);
    until_granted_by(&locks, "another", &[true; 3]).await;
    let mut plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();
    for name in ["theirs", "ours"] {
        until_held_by(&fleet, name, &[true; 3]).await;
    }

    for node in 0..3 {
        fleet[node].shutdown_cleanly();
        fleet[node].restart();
        // The node votes as soon as it is reached again, since everything was on disk.
        wait_until_async("the node to vote again", SOON, async || {
            first.extend(TTL).await.unwrap();
            let vote = first.votes()[node].vote.clone();
            assert!(!matches!(vote, Vote::Quarantined { .. }), "{vote}");
            vote == Vote::Granted
        })
        .await;
        // The original algorithm is right here, too: the expiry of a key is a time of day, and on
        // disk.
        assert!(plain.lock("theirs", TTL).await.is_none());
        assert!(plain.extend(&mut plain_first, TTL).await);
        let error = other.mutex("ours").try_lock().await.unwrap_err();
        says(&error, ["is held by"]);
    }
    assert_eq!(first.check(), Ok(()));
    let fence = first.fence();
    first.release().await.unwrap();
    until_granted_by(&other, "ours", &[true; 3]).await;
    assert!(round(&other, "ours").await > fence);
}
