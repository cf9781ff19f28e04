//! Many waiters in several processes for one lock, each holding it for a millisecond: the time from
//! one release to the next grant, compared with an uncontended lock and release.

use ringfence::Locks;
use ringfence_testkit::Fleet;

use crate::sheet::{Aim, Cell, Sheet};
use crate::times::{quantile, uncontended};
use crate::worker::{Crew, PROCESSES};

/// How many locks and releases make a round.
const LOCKS: usize = 200;

pub(crate) async fn measure(nodes: usize, rounds: usize) -> Sheet {
    let title = format!("Hand-over in the queue: {nodes} nodes, waiters in {PROCESSES} processes");
    let columns = ["release to grant µs", "alone µs", "ratio"];
    let mut sheet = Sheet::new("turns", title, &columns);
    let mut ratios = Vec::new();
    for waiters in [32, 256] {
        let [gaps, alone] = one(nodes, rounds, waiters).await;
        let ratio: Vec<f64> = gaps
            .iter()
            .zip(&alone)
            .map(|(gap, alone)| gap / alone)
            .collect();
        let ratio = Cell::of(ratio);
        sheet.row(
            format!("{waiters} waiters"),
            vec![Cell::of(gaps), Cell::of(alone), ratio],
        );
        let median = ratio.map(|ratio| ratio.median);
        sheet.judge(
            format!("{waiters} waiters, against alone"),
            median,
            Aim::AtMost(3.0),
        );
        ratios.extend(median);
    }
    if let [few, many] = ratios[..] {
        // A little more is noise, not growth: there are eight times as many waiters.
        sheet.judge(
            "256 waiters against 32",
            Some(many / few),
            Aim::AtMost(1.25),
        );
    }
    sheet
}

/// The medians of each round, in microseconds: from release to grant, and uncontended.
async fn one(nodes: usize, rounds: usize, waiters: usize) -> [Vec<f64>; 2] {
    let fleet = Fleet::start(nodes);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.expect("a client");
    uncontended(&locks, LOCKS).await;
    let [mut all_gaps, mut all_alone] = [Vec::new(), Vec::new()];
    let median_us = |mut times: Vec<_>| quantile(&mut times, 0.5).as_secs_f64() * 1e6;
    for round in 0..rounds {
        all_alone.push(median_us(uncontended(&locks, LOCKS).await));
        // A new name: killed waiters leave the lock and their tickets behind.
        let crew = Crew::start(&urls, &format!("bench:one:{round}"), waiters);
        // Every waiter has had the lock about once before it counts.
        crew.turns(2 * waiters);
        let turns = crew.turns(LOCKS);
        let gaps = turns
            .windows(2)
            .map(|pair| pair[1].held.since(pair[0].left));
        all_gaps.push(median_us(gaps.collect()));
    }
    [all_gaps, all_alone]
}
