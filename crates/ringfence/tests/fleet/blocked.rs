//! A lock survives code that blocks its tokio runtime: a thread renews it over connections of its own.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::observe::{Event, Listener};
use ringfence::{Guard, Locks, Lost};
use ringfence_testkit::{Flavor, Fleet, Server, wait_until, wait_until_async};
use tokio::task::JoinSet;

use crate::fleet::blocking_code::*;
use crate::fleet::stage::{PATIENCE, SOON, has_key};

#[test]
fn blocking_code_keeps_its_lock_on_one_server() {
    let server = Server::start(Flavor::Redis);
    keeps_its_lock_everywhere(&server.url());
}

#[test]
fn blocking_code_keeps_its_lock_on_five_servers() {
    let fleet = Fleet::start(5);
    keeps_its_lock_everywhere(&fleet.urls_without_quarantine());
}

#[test]
fn blocking_code_keeps_its_lock_in_memory() {
    keeps_its_lock_everywhere("memory:blocked");
}

#[cfg(feature = "sqlite")]
#[test]
fn blocking_code_keeps_its_lock_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    keeps_its_lock_everywhere(&format!("sqlite:{}", file.display()));
}

#[cfg(feature = "blocking")]
#[test]
fn the_blocking_api_keeps_its_lock() {
    let server = Server::start(Flavor::Redis);
    let locks = ringfence::blocking::Locks::connect(&server.url()).unwrap();
    let guard = locks.mutex("x").ttl(SHORT_TTL).lock().unwrap();
    thread::sleep(blocked_for());
    assert_eq!(guard.check(), Ok(()));
    guard.release().unwrap();
}

/// Takes "x" on `locks`, blocks, and checks it.
async fn block_under(locks: &Locks) -> Result<(), Lost> {
    let guard = locks.mutex("x").ttl(SHORT_TTL).lock().await.unwrap();
    thread::sleep(blocked_for());
    let kept = guard.check();
    guard.release().await.unwrap();
    kept
}

#[test]
fn a_node_made_from_a_client_of_the_crate_redis_keeps_its_lock() {
    let server = Server::start(Flavor::Valkey);
    let client = redis::Client::open(server.url()).unwrap();
    let kept = On::CurrentThread.run(async move {
        let node = RedisNode::from_client(client, "own", Clock::System).unwrap();
        let locks = Locks::builder().node(node).connect().await.unwrap();
        block_under(&locks).await
    });
    assert_eq!(kept, Ok(()));
}

/// The release of another guard wakes the task of the connections on the very thread that blocks then.
/// No other thread takes the task over, but the keeper runs on.
#[test]
fn a_lock_is_kept_if_only_the_connections_are_stuck() {
    let server = Server::start(Flavor::Redis);
    let url = server.url();
    let kept = On::MultiThread.run(async move {
        let locks = Locks::connect(&url).await.unwrap();
        let other = locks.mutex("other").lock().await.unwrap();
        let guard = locks.mutex("x").ttl(SHORT_TTL).lock().await.unwrap();
        drop(other);
        thread::sleep(blocked_for());
        guard.check()
    });
    assert_eq!(kept, Ok(()));
}

/// More than are renewed at once.
#[test]
fn thousands_of_locks_are_kept() {
    const LOCKS: usize = 3_000;
    let server = Server::start(Flavor::Redis);
    let url = server.url();
    let lost = On::CurrentThread.run(async move {
        let locks = Locks::connect(&url).await.unwrap();
        let mut taking = JoinSet::new();
        for number in 0..LOCKS {
            let lock = locks
                .mutex(format!("many-{number}"))
                .ttl(Duration::from_secs(5));
            taking.spawn(async move { lock.lock().await.unwrap() });
        }
        let guards: Vec<Guard> = taking.join_all().await;
        thread::sleep(Duration::from_secs(12));
        guards.iter().filter(|guard| guard.check().is_err()).count()
    });
    assert_eq!(lost, 0, "of {LOCKS}");
}

struct Losses(Sender<Lost>);

impl Listener for Losses {
    fn on_event(&self, event: &Event) {
        if let Event::Lost { why, .. } = event {
            let _ = self.0.send(*why);
        }
    }
}

#[test]
fn a_loss_is_told_while_the_tokio_runtime_is_blocked() {
    let server = Server::start(Flavor::Redis);
    let url = server.url();
    let (tell, told) = mpsc::channel();
    On::CurrentThread.run(async move {
        let builder = Locks::builder()
            .nodes(&url)
            .listener(Arc::new(Losses(tell)));
        let locks = builder.connect().await.unwrap();
        let lock = locks.mutex("x").ttl(SHORT_TTL);
        let guard = lock.lock().await.unwrap();
        server.command(&["DEL", "x"]);
        server.command(&["SET", "x", "another holder", "PX", "60000"]);
        // Blocks until the event.
        let why = told.recv_timeout(PATIENCE);
        assert_eq!(why, Ok(Lost::Gone));
        assert_eq!(guard.check(), Err(Lost::Gone));
    });
}

#[test]
fn max_hold_ends_a_lock_while_the_tokio_runtime_is_blocked() {
    let server = Server::start(Flavor::Redis);
    let url = server.url();
    let (tell, told) = mpsc::channel();
    On::CurrentThread.run(async move {
        let builder = Locks::builder()
            .nodes(&url)
            .listener(Arc::new(Losses(tell)));
        let locks = builder.connect().await.unwrap();
        let lock = locks.mutex("x").ttl(SHORT_TTL).max_hold(SHORT_TTL * 2);
        let guard = lock.lock().await.unwrap();
        let begun = Clock::System.now();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Lost::MaxHold));
        assert!(Clock::System.now().since(begun) > SHORT_TTL);
        assert_eq!(guard.check(), Err(Lost::MaxHold));
    });
}

/// Not even a renewal of the second line that is under way brings it back.
#[test]
fn a_guard_that_is_dropped_in_blocking_code_is_released() {
    let server = Server::start(Flavor::Redis);
    let url = server.url();
    On::CurrentThread.run(async move {
        let locks = Locks::connect(&url).await.unwrap();
        let guard = locks.mutex("x").ttl(SHORT_TTL).lock().await.unwrap();
        // The second line has taken over.
        wait_until("a renewal over another connection", PATIENCE, || {
            connections(&server) > 1
        });
        thread::sleep(SHORT_TTL);
        assert!(has_key(&server, "x"));
        drop(guard);
        wait_until("the release", SOON, || !has_key(&server, "x"));
        thread::sleep(SHORT_TTL);
        assert!(!has_key(&server, "x"));
    });
}

/// The connections to `server`, without the one of the question.
fn connections(server: &Server) -> usize {
    let clients = server.command(&["CLIENT", "LIST"]);
    clients
        .lines()
        .filter(|line| !line.contains("cmd=client"))
        .count()
}

#[test]
fn the_second_connections_are_closed_when_they_are_no_longer_needed() {
    let server = Server::start(Flavor::Redis);
    let url = server.url();
    one_thread().block_on(async move {
        let locks = Locks::connect(&url).await.unwrap();
        // The questions to the server are blocking code, too, and may be slow.
        let ttl = Duration::from_secs(5);
        let guard = locks.mutex("x").ttl(ttl).lock().await.unwrap();
        assert_eq!(connections(&server), 1);
        // Without `await`: the code blocks until the second line renews.
        let patience = Duration::from_secs(60);
        wait_until("the second connection", patience, || {
            connections(&server) == 2
        });
        let closed = wait_until_async("the second to close", patience, async || {
            connections(&server) == 1
        });
        closed.await;
        assert_eq!(guard.check(), Ok(()));
    });
}

/// The thread had planned to look at the first client's lock, earlier than at the second one's.
#[test]
fn a_client_that_comes_after_another_keeps_its_lock() {
    let hold = |node, ttl, blocked| {
        On::CurrentThread.run(async move {
            let locks = Locks::connect(node).await.unwrap();
            let guard = locks.mutex("x").ttl(ttl).lock().await.unwrap();
            thread::sleep(blocked);
            assert_eq!(guard.check(), Ok(()));
        });
    };
    hold("memory:first", SHORT_TTL / 2, Duration::ZERO);
    hold("memory:second", SHORT_TTL, SHORT_TTL * 2);
}

/// How many threads of the second line this process has.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names
        .filter(|name| name.trim() == "ringfence-renew")
        .count()
}

#[test]
fn all_clients_of_a_process_share_one_thread() {
    On::MultiThread.run(async {
        let one = Locks::connect("memory:threads").await.unwrap();
        // A thread sets its name when it starts.
        wait_until_async("the thread", PATIENCE, async || threads() == 1).await;
        let two = Locks::connect("memory:threads-2").await.unwrap();
        for locks in [&one, &two] {
            let guard = locks.mutex("x").ttl(SHORT_TTL).lock().await.unwrap();
            thread::sleep(SHORT_TTL);
            assert_eq!(guard.check(), Ok(()));
        }
        assert_eq!(threads(), 1);
    });
}
