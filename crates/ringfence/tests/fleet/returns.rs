//! Nodes that restart or are demoted while a lock is held, and vote again later or not.

use std::time::Duration;

use ringfence::node::TroubleKind;
use ringfence::{ExtendError, Guard, Locks};
use ringfence_core::protocol::Vote;
use ringfence_testkit::{Flavor, Fleet, Server, wait_until_async};

use crate::fleet::stage::*;

/// Short enough for a test to wait; the longest TTL is five seconds less.
const QUARANTINE: Duration = Duration::from_secs(8);
const SHORT: Duration = Duration::from_secs(2);

async fn with_short_quarantine(nodes: usize) -> (Fleet, Locks) {
    let fleet = Fleet::start(nodes);
    let short = builder(&fleet.urls())
        .window(Duration::from_millis(500))
        .quarantine(QUARANTINE);
    short.init().await.unwrap();
    let locks = Locks::builder().nodes(&fleet.urls()).ttl(SHORT);
    (fleet, locks.connect().await.unwrap())
}

fn is_replica(vote: &Vote) -> bool {
    matches!(vote, Vote::Failed(error) if error.trouble().kind == TroubleKind::Replica)
}

/// Extends until the votes are as `wanted` requires.
#[track_caller]
fn extended_until(
    guard: &Guard,
    what: &'static str,
    wanted: impl Fn(&[Vote]) -> bool,
) -> impl Future<Output = ()> {
    wait_until_async(what, PATIENCE, async move || {
        // The test itself checks whether a majority confirmed.
        let _ = guard.extend(TTL).await;
        let votes: Vec<Vote> = guard.votes().iter().map(|node| node.vote.clone()).collect();
        wanted(&votes)
    })
}

#[tokio::test]
async fn a_held_lock_is_on_all_nodes_again_after_one_restarted_without_data() {
    let (fleet, locks) = with_short_quarantine(5).await;
    let guard = locks.mutex("n").lock().await.unwrap();
    wait_until_async("every node to vote", PATIENCE, async || {
        granted_by(&guard) == [true; 5]
    })
    .await;
    fleet[1].restart();
    assert!(!has_key(&fleet[1], "n"));
    wait_until_async("the token to be restored", PATIENCE, async || {
        fleet[1].command(&["GET", "n"]) == guard.token().expose()
    })
    .await;
    // The node holds the key, but its vote does not count before its quarantine is over.
    wait_until_async("the restarted node to answer", PATIENCE, async || {
        matches!(guard.votes()[1].vote, Vote::Quarantined { .. })
    })
    .await;
    wait_until_async("its vote to count again", PATIENCE, async || {
        granted_by(&guard) == [true; 5]
    })
    .await;
    assert_eq!(guard.check(), Ok(()));
    guard.release().await.unwrap();
    no_key_remains(fleet.iter()).await;
}

#[tokio::test]
async fn the_next_extend_detects_a_master_that_was_demoted_while_a_lock_is_held() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        builder(&fleet.urls()).init().await.unwrap();
        let locks = connect(&fleet.urls()).await;
        // A majority is enough for a grant, but not if a node of it will be demoted.
        until_granted_by(&locks, "m", &[true; 3]).await;
        let guard = locks.mutex("n").renew(false).lock().await.unwrap();
        extended_until(&guard, "every node to have the lock", |votes| {
            votes.iter().all(|vote| *vote == Vote::Granted)
        })
        .await;
        let master = Server::start(flavor);
        let port = master.port().to_string();
        let demote = |node: usize| {
            fleet[node].command(&["CONFIG", "SET", "masteruser", "testkit"]);
            fleet[node].command(&["CONFIG", "SET", "masterauth", "testkit"]);
            fleet[node].command(&["REPLICAOF", "127.0.0.1", &port]);
        };
        demote(2);
        guard.extend(TTL).await.unwrap();
        extended_until(&guard, "the replica to be detected", |votes| {
            is_replica(&votes[2])
        })
        .await;
        assert_eq!(guard.check(), Ok(()), "two of three confirm");
        until_granted_by(&locks, "m", &[true, true, false]).await;

        demote(1);
        extended_until(&guard, "the other replica to be detected", |votes| {
            is_replica(&votes[1]) && is_replica(&votes[2])
        })
        .await;
        let error = guard.extend(TTL).await.unwrap_err();
        assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
        says(&error, [&address(&fleet[1]), &address(&fleet[2])]);
        says(&error, ["name its master instead"]);
        let error = locks.mutex("m").lock().await.unwrap_err();
        says(&error, ["not fit", "replicas do not vote"]);
    }
}
