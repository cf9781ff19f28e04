//! Nodes whose wall clocks are wrong.

use ringfence_testkit::{Flavor, Fleet, Server, WallClock};

use crate::fleet::stage::*;

const HOUR_US: i64 = 3_600_000_000;
const SECOND_US: i64 = 1_000_000;

/// Servers with the clocks `ahead_us`, and those clocks.
fn skewed(flavor: Flavor, ahead_us: &[i64]) -> (Fleet, Vec<WallClock>) {
    let clocks: Vec<WallClock> = ahead_us
        .iter()
        .map(|&ahead_us| WallClock::ahead_by(ahead_us))
        .collect();
    let fleet = Fleet::start_with(ahead_us.len(), |node| {
        Server::builder(flavor).wall_clock(&clocks[node])
    });
    (fleet, clocks)
}

async fn fences_rise(fleet: &Fleet) {
    let mut last = 0;
    for _ in 0..3 {
        // Each client starts without any knowledge of the clocks. Two nodes alone may disagree.
        let locks = client_of(fleet).await;
        until_all_answer(&locks).await;
        for _ in 0..5 {
            let fence = round(&locks, "n").await;
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        }
    }
}

#[tokio::test]
async fn a_node_an_hour_fast_loses_only_its_vote() {
    let (fleet, _clocks) = skewed(Flavor::Redis, &[0, HOUR_US, 0]);
    fences_rise(&fleet).await;
    let locks = client_of(&fleet).await;
    until_granted_by(&locks, "n", &[true, false, true]).await;
}

#[tokio::test]
async fn a_node_an_hour_slow_loses_only_its_vote() {
    let (fleet, _clocks) = skewed(Flavor::Valkey, &[-HOUR_US, 0, 0]);
    fences_rise(&fleet).await;
    let locks = client_of(&fleet).await;
    until_granted_by(&locks, "n", &[false, true, true]).await;
}

#[tokio::test]
async fn with_one_fast_and_one_slow_node_of_five_three_votes_remain() {
    let (fleet, _clocks) = skewed(Flavor::Redis, &[HOUR_US, 0, -HOUR_US, 0, 0]);
    fences_rise(&fleet).await;
    let locks = client_of(&fleet).await;
    until_granted_by(&locks, "n", &[false, true, false, true, true]).await;
}

#[tokio::test]
async fn clocks_two_seconds_apart_cost_no_vote() {
    let (fleet, _clocks) = skewed(Flavor::Redis, &[2 * SECOND_US, 0, -2 * SECOND_US]);
    fences_rise(&fleet).await;
    let locks = client_of(&fleet).await;
    until_granted_by(&locks, "n", &[true; 3]).await;
}

#[tokio::test]
async fn a_node_votes_again_when_its_clock_is_corrected() {
    let (fleet, clocks) = skewed(Flavor::Redis, &[0, 0, -HOUR_US]);
    let locks = client_of(&fleet).await;
    until_granted_by(&locks, "n", &[true, true, false]).await;
    let before = round(&locks, "n").await;
    clocks[2].set(0);
    until_granted_by(&locks, "n", &[true; 3]).await;
    assert!(round(&locks, "n").await > before);
}
