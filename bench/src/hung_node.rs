//! One task, lock and release: all healthy, and with one node that has stopped answering.

use std::time::Duration;

use ringfence::Locks;
use ringfence::protocol::Vote;
use ringfence_testkit::Fleet;

use crate::Args;
use crate::times::{quantile, uncontended};

pub(crate) async fn measure(args: &Args) {
    let fleet = Fleet::start(args.nodes);
    let locks = Locks::connect(&fleet.urls_without_quarantine())
        .await
        .expect("a client");
    let (mut healthy, mut hung) = (Vec::new(), Vec::new());
    uncontended(&locks, args.locks).await;
    for _ in 0..args.rounds {
        healthy.extend(uncontended(&locks, args.locks).await);
        fleet[0].pause();
        hung.extend(uncontended(&locks, args.locks).await);
        fleet[0].resume();
        // Until the client has found it again: the next round is to be a healthy one.
        while !granted_by_all(&locks).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!(
        "lock + release, {} nodes, 1 task, {} rounds of {}",
        args.nodes, args.rounds, args.locks
    );
    println!("                 p50        p99");
    for (name, times) in [("healthy", &mut healthy), ("one node hung", &mut hung)] {
        let (p50, p99) = (quantile(times, 0.5), quantile(times, 0.99));
        println!("{name:<14} {p50:>7.0?} {p99:>10.0?}");
    }
    let mut ratio =
        |q| quantile(&mut hung, q).as_secs_f64() / quantile(&mut healthy, q).as_secs_f64();
    println!("ratio          {:>7.2} {:>10.2}", ratio(0.5), ratio(0.99));
}

async fn granted_by_all(locks: &Locks) -> bool {
    let guard = locks.mutex("bench:probe").lock().await.expect("a lock");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let all = guard.votes().iter().all(|node| node.vote == Vote::Granted);
    guard.release().await.expect("a release");
    all
}
