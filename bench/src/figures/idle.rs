//! A thousand waiters in several processes while nothing changes: how many scripts each node runs
//! per second.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_testkit::{Fleet, Server, wait_until_async};

use crate::sheet::{Cell, Sheet};
use crate::worker::{Crew, PROCESSES};

const NAME: &str = "bench:one";
const WAITERS: usize = 1_000;
const WINDOW: Duration = Duration::from_secs(10);

pub(crate) async fn measure(nodes: usize) -> Sheet {
    let fleet = Fleet::start(nodes);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.expect("a client");
    let guard = locks.mutex(NAME).lock().await.expect("a lock");
    let crew = Crew::start(&urls, NAME, WAITERS);
    wait_until_async("all waiters to be in the queue", 6 * WINDOW, async || {
        let inspection = locks.inspect(NAME).await.expect("a majority");
        inspection.waiting == WAITERS as u64
    })
    .await;
    // The scripts of entering the queue are over by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, begun) = (scripts(&fleet[0]), Clock::System.now());
    tokio::time::sleep(WINDOW).await;
    let per_second = (scripts(&fleet[0]) - before) / Clock::System.now().since(begun).as_secs_f64();
    drop(crew);
    drop(guard);
    let title =
        format!("Idle: {nodes} nodes, {WAITERS} waiters in {PROCESSES} processes on one name");
    let mut sheet = Sheet::new("idle", title, &["scripts per s and node"]);
    sheet.row("ringfence", vec![Cell::of([per_second])]);
    sheet
}

/// How many scripts `server` has run.
fn scripts(server: &Server) -> f64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.lines().filter_map(|line| {
        let calls = line.strip_prefix("cmdstat_evalsha:calls=")?;
        calls.split(',').next()?.parse::<f64>().ok()
    });
    calls.sum()
}
