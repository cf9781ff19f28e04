//! Nodes that evict keys when their memory is full.

use ringfence::ConnectError;
use ringfence_testkit::{Flavor, Fleet, Server, wait_until};

use crate::fleet::stage::*;
use crate::scenarios::redlock::Redlock;

/// The memory that the servers may use beyond what they need to run.
const ROOM_BYTES: u64 = 2_000_000;

/// Fills a server's memory with keys that expire, until `name` is gone.
async fn fill_until_gone(server: &Server, name: &str) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let value = "x".repeat(10_000);
    let mut filled = 0;
    while has_key(server, name) {
        assert!(filled < 100_000, "{name} is still there");
        let mut pipe = redis::pipe();
        for key in filled..filled + 100 {
            let set = pipe.cmd("SET").arg(format!("filler:{key}"));
            set.arg(&value).arg("EX").arg(600).ignore();
        }
        let () = pipe.query_async(&mut connection).await.unwrap();
        filled += 100;
    }
}

#[tokio::test]
async fn a_node_that_evicts_does_not_vote_and_the_error_says_why() {
    let fleet = Fleet::start_with(3, |node| Server::builder(Flavor::ALL[node % 2]));
    builder(&fleet.urls()).init().await.unwrap();
    for server in fleet.iter() {
        let memory = server.command(&["INFO", "memory"]);
        let used = memory
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        let used: u64 = used.unwrap().trim().parse().unwrap();
        let most = (used + ROOM_BYTES).to_string();
        server.command(&["CONFIG", "SET", "maxmemory", &most]);
        server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    }
    let plain = Redlock::connect(&fleet.urls()).await;
    let plain_first = plain.lock("theirs", TTL).await.unwrap();
    for evicting in [0, 1] {
        fill_until_gone(&fleet[evicting], "theirs").await;
    }
    plain.grants_twice(&plain_first, TTL).await;

    let error = builder(&fleet.urls()).connect().await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Misconfigured { .. }),
        "{error}"
    );
    says(&error, ["volatile-lru", "set it to noeviction"]);

    // One of them is left as it is; the others hold the lock.
    for fixed in [1, 2] {
        fleet[fixed].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        let memory = ["CONFIG", "SET", "maxmemory", "0"];
        fleet[fixed].command(&memory);
    }
    let locks = connect(&fleet.urls()).await;
    until_granted_by(&locks, "ours", &[false, true, true]).await;
    let guard = locks.mutex("ours").lock().await.unwrap();
    wait_until("the reason in the node's vote", SOON, || {
        let vote = guard.votes()[0].vote.to_string();
        vote.contains("may evict locks (maxmemory-policy volatile-lru)")
    });
}
