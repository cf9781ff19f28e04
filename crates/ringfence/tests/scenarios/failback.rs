//! A replica is promoted and then demoted again, and no server is restarted: the master has its old
//! run id, but has lost what it granted in between.

use ringfence_testkit::{Flavor, Fleet, Proxy, Server, ServerBuilder, wait_until};

use crate::fleet::stage::*;
use crate::scenarios::partition::Partition;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::witness::refused_by_quarantine_of;

/// A server that starts to replicate at once.
fn quick(flavor: Flavor) -> ServerBuilder {
    Server::builder(flavor).feeding_at_once()
}

/// Which client asks for the lock while the first client still has it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asking {
    /// A client that was connected all the time.
    Connected,
    /// A client that connects afterwards.
    Fresh,
}

/// A has the replica R. R is promoted, which no client notices. One client locks on {A, B}. A
/// becomes a replica of R and is promoted again. Another client must not get the lock on {A, C}.
async fn fail_over_and_back(flavor: Flavor, asking: Asking) {
    let (master, replica) = (quick(flavor).start(), quick(flavor).start());
    let rest = Fleet::start_with(2, |_| quick(flavor));
    let address = Proxy::in_front_of(&master);
    let party = Partition::before(&rest, &[1]);
    let urls = format!("{},{}", master.url(), rest.urls());
    let party_urls = format!("{},{}", address.url(), party.urls());
    replica.follow(&master);
    builder(&urls).init().await.unwrap();
    let (plain, plain_other) = (
        Redlock::connect(&party_urls).await,
        Redlock::connect(&urls).await,
    );
    let locks = connect(&party_urls).await;
    let connected = match asking {
        Asking::Connected => {
            let other = connect(&urls).await;
            until_granted_by(&other, "another", &[true; 3]).await;
            Some(other)
        }
        Asking::Fresh => None,
    };
    let born = ["GET", "ringfence:born"];
    wait_until("the replica to have the birth record", PATIENCE, || {
        replica.command(&born) == master.command(&born)
    });
    replica.promote();
    party.begin();

    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();
    assert!(has_key(&master, "ours") && !has_key(&rest[1], "ours"));
    // From now on the first client cannot reach the master.
    address.refuse();
    master.follow(&replica);
    master.promote();
    assert!(has_key(&master, "ringfence:born") && !has_key(&master, "ours"));

    plain_other.grants_twice(&plain_first, TTL).await;
    let other = match connected {
        Some(other) => other,
        None => connect(&urls).await,
    };
    refused_by_quarantine_of(&[0], &other, "ours").await;
    assert_eq!(first.check(), Ok(()), "{flavor:?} {asking:?}");
}

#[tokio::test]
async fn a_connected_client_gets_no_second_lock_after_a_failover_and_back() {
    for flavor in Flavor::ALL {
        fail_over_and_back(flavor, Asking::Connected).await;
    }
}

#[tokio::test]
async fn a_fresh_client_gets_no_second_lock_after_a_failover_and_back() {
    for flavor in Flavor::ALL {
        fail_over_and_back(flavor, Asking::Fresh).await;
    }
}
