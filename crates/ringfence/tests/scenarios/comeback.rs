//! Nodes restart without data one after the other, while a lock is held for longer than all of
//! that.

use ringfence_core::protocol::Vote;
use ringfence_testkit::{Fleet, wait_until_async};

use crate::fleet::stage::*;
use crate::scenarios::redlock::Redlock;
use crate::scenarios::short_quarantine;
use crate::scenarios::witness::{refused_by_quarantine_of, until_held_by};

#[tokio::test]
async fn a_long_held_lock_is_restored_on_every_node_that_lost_it() {
    let fleet = Fleet::start(3);
    short_quarantine::init(&fleet).await;
    let plain = Redlock::connect(&fleet.urls()).await;
    let locks = short_quarantine::connect(&fleet.urls()).await;
    let other = short_quarantine::connect(&fleet.urls()).await;
    let mut plain_first = plain.lock("theirs", TTL).await.unwrap();
    let first = locks.mutex("ours").lock().await.unwrap();

    fleet[0].restart();
    wait_until_async("the lock to be restored", PATIENCE, async || {
        fleet[0].command(&["GET", "ours"]) == first.token().expose()
    })
    .await;
    // The key is there, but does not count before the node may vote again.
    refused_by_quarantine_of(&[0], &other, "ours").await;
    let vote = || first.votes()[0].vote.clone();
    assert!(matches!(vote(), Vote::Quarantined { .. }), "{}", vote());
    wait_until_async("the node to vote again", PATIENCE, async || {
        vote() == Vote::Granted
    })
    .await;

    // The next node loses its data. The majority needs the first one now.
    assert!(plain.extend(&mut plain_first, TTL).await);
    fleet[1].restart();
    assert!(!plain.extend(&mut plain_first, TTL).await);
    plain.grants_twice(&plain_first, TTL).await;

    refused_by_quarantine_of(&[1], &other, "ours").await;
    wait_until_async("every node to have the lock", PATIENCE, async || {
        let token = first.token().expose();
        fleet
            .iter()
            .all(|node| node.command(&["GET", "ours"]) == token)
    })
    .await;
    let deadline = first.exact_deadline();
    wait_until_async("another renewal", PATIENCE, async || {
        first.exact_deadline() > deadline
    })
    .await;
    assert_eq!(first.check(), Ok(()));
    first.release().await.unwrap();
    until_held_by(&fleet, "ours", &[false; 3]).await;
}
