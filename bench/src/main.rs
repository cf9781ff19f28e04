//! What ringfence costs, measured on real servers of this machine. Figures are ratios within one
//! run: rounds of the things that are compared take turns, so that a noisy machine disturbs both.
//!
//! ```text
//! cargo run --release -p ringfence-bench -- --nodes 5
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence::time::Timestamp;
use ringfence_testkit::Fleet;

/// What ringfence costs, measured on real servers of this machine.
#[derive(Debug, Parser)]
struct Args {
    /// How many servers.
    #[arg(long, default_value_t = 5)]
    nodes: usize,
    /// How many rounds of each kind, taking turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How many times a lock is taken and given back in one round.
    #[arg(long, default_value_t = 500)]
    locks: usize,
}

fn main() {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        hung_node(&args).await;
        for waiters in [32, 256] {
            hand_over(&args, waiters).await;
        }
        idle(&args).await;
    });
}

/// One task, lock and release: all healthy, and with one node that has stopped answering.
async fn hung_node(args: &Args) {
    let fleet = Fleet::start(args.nodes);
    let locks = Locks::connect(&fleet.urls_without_quarantine())
        .await
        .expect("a client");
    let (mut healthy, mut hung) = (Vec::new(), Vec::new());
    measure(&locks, args.locks).await;
    for _ in 0..args.rounds {
        healthy.extend(measure(&locks, args.locks).await);
        fleet[0].pause();
        hung.extend(measure(&locks, args.locks).await);
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
    let ratio = |q| {
        quantile(&mut hung.clone(), q).as_secs_f64()
            / quantile(&mut healthy.clone(), q).as_secs_f64()
    };
    println!("ratio          {:>7.2} {:>10.2}", ratio(0.5), ratio(0.99));
}

/// Many who want one lock, each holding it for a millisecond: from one release to the next grant,
/// against one lock and release without anybody else.
async fn hand_over(args: &Args, waiters: usize) {
    let fleet = Fleet::start(args.nodes);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.expect("a client");
    measure(&locks, args.locks).await;
    let alone = quantile(&mut measure(&locks, args.locks).await, 0.5);

    let gaps = Arc::new(Mutex::new((None::<Timestamp>, Vec::new())));
    let work = |locks: Locks| {
        let gaps = Arc::clone(&gaps);
        async move {
            for _ in 0..4.max(1_000 / waiters) {
                let guard = locks.mutex("bench:one").lock().await.expect("a lock");
                let held = Clock::System.now();
                {
                    let mut gaps = gaps.lock().expect("no panic");
                    if let Some(left) = gaps.0.take() {
                        gaps.1.push(held.since(left));
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                gaps.lock().expect("no panic").0 = Some(Clock::System.now());
                guard.release().await.expect("a release");
            }
        }
    };
    let tasks: Vec<_> = (0..waiters)
        .map(|_| tokio::spawn(work(locks.clone())))
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let gap = quantile(&mut gaps.lock().expect("no panic").1, 0.5);
    let ratio = gap.as_secs_f64() / alone.as_secs_f64();
    println!(
        "hand-over, {} nodes, {waiters} waiters: release to next grant p50 {gap:.0?}, alone {alone:.0?}, ratio {ratio:.2}",
        args.nodes
    );
}

/// A thousand who wait while nothing changes: what each node is asked in a second.
async fn idle(args: &Args) {
    let fleet = Fleet::start(args.nodes);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.expect("a client");
    let guard = locks.mutex("bench:one").lock().await.expect("a lock");
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let client = Locks::connect(&urls).await.expect("a client");
        for _ in 0..250 {
            let client = client.clone();
            tasks.push(tokio::spawn(async move {
                client.mutex("bench:one").lock().await.map(drop)
            }));
        }
    }
    let commands = || -> f64 {
        let stats = fleet[0].command(&["INFO", "commandstats"]);
        let calls = stats.lines().filter_map(|line| {
            let calls = line.strip_prefix("cmdstat_evalsha:calls=")?;
            calls.split(',').next()?.parse::<f64>().ok()
        });
        calls.sum()
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, begun) = (commands(), Clock::System.now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let per_second = (commands() - before) / Clock::System.now().since(begun).as_secs_f64();
    println!(
        "idle, 1,000 waiters of 4 clients on one name: {per_second:.1} scripts a second and node"
    );
    for task in tasks {
        task.abort();
    }
    drop(guard);
}

async fn measure(locks: &Locks, count: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let lock = locks.mutex(format!("bench:{number}"));
        let begun = Clock::System.now();
        let guard = lock.lock().await.expect("a lock");
        guard.release().await.expect("a release");
        times.push(Clock::System.now().since(begun));
    }
    times
}

async fn granted_by_all(locks: &Locks) -> bool {
    let guard = locks.mutex("bench:probe").lock().await.expect("a lock");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let votes = guard.votes();
    let all = votes
        .iter()
        .all(|node| node.vote == ringfence::protocol::Vote::Granted);
    guard.release().await.expect("a release");
    all
}

fn quantile(times: &mut [Duration], q: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * q) as usize]
}
