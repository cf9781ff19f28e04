//! The restart of the original Redlock page: five nodes without persistence, the lock is held on
//! three of them, and one of the three restarts without data.

use ringfence::ReleaseError;
use ringfence_testkit::{Flavor, Fleet, Server};

use crate::fleet::stage::*;
use crate::scenarios::partition::Partition;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::{refused_by_quarantine_of, until_held_by};

#[tokio::test]
async fn a_node_that_restarted_without_data_does_not_grant_a_held_lock() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(5, |_| Server::builder(flavor));
        builder(&fleet.urls()).init().await.unwrap();
        let party = Partition::before(&fleet, &[3, 4]);
        let (plain, plain_other) = (
            Redlock::connect(&party.urls()).await,
            Redlock::connect(&fleet.urls()).await,
        );
        let (locks, other) = (connect(&party.urls()).await, connect(&fleet.urls()).await);
        party.begin();

        let plain_first = plain.lock("theirs", TTL).await.unwrap();
        let first = locks.mutex("ours").lock().await.unwrap();
        for name in ["theirs", "ours"] {
            until_held_by(&fleet, name, &[true, true, true, false, false]).await;
        }
        fleet[2].restart();

        plain_other.grants_twice(&plain_first, TTL).await;

        // A client that saw the restart, and a new one.
        for other in [other, connect(&fleet.urls()).await] {
            refused_by_quarantine_of(&[2], &other, "ours").await;
            assert_eq!(first.check(), Ok(()));
        }
        let fence = first.fence();
        // Two nodes confirm at once, and a third when the client has reconnected to it.
        let released = first.release().await;
        assert!(
            matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
            "{released:?}"
        );
        assert!(round(&connect(&fleet.urls()).await, "ours").await > fence);
    }
}
