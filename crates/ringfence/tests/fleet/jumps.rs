//! Servers whose wall clocks are set while a lock is held on them.

use ringfence::{Locks, Lost};
use ringfence_core::protocol::Vote;
use ringfence_testkit::{Flavor, Fleet, Server, WallClock, wait_until_async};

use crate::fleet::stage::*;

const HOUR_US: i64 = 3_600_000_000;

/// Servers that vote, and their clocks.
async fn clocked(flavor: Flavor, nodes: usize) -> (Fleet, Vec<WallClock>) {
    let clocks: Vec<WallClock> = (0..nodes).map(|_| WallClock::ahead_by(0)).collect();
    let fleet = Fleet::start_with(nodes, |node| {
        Server::builder(flavor).wall_clock(&clocks[node])
    });
    if nodes > 1 {
        builder(&fleet.urls()).init().await.unwrap();
    }
    (fleet, clocks)
}

/// A client that has seen the clock of every server: without that it cannot detect a jump.
async fn client_that_knows_the_clocks(fleet: &Fleet) -> Locks {
    let locks = connect(&fleet.urls()).await;
    for node in locks.nodes().await {
        assert!(node.facts.is_ok(), "{node:?}");
    }
    locks
}

async fn jumps(locks: &Locks) -> Vec<u64> {
    let nodes = locks.nodes().await;
    nodes.iter().map(|node| node.clock_jumps).collect()
}

/// The clock jump of the Redlock debate: the key of the third server expires while the lock is
/// held.
#[tokio::test]
async fn the_next_extend_detects_a_clock_step_past_the_ttl_and_the_node_loses_its_vote() {
    for flavor in Flavor::ALL {
        let (fleet, clocks) = clocked(flavor, 5).await;
        let locks = client_that_knows_the_clocks(&fleet).await;
        let other = client_that_knows_the_clocks(&fleet).await;
        let lock = locks.mutex("n").renew(false);
        let guard = lock.lock().await.unwrap();
        // A majority is enough for the lock. The third server may get it later than that.
        wait_until_async("all servers to grant", SOON, async || {
            granted_by(&guard) == [true; 5]
        })
        .await;
        clocks[2].set(30_000_000);
        wait_until_async("the third key to expire", SOON, async || {
            !has_key(&fleet[2], "n")
        })
        .await;
        guard.extend(TTL).await.unwrap();
        wait_until_async("the third vote to come in", SOON, async || {
            matches!(guard.votes()[2].vote, Vote::ClockJumped { .. })
        })
        .await;
        assert_eq!(jumps(&locks).await, [0, 0, 1, 0, 0]);
        let status = locks.nodes().await;
        let discount = &status[2].discount;
        assert!(
            matches!(discount, Some(Vote::ClockJumped { by_us, .. }) if *by_us > 25_000_000),
            "{discount:?}"
        );
        // The key is restored there, which has no disadvantage.
        wait_until_async("the third key to be restored", SOON, async || {
            has_key(&fleet[2], "n")
        })
        .await;
        // Another client that knew the clock detects the jump by itself.
        let error = other.mutex("n").try_lock().await.unwrap_err();
        says(&error, ["is held by"]);
        assert_eq!(jumps(&other).await, [0, 0, 1, 0, 0]);
        until_granted_by(&other, "m", &[true, true, false, true, true]).await;
        assert_eq!(guard.check(), Ok(()));
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn two_separate_clock_jumps_of_three_leave_no_majority_and_no_second_holder() {
    let (fleet, clocks) = clocked(Flavor::Redis, 3).await;
    let locks = client_that_knows_the_clocks(&fleet).await;
    let other = client_that_knows_the_clocks(&fleet).await;
    let guard = locks.mutex("n").renew(false).lock().await.unwrap();
    clocks[0].set(30_000_000);
    clocks[1].set(60_000_000);
    let error = other.mutex("n").try_lock().await.unwrap_err();
    says(&error, ["the clocks of nodes", &address(&fleet[0])]);
    says(&error, [&address(&fleet[1]), "may vote in"]);
    assert_eq!(guard.check(), Ok(()));
}

#[tokio::test]
async fn if_a_majority_steps_alike_the_client_assumes_its_own_pause_and_loses_every_guard() {
    let (fleet, clocks) = clocked(Flavor::Redis, 3).await;
    let locks = client_that_knows_the_clocks(&fleet).await;
    let guard = locks.mutex("n").lock().await.unwrap();
    let other = locks.mutex("m").lock().await.unwrap();
    let lost = tokio::spawn(async move { other.lost().await });
    clocks.iter().for_each(|clock| clock.set(HOUR_US));
    // The renewal of `other` is due after a third of the TTL; this extend is sooner.
    let error = guard.extend(TTL).await.unwrap_err();
    says(&error, ["this machine was paused"]);
    let why = tokio::time::timeout(SOON, lost).await.unwrap().unwrap();
    assert_eq!(why, Lost::ClockFroze);
    assert_eq!(guard.check(), Err(Lost::ClockFroze));
    assert_eq!(locks.standstills(), 1);
    drop(guard);
    // And no node loses its vote for it.
    until_granted_by(&locks, "n", &[true; 3]).await;
    assert_eq!(jumps(&locks).await, [0; 3]);
}

#[tokio::test]
async fn a_clock_step_of_a_single_node_loses_its_guards() {
    let (fleet, clocks) = clocked(Flavor::Valkey, 1).await;
    let locks = client_that_knows_the_clocks(&fleet).await;
    let guard = locks.mutex("n").renew(false).lock().await.unwrap();
    clocks[0].set(30_000_000);
    // Valkey may notice only after a moment that its clock was set.
    wait_until_async("the step to be detected", SOON, async || {
        guard.extend(TTL).await.is_err()
    })
    .await;
    assert_eq!(guard.check(), Err(Lost::ClockFroze));
    says(&Lost::ClockFroze, ["this machine was paused"]);
    drop(guard);
    round(&locks, "n").await;
}

#[tokio::test]
async fn a_server_that_hangs_for_seconds_is_not_taken_for_a_clock_jump() {
    let (fleet, _clocks) = clocked(Flavor::Redis, 3).await;
    let locks = client_that_knows_the_clocks(&fleet).await;
    round(&locks, "n").await;
    let guard = locks.mutex("n").lock().await.unwrap();
    fleet[1].pause();
    guard.extend(TTL).await.unwrap();
    wait_until_async("the hung server to time out", PATIENCE, async || {
        matches!(guard.votes()[1].vote, Vote::Failed(_) | Vote::TimedOut)
    })
    .await;
    fleet[1].resume();
    until_granted_by(&locks, "m", &[true; 3]).await;
    assert_eq!(jumps(&locks).await, [0; 3]);
    guard.release().await.unwrap();
}
