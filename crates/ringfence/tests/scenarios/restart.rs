//! The restart of the original page: five nodes without persistence, the lock is held on three of
//! them, and one of the three comes back empty.

use ringfence::ReleaseError;
use ringfence_testkit::{Flavor, Fleet, Server};

use crate::partition::Partition;
use crate::redlock::Redlock;
use crate::stage::*;
use crate::witness::{refused_by_quarantine_of, until_held_by};

#[tokio::test]
async fn a_node_that_came_back_empty_does_not_grant_what_it_had_granted() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(5, |_| Server::builder(flavor));
        builder(&fleet.urls()).init(false).await.unwrap();
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

        // The one that saw it happen, and one that comes new to it.
        for other in [other, connect(&fleet.urls()).await] {
            refused_by_quarantine_of(&[2], &other, "ours").await;
            assert_eq!(first.check(), Ok(()));
        }
        let fence = first.fence();
        // Two confirm at once, and a third when it has been met again.
        let released = first.release().await;
        assert!(
            matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
            "{released:?}"
        );
        assert!(round(&connect(&fleet.urls()).await, "ours").await > fence);
    }
}
