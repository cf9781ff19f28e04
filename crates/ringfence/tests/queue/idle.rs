//! The load of waiting clients while nothing changes.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_testkit::{Fleet, Server, wait_until_async};

use crate::queue::worker::{NAME, Waiters, until_in_queue};

const WINDOW: Duration = Duration::from_secs(5);

/// Five processes refresh all their waiters on each node about once a second, and look at the node
/// as often with three commands: about twenty commands a second. A thousand waiters that poll for
/// themselves would send hundreds.
const PER_SECOND_MAX: f64 = 30.0;

#[tokio::test]
async fn a_thousand_waiters_in_four_processes_send_few_commands_a_second() {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex(NAME).lock().await.unwrap();
    let waiters: Vec<Waiters> = (0..4).map(|_| Waiters::start(&urls, 250, None)).collect();
    until_in_queue(&locks, 1_000, 3).await;
    // Requests of the arrivals may still be in flight.
    wait_until_async("the load to settle", 6 * WINDOW, async || {
        most_per_second(&fleet, Duration::from_secs(1)).await < PER_SECOND_MAX
    })
    .await;
    let most = most_per_second(&fleet, WINDOW).await;
    // The tickets are refreshed: without that they would expire.
    assert!((1.0..PER_SECOND_MAX).contains(&most), "{most}");
    until_in_queue(&locks, 1_000, 3).await;
    for process in waiters {
        process.kill();
    }
    drop(holder);
}

/// The commands per second that the busiest node receives during `window`, from now on.
async fn most_per_second(fleet: &Fleet, window: Duration) -> f64 {
    let before: Vec<u64> = fleet.iter().map(commands).collect();
    let begun = Clock::System.now();
    tokio::time::sleep(window).await;
    let after = fleet.iter().map(commands);
    let sent = after.zip(before).map(|(after, before)| after - before);
    sent.max().unwrap() as f64 / Clock::System.now().since(begun).as_secs_f64()
}

/// The number of commands that clients have sent to `server`. Those that only scripts use are left
/// out, because the server counts them, too.
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

/// One node pushes wakes without end. A waiter must not answer them with as many scripts as the
/// other nodes can execute, but with a few a second.
#[tokio::test]
async fn endless_wakes_from_one_server_cause_few_commands_to_the_others() {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex(NAME).lock().await.unwrap();
    let other = Locks::connect(&urls).await.unwrap();
    let waiting = tokio::spawn(async move { other.mutex(NAME).lock().await });
    until_in_queue(&locks, 1, 3).await;
    let hostile = fleet.iter().next().unwrap();
    let line = format!("ringfence:{{{NAME}}}:queue-order:{NAME}");
    // A member is the time in twenty digits, and the ticket.
    let ticket = hostile.command(&["ZRANGE", &line, "0", "0"]);
    let ticket = ticket.trim()[20..].to_owned();
    let (client, _) = ticket.rsplit_once('.').unwrap();
    let channel = format!("ringfence:wake:{client}");
    let mut connection = redis::Client::open(hostile.url())
        .unwrap()
        .get_connection()
        .unwrap();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let pushing = std::thread::spawn(move || {
        let mut pushed = 0_u64;
        while ended.try_recv().is_err() {
            let receivers: u64 = redis::cmd("PUBLISH")
                .arg((&channel, format!("0 {ticket}")))
                .query(&mut connection)
                .unwrap();
            // The client disconnects from a server that pushes too much, and reconnects after a
            // while.
            assert!(receivers == 1 || pushed > 1_000, "the waiter listens");
            pushed += receivers;
        }
        pushed
    });
    let quiet: Vec<&Server> = fleet.iter().skip(1).collect();
    let before: Vec<u64> = quiet.iter().map(|server| commands(server)).collect();
    tokio::time::sleep(WINDOW).await;
    let after = quiet.iter().map(|server| commands(server));
    let sent: Vec<u64> = after
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    // The lock is handed over meanwhile.
    holder.release().await.unwrap();
    let guard = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    guard.unwrap().unwrap().unwrap().release().await.unwrap();
    end.send(()).unwrap();
    let pushed = pushing.join().unwrap();
    assert!(pushed > 1_000, "{pushed}");
    // An attempt every 50 to 100 ms, the refreshes, and the commands of the test itself.
    let most = 40 * WINDOW.as_secs();
    assert!(
        sent.iter().all(|sent| *sent < most),
        "{sent:?} of {pushed} wakes"
    );
}
