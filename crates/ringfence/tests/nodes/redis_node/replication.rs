//! Servers that get replicas, become replicas and are promoted again within one run; and settings
//! that are changed while a server runs.

use std::time::Duration;

use redis::Commands;
use ringfence::node::{Node, Tier, TroubleKind};
use ringfence_core::message::{Acquire, AcquireSlot, Answer, Claim, Downgrade, Standing};

use ringfence_testkit::{Flavor, Persistence, Server, ServerBuilder, wait_until, wait_until_async};

use super::*;
use crate::nodes::support::*;

const BORN: &str = "ringfence:born";
/// A user with all rights except to read the settings.
const NO_CONFIG: &str = "user default on nopass ~* &* +@all\nuser lock on >pw ~* &* +@all -config";

/// A server that starts to replicate at once.
fn quick(flavor: Flavor) -> ServerBuilder {
    Server::builder(flavor).feeding_at_once()
}

/// The fields of the birth record, without the values of the group.
fn born(server: &Server) -> Vec<String> {
    let text: String = client(server).get(BORN).unwrap();
    text.split(' ').take(9).map(str::to_owned).collect()
}

/// The marks "replicated" and "durable" of the birth record.
fn marks(server: &Server) -> (bool, bool) {
    let born = born(server);
    (born[5] == "1", born[8] == "1")
}

fn info(server: &Server, section: &str, field: &str) -> String {
    let info = server.command(&["INFO", section]);
    let mut values = info.lines().filter_map(|line| line.split_once(':'));
    let found = values.find(|(name, _)| *name == field);
    found
        .unwrap_or_else(|| panic!("no {field} in {info}"))
        .1
        .trim()
        .to_owned()
}

/// Counts how often clients other than this one send `INFO` to a server.
struct InfoCounter<'a> {
    server: &'a Server,
    own: u64,
}

impl<'a> InfoCounter<'a> {
    fn at(server: &'a Server) -> Self {
        server.command(&["CONFIG", "RESETSTAT"]);
        Self { server, own: 0 }
    }

    fn count(&mut self) -> u64 {
        let stats = self.server.command(&["INFO", "commandstats"]);
        let mut calls = stats
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_info:calls="));
        let calls = calls.next().and_then(|rest| rest.split(',').next());
        let calls: u64 = calls.map_or(0, |calls| calls.parse().unwrap());
        self.own += 1;
        calls - (self.own - 1)
    }
}

/// Waits for something that the node does by itself.
#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    wait_until_async(what, PATIENCE, async move || condition())
}

/// Acquires `name` for longer than any test takes, and returns the standing under which it was
/// granted.
async fn hold(node: &RedisNode, name: &str) -> Standing {
    let ballot = ballot(node).await;
    let acquire = acquire(ballot, 120_000);
    let reply = call_until_answered(node, request(&[name], ALICE, acquire)).await;
    assert_eq!(reply.answer, Answer::Granted);
    reply.standing
}

#[tokio::test]
async fn the_first_replica_does_not_cause_a_birth() {
    for flavor in Flavor::ALL {
        let server = quick(flavor).start();
        let node = member(&server).await;
        let before = hold(&node, "n").await;
        let replica = quick(flavor).start();
        replica.follow(&server);
        // While a lock is held the node examines the server without any call.
        until("the replica to be seen", || marks(&server).0).await;
        assert_eq!(
            born(&server)[2],
            info(&server, "replication", "master_replid")
        );
        let after = hold(&node, "m").await;
        assert_eq!(after.incarnation, before.incarnation, "{flavor:?}");
        assert_eq!(after.born_us, before.born_us, "{flavor:?}");
    }
}

#[tokio::test]
async fn a_replica_that_was_not_seen_at_once_does_not_cause_a_birth() {
    let server = quick(Flavor::Redis).start();
    let node = member(&server).await;
    let before = hold(&node, "n").await;
    call(&node, request(&["n"], ALICE, release(ballot(&node).await)))
        .await
        .unwrap();
    let replica = quick(Flavor::Redis).start();
    replica.follow(&server);
    let after = hold(&node, "m").await;
    assert_eq!(after.incarnation, before.incarnation);
    // The changed replication id shows that there was a replica.
    until("the replica to be recorded", || marks(&server).0).await;
}

#[tokio::test]
async fn a_new_replication_id_is_a_birth_if_the_backlog_ttl_is_short_or_unknown() {
    let short = || quick(Flavor::Redis).arg("--repl-backlog-ttl", "34");
    let denied = || quick(Flavor::Redis).acl_file(NO_CONFIG);
    for (server, login) in [(short().start(), ""), (denied().start(), "lock:pw@")] {
        let node = node(&format!("redis://{login}{}", server.addr()));
        join(&node, group()).await.unwrap();
        let before = hold(&node, "n").await;
        let replica = quick(Flavor::Redis).start();
        replica.follow(&server);
        until("the replica to be seen", || marks(&server).0).await;
        let after = hold(&node, "m").await;
        assert_ne!(after.incarnation, before.incarnation, "{login}");
        assert!(after.born_us > before.born_us, "{login}");
    }
}

#[tokio::test]
async fn a_master_that_was_demoted_and_promoted_again_is_another_incarnation() {
    for flavor in Flavor::ALL {
        let (server, replica) = (quick(flavor).start(), quick(flavor).start());
        replica.follow(&server);
        let (node, other) = (member(&server).await, member(&server).await);
        let before = hold(&node, "n").await;
        let fresh = ballot(&other).await;
        replica.promote();
        let run_id = info(&server, "server", "run_id");
        server.follow(&replica);
        server.promote();
        assert_eq!(info(&server, "server", "run_id"), run_id);
        // A call that writes no holder may pass; one that writes a holder must be refused.
        let outcome = call(&other, request(&["m"], BOB, acquire(fresh, TTL_MS))).await;
        assert_eq!(kind(outcome), TroubleKind::Newborn, "{flavor:?}");
        assert!(!client(&server).exists::<_, bool>("m").unwrap());
        let after = hold(&node, "m").await;
        assert_ne!(after.incarnation, before.incarnation, "{flavor:?}");
        assert!(after.born_us > before.born_us, "{flavor:?}");
    }
}

/// Requests for every script that writes a holder, alone and in bundles.
fn requests_that_write_a_holder(ballot: Ballot) -> [Vec<Request>; 8] {
    let lone = |op: &dyn Fn(Ballot) -> Op, ballot| vec![request(&["n"], ALICE, op(ballot))];
    let slot = |ballot| {
        Op::AcquireSlot(AcquireSlot {
            slot: None,
            acquire: Acquire {
                ballot,
                ttl_ms: TTL_MS,
                label: "job".into(),
                ticket: None,
                not_after_us: None,
            },
        })
    };
    let down = |ballot| {
        Op::Downgrade(Downgrade {
            ballot,
            ttl_ms: TTL_MS,
        })
    };
    let shared = |ballot| {
        let mut request = request(&["n"], ALICE, acquire(ballot, TTL_MS));
        request.claims = request.claims.iter().map(Claim::shared).collect();
        vec![request]
    };
    let many = |op: &dyn Fn(Ballot) -> Op, ballot| {
        let names = ["a", "b", "c", "d"];
        names
            .map(|name| request(&[name], ALICE, op(ballot)))
            .to_vec()
    };
    let take = |ballot| acquire(ballot, TTL_MS);
    let prolong = |ballot| extend(ballot, TTL_MS);
    [
        lone(&take, ballot),
        lone(&prolong, ballot),
        lone(&restore, ballot),
        lone(&down, ballot),
        vec![request(&["gate", "s0", "s1"], ALICE, slot(ballot))],
        shared(ballot),
        many(&take, ballot),
        many(&prolong, ballot),
    ]
}

/// Every script that writes a holder, alone and in bundles. The birth record is the one that the
/// client knows; only the replication id differs.
#[tokio::test]
async fn no_holder_is_written_under_another_replication_id() {
    let server = quick(Flavor::Redis).start();
    let replica = quick(Flavor::Redis).start();
    replica.follow(&server);
    let mut members = Vec::new();
    for _ in 0..8 {
        members.push(member(&server).await);
    }
    let ballot = ballot(&members[0]).await;
    let requests_by_member = requests_that_write_a_holder(ballot);
    let text: String = client(&server).get(BORN).unwrap();
    replica.promote();
    server.follow(&replica);
    server.promote();
    for (node, requests) in members.iter().zip(requests_by_member) {
        let _: () = client(&server).set(BORN, &text).unwrap();
        let op = requests[0].op.clone();
        let calls: Vec<_> = requests
            .into_iter()
            .map(|request| call(node, request))
            .collect();
        for call in calls {
            assert_eq!(kind(call.await), TroubleKind::Newborn, "{op:?}");
        }
        let keys: Vec<String> = client(&server).keys("*").unwrap();
        assert_eq!(keys, [BORN], "{op:?}");
    }
}

#[tokio::test]
async fn a_server_that_became_a_replica_answers_newborn() {
    for flavor in Flavor::ALL {
        let (server, stranger) = (quick(flavor).start(), quick(flavor).start());
        let node = member(&server).await;
        let ballot = ballot(&node).await;
        // The server keeps its data, since its master does not answer.
        stranger.pause();
        let port = stranger.port().to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]);
        // Sent together, so that they form a bundle.
        let calls = ["a", "b", "c", "d"]
            .map(|name| call(&node, request(&[name], ALICE, acquire(ballot, TTL_MS))));
        for call in calls {
            assert_eq!(kind(call.await), TroubleKind::Newborn, "{flavor:?}");
        }
        wait_until_async("the node to detect a replica", PATIENCE, async || {
            let outcome = call(&node, inspect(&["a"])).await;
            kind(outcome) == TroubleKind::Replica
        })
        .await;
        stranger.resume();
    }
}

#[tokio::test]
async fn a_durable_node_that_gets_a_replica_is_no_longer_durable() {
    let durable = || quick(Flavor::Redis).persistence(Persistence::AofAlways);
    let server = durable().start();
    let node = member(&server).await;
    let before = hold(&node, "n").await;
    assert_eq!(
        (marks(&server), node.tier()),
        ((false, true), Some(Tier::Durable))
    );
    let replica = durable().start();
    replica.follow(&server);
    until("the replica to be seen", || {
        marks(&server) == (true, false) && node.tier() == Some(Tier::Quarantined)
    })
    .await;
    assert_eq!(hold(&node, "m").await.incarnation, before.incarnation);
    // The replica ends, but the marks stay: the replica may be started again anywhere.
    replica.kill();
    wait_until("the replica to be gone", PATIENCE, || {
        info(&server, "replication", "connected_slaves") == "0"
    });
    let facts = join(&node, group()).await.unwrap();
    assert_eq!(
        (marks(&server), facts.tier),
        ((true, false), Tier::Quarantined)
    );
    server.restart();
    let after = call_until_answered(&node, inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.incarnation);
    assert_eq!(marks(&server), (true, false));
}

/// A failover and back within the lag of the replica brings an older copy of the data back: without
/// the last locks, and with the birth record from before the replica was seen.
#[tokio::test]
async fn a_client_that_saw_a_replica_does_not_trust_an_older_record() {
    let durable = || quick(Flavor::Redis).persistence(Persistence::AofAlways);
    let server = durable().start();
    let node = member(&server).await;
    let before = hold(&node, "n").await;
    let record: String = client(&server).get(BORN).unwrap();
    let replica = durable().start();
    replica.follow(&server);
    until("the replica to be seen", || marks(&server) == (true, false)).await;
    replica.kill();
    let _: () = client(&server).set(BORN, &record).unwrap();
    server.restart();
    let after = call_until_answered(&node, inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.incarnation);
}

#[tokio::test]
async fn settings_changed_while_a_lock_is_held_are_noticed() {
    let server = Server::builder(Flavor::Redis)
        .persistence(Persistence::AofAlways)
        .start();
    let node = member(&server).await;
    hold(&node, "n").await;
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    until("the append-only file to be checked", || {
        node.tier() == Some(Tier::Quarantined) && !marks(&server).1
    })
    .await;
    hold(&node, "n").await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    wait_until_async("the eviction policy to be checked", PATIENCE, async || {
        let outcome = call(&node, inspect(&["n"])).await;
        outcome.is_err_and(|error| error.trouble().kind == TroubleKind::Evicts)
    })
    .await;
}

#[tokio::test]
async fn a_server_is_examined_only_while_a_lock_is_held() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    hold(&node, "n").await;
    let mut infos = InfoCounter::at(&server);
    until("three examinations", || infos.count() >= 9).await;
    let released = call(&node, request(&["n"], ALICE, release(ballot(&node).await)));
    assert_eq!(released.await.unwrap().answer, Answer::Released);
    // An examination may be in flight before this call, but not after it.
    call(&node, inspect(&["n"])).await.unwrap();
    let mut infos = InfoCounter::at(&server);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(infos.count(), 0, "an idle connection polls");
}

#[tokio::test]
async fn config_is_not_sent_if_the_user_may_not_use_it() {
    let server = Server::builder(Flavor::Redis)
        .persistence(Persistence::AofAlways)
        .acl_file(NO_CONFIG)
        .start();
    let mut infos = InfoCounter::at(&server);
    let node = node(&format!("redis://lock:pw@{}?durable=yes", server.addr()));
    join(&node, group()).await.unwrap();
    join(&node, group()).await.unwrap();
    hold(&node, "n").await;
    let before = infos.count();
    until("two examinations", || infos.count() >= before + 6).await;
    let stats = server.command(&["INFO", "commandstats"]);
    let mut lines = stats.lines();
    let refused = lines.find(|line| line.starts_with("cmdstat_config|get:"));
    assert_eq!(refused, None, "CONFIG GET was sent");
    assert_eq!(server.command(&["ACL", "LOG"]), "", "something was denied");
}
