//! One node of three is faulty: it costs one vote, but causes no error and no wait.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Fault, Flavor, Fleet, Proxy, Server, wait_until_async};

use crate::fleet::stage::*;

/// How long a wait for a node would last: the node timeout that belongs to [`TTL`].
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Two good servers and `bad`, which grants nothing. Its vote must contain `expected` in the end.
async fn costs_one_vote(bad: &str, expected: &str) {
    let good = Fleet::start(2);
    let urls = format!("{bad},{}", good.urls_without_quarantine());
    // The first client of a new group waits for the values that the bad node may know.
    connect(&urls).await.close().await;
    let (took, locks) = timed(connect(&urls)).await;
    assert!(took < NODE_TIMEOUT, "connecting took {took:?}");
    let mut last = 0;
    for _ in 0..5 {
        let lock = locks.mutex("n");
        let (took, guard) = timed(lock.lock()).await;
        let guard = guard.unwrap();
        assert!(took < NODE_TIMEOUT, "the lock took {took:?}");
        assert!(guard.fence() > last);
        last = guard.fence();
        let (took, extended) = timed(guard.extend(TTL)).await;
        extended.unwrap();
        assert!(took < NODE_TIMEOUT, "the extension took {took:?}");
        assert!(!granted_by(&guard)[0]);
        let (took, released) = timed(guard.release()).await;
        released.unwrap();
        assert!(took < NODE_TIMEOUT, "the release took {took:?}");
    }
    until_first_vote_contains(&locks, expected).await;
    no_key_remains(good.iter()).await;
}

/// Waits until the vote of the first node contains `expected`.
async fn until_first_vote_contains(locks: &Locks, expected: &str) {
    let what = format!("a vote that contains `{expected}`");
    wait_until_async(&what, SOON, async || {
        let guard = locks.mutex("n").wait(PATIENCE).lock().await.unwrap();
        let vote = guard.votes()[0].vote.to_string();
        guard.release().await.unwrap();
        vote.contains(expected)
    })
    .await;
}

#[tokio::test]
async fn a_wrong_password_costs_one_vote() {
    let bad = Server::builder(Flavor::Valkey)
        .requirepass("secret")
        .start();
    let url = format!("redis://:guess@{}", address(&bad));
    costs_one_vote(&url, "refuses the user or the password").await;
}

#[tokio::test]
async fn a_replica_costs_one_vote() {
    let primary = Server::start(Flavor::Redis);
    let bad = Server::builder(Flavor::Redis).replica_of(&primary).start();
    costs_one_vote(&bad.url(), "name its master instead").await;
}

#[test]
fn a_loading_server_costs_one_vote() {
    let bad = Server::builder(Flavor::Redis)
        .arg("--enable-debug-command", "yes")
        .start();
    bad.command(&["DEBUG", "POPULATE", "6000", "data", "1000"]);
    // Ten milliseconds per key, a minute in all; it serves its clients after each key.
    bad.command(&["CONFIG", "SET", "key-load-delay", "10000"]);
    bad.command(&[
        "CONFIG",
        "SET",
        "loading-process-events-interval-bytes",
        "1024",
    ]);
    thread::scope(|scope| {
        // The server is killed before this is done.
        scope.spawn(|| bad.try_command(&["DEBUG", "RELOAD"]));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            wait_until_async("the server to load", SOON, async || {
                let ping = bad.try_command(&["PING"]);
                ping.is_err_and(|error| error.starts_with("LOADING"))
            })
            .await;
            costs_one_vote(&bad.url_without_quarantine(), "still reading its data").await;
        });
        bad.kill();
    });
}

#[tokio::test]
async fn another_service_on_the_port_costs_one_vote() {
    let other = listener(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = stream.read(&mut [0; 1024]);
    });
    costs_one_vote(&format!("redis://{other}"), "is no Redis server").await;
}

#[tokio::test]
async fn a_listener_that_never_answers_costs_one_vote() {
    let silent = listener(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    costs_one_vote(&format!("redis://{silent}"), "connect").await;
}

#[tokio::test]
async fn a_hung_server_costs_one_vote() {
    let bad = Server::start(Flavor::Redis);
    bad.pause();
    costs_one_vote(&bad.url(), "connect").await;
}

#[tokio::test]
async fn a_server_that_evicts_costs_one_vote() {
    let bad = Server::builder(Flavor::Valkey)
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "allkeys-lru")
        .start();
    costs_one_vote(&bad.url(), "set it to noeviction").await;
}

#[tokio::test]
async fn a_connection_closed_after_the_request_was_sent_costs_one_vote() {
    let fleet = Fleet::start(3);
    let faulty = Proxy::in_front_of(&fleet[0]);
    let urls = format!(
        "{}?quarantine=off,{},{}",
        faulty.url(),
        fleet[1].url_without_quarantine(),
        fleet[2].url_without_quarantine()
    );
    let locks = connect(&urls).await;
    until_granted_by(&locks, "n", &[true; 3]).await;
    for _ in 0..10 {
        faulty.replies(Fault::ResetOnce);
        let lock = locks.mutex("n");
        let (took, guard) = timed(lock.lock()).await;
        let guard = guard.unwrap();
        assert!(took < NODE_TIMEOUT, "{took:?}");
        let (took, released) = timed(guard.release()).await;
        released.unwrap();
        assert!(took < NODE_TIMEOUT, "{took:?}");
    }
    faulty.pass();
    until_granted_by(&locks, "n", &[true; 3]).await;
    locks.close().await;
    no_key_remains(fleet.iter()).await;
}

/// A listener that handles each connection with `handle`.
fn listener(handle: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || handle(stream.unwrap()));
        }
    });
    address
}
