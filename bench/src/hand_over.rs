//! Many in several processes who want one lock, each holding it for a millisecond: from one release
//! to the next grant, against one lock and release that nobody else wants.

use ringfence::Locks;
use ringfence_testkit::Fleet;

use crate::Args;
use crate::times::{quantile, uncontended};
use crate::worker::{Crew, PROCESSES};

pub(crate) async fn measure(args: &Args, waiters: usize) {
    let fleet = Fleet::start(args.nodes);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.expect("a client");
    uncontended(&locks, args.locks).await;
    let (mut alone, mut gaps) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        alone.extend(uncontended(&locks, args.locks).await);
        // A name of its own: those who are killed at the end leave the lock and their tickets behind.
        let crew = Crew::start(&urls, &format!("bench:one:{round}"), waiters);
        // Everybody has had the lock about once before it counts.
        crew.turns(2 * waiters);
        let turns = crew.turns(args.locks);
        gaps.extend(
            turns
                .windows(2)
                .map(|pair| pair[1].held.since(pair[0].left)),
        );
    }
    let (gap, alone) = (quantile(&mut gaps, 0.5), quantile(&mut alone, 0.5));
    let ratio = gap.as_secs_f64() / alone.as_secs_f64();
    println!(
        "hand-over, {} nodes, {waiters} waiters in {PROCESSES} processes: release to next grant p50 \
         {gap:.2?}, alone {alone:.2?}, ratio {ratio:.2}",
        args.nodes
    );
}
