//! The list of all locks among the keys of other programs, on real servers.
//!
//! With `RINGFENCE_LONG` in the environment there are 10,000 locks among 1,000,000 other keys on each
//! of 3 servers, and the test prints how long the list took and how long other clients waited for the
//! servers meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringfence::Locks;
use ringfence::admin::LockList;
use ringfence::clock::Clock;
use ringfence_testkit::{Fleet, Server};
use tokio::task::JoinSet;

/// How many locks are taken at a time.
const TOGETHER: usize = 64;

/// How many locks and how many other keys.
fn sizes() -> (usize, usize) {
    match std::env::var_os("RINGFENCE_LONG") {
        None => (500, 3_000),
        Some(_) => (10_000, 1_000_000),
    }
}

fn quarantine() -> Duration {
    Duration::from_secs(4_000)
}

/// Takes the locks without renewal, so that nothing else happens while they are listed.
async fn take(locks: &Locks, count: usize) {
    let numbers: Vec<usize> = (0..count).collect();
    for chunk in numbers.chunks(TOGETHER) {
        let mut taking = JoinSet::new();
        for number in chunk {
            let lock = locks.mutex(format!("lock:{number:05}"));
            let lock = lock.ttl(Duration::from_secs(3_600)).renew(false);
            taking.spawn(async move { lock.lock().await });
        }
        while let Some(taken) = taking.join_next().await {
            // Not released: the test ends with the servers.
            std::mem::forget(taken.expect("no panic").expect("a free lock"));
        }
    }
}

/// Writes keys of another program.
fn fill(server: &Server, count: usize) {
    let script = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'other:' .. i, i) end";
    for first in (0..count).step_by(20_000) {
        let last = (first + 20_000).min(count) - 1;
        let (first, last) = (first.to_string(), last.to_string());
        server.command(&["EVAL", script, "0", &first, &last]);
    }
}

/// Asks `server` again and again, and returns how long each answer took, sorted.
fn ask_until(server: &Server, done: &AtomicBool) -> Vec<Duration> {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_connection().expect("a connection");
    let mut waits = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let asked = Clock::System.now();
        let _: String = redis::cmd("PING")
            .query(&mut connection)
            .expect("an answer");
        waits.push(Clock::System.now().since(asked));
        thread::sleep(Duration::from_millis(1));
    }
    waits.sort_unstable();
    waits
}

/// Runs `work` while another client asks each server, and prints how long it waited.
async fn beside_others<T>(fleet: &Fleet, what: &str, work: impl Future<Output = T>) -> T {
    let done = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let asking: Vec<_> = fleet
            .iter()
            .map(|server| scope.spawn(|| ask_until(server, &done)))
            .collect();
        let result =
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work));
        done.store(true, Ordering::Relaxed);
        for waits in asking
            .into_iter()
            .map(|asking| asking.join().expect("no panic"))
        {
            let at = |share: usize| waits[(waits.len() - 1) * share / 1000];
            println!(
                "{what}: {} answers, median {:?}, 99.9 % {:?}, longest {:?}",
                waits.len(),
                at(500),
                at(999),
                at(1000)
            );
        }
        result
    })
}

async fn list(locks: &Locks) -> LockList {
    locks.list().collect().await.expect("a majority answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn all_locks_are_found_among_the_keys_of_other_programs() {
    let (count, others) = sizes();
    let fleet = Fleet::start(3);
    let builder = || {
        Locks::builder()
            .nodes(&fleet.urls())
            .quarantine(quarantine())
    };
    builder().init().await.expect("a new cluster");
    let locks = builder().connect().await.expect("a client");
    take(&locks, count).await;
    let among_few = beside_others(&fleet, "few other keys", list(&locks)).await;
    println!("{count} locks among few other keys: {:?}", among_few.took);
    for server in fleet.iter() {
        fill(server, others);
    }
    let idle = tokio::time::sleep(Duration::from_millis(100));
    beside_others(&fleet, "without a list", idle).await;
    let among_many = beside_others(&fleet, "many other keys", list(&locks)).await;
    println!(
        "{count} locks among {others} other keys: {:?}",
        among_many.took
    );
    for list in [among_few, among_many] {
        assert_eq!(list.locks.len(), count);
        let held = |lock: &ringfence::admin::ListedLock| {
            lock.lock.as_ref().is_some_and(|one| one.is_held())
        };
        assert!(list.locks.iter().all(held));
        assert!(list.unreadable.is_empty());
        assert!(list.nodes.iter().all(|node| node.error.is_none()));
    }
}
