//! What those who wait cost while nothing changes.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_testkit::{Fleet, Server, wait_until_async};

use crate::worker::{NAME, Waiters, in_line};

const WINDOW: Duration = Duration::from_secs(5);

/// Five processes that show all who wait to each node about once a second, and look at the node as often
/// with three questions, send about twenty commands a second; a thousand who ask for themselves would
/// send hundreds.
const PER_SECOND_MAX: f64 = 30.0;

#[tokio::test]
async fn a_thousand_who_wait_in_four_processes_send_a_few_commands_a_second() {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex(NAME).lock().await.unwrap();
    let waiters: Vec<Waiters> = (0..4).map(|_| Waiters::start(&urls, 250, None)).collect();
    in_line(&locks, 1_000, 3).await;
    // What they said when they came may still be on its way.
    wait_until_async("them to settle", 6 * WINDOW, async || {
        most_per_second(&fleet, Duration::from_secs(1)).await < PER_SECOND_MAX
    })
    .await;
    let most = most_per_second(&fleet, WINDOW).await;
    // They are refreshed: silence would cost them their places.
    assert!((1.0..PER_SECOND_MAX).contains(&most), "{most}");
    in_line(&locks, 1_000, 3).await;
    for process in waiters {
        process.kill();
    }
    drop(holder);
}

/// How many commands a second the busiest node is sent in the time to come.
async fn most_per_second(fleet: &Fleet, window: Duration) -> f64 {
    let before: Vec<u64> = fleet.iter().map(commands).collect();
    let begun = Clock::System.now();
    tokio::time::sleep(window).await;
    let after = fleet.iter().map(commands);
    let sent = after.zip(before).map(|(after, before)| after - before);
    sent.max().unwrap() as f64 / Clock::System.now().since(begun).as_secs_f64()
}

/// How many commands clients have sent to `server`. The server counts what scripts carry out, too.
fn commands(server: &Server) -> u64 {
    const BY_SCRIPTS: &str = "del exists get hdel hget hset mget pexpire pttl set time zadd zcard zcount \
        zlexcount zrange zrangebyscore zrank zrem zscore publish";
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let by_clients = BY_SCRIPTS.split_whitespace().all(|other| other != command);
        let calls = rest.split(',').next()?.parse::<u64>().ok()?;
        by_clients.then_some(calls)
    });
    calls.sum()
}
