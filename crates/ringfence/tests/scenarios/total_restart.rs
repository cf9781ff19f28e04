//! Every node restarts at once, without data.

use ringfence::AcquireError;
use ringfence_testkit::{Flavor, Fleet, Server};

use crate::fleet::stage::*;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::short_quarantine;

#[tokio::test]
async fn after_a_restart_of_all_nodes_no_lock_is_granted_before_the_quarantine_ends() {
    let fleet = Fleet::start_with(3, |node| Server::builder(Flavor::ALL[node % 2]));
    short_quarantine::init(&fleet).await;
    let plain = Redlock::connect(&fleet.urls()).await;
    let locks = short_quarantine::connect(&fleet.urls()).await;
    let other = short_quarantine::connect(&fleet.urls()).await;

    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let mut fences = Vec::new();
    for name in ["a", "b", "c"] {
        fences.push((name, round(&locks, name).await));
    }
    let first = locks.mutex("ours").lock().await.unwrap();
    fences.push(("ours", first.fence()));

    let restarted_at = now();
    fleet.iter().for_each(Server::kill);
    fleet.iter().for_each(Server::restart);

    plain.grants_twice(&plain_first, TTL).await;

    // A caller that does not wait that long gets an error at once; the holder at its deadline.
    let new_client = short_quarantine::connect(&fleet.urls()).await;
    let error = new_client.mutex("ours").try_lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::Quarantined { .. }), "{error}");
    let second = short_quarantine::granted_after_quarantine(&other, &first, restarted_at).await;
    second.release().await.unwrap();
    for (name, fence) in fences {
        let later = round(&new_client, name).await;
        assert!(later > fence, "{name}: {later} after {fence}");
    }
}
