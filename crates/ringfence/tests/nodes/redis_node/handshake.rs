//! Births, incarnations and groups of real servers, and servers that may not vote.

use std::time::Duration;

use redis::Commands;
use ringfence::node::{CallError, InitMode, Tier, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::Answer;

use ringfence_testkit::{Flavor, Persistence, Server, ServerBuilder, wait_until};

use super::*;
use crate::nodes::support::*;

const BORN: &str = "ringfence:born";

fn durable() -> ServerBuilder {
    Server::builder(Flavor::Redis).persistence(Persistence::AofAlways)
}

pub(super) fn refused_as(
    outcome: Result<impl std::fmt::Debug, CallError>,
    kind: TroubleKind,
) -> String {
    match outcome {
        Err(CallError::Refused(trouble)) if trouble.kind == kind => trouble.to_string(),
        other => panic!("{kind:?} expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_probe_changes_nothing() {
    for (flavor, version) in [(Flavor::Redis, "Redis "), (Flavor::Valkey, "Valkey ")] {
        let server = Server::start(flavor);
        let node = node(&server.url());
        let facts = probe(&node).await.unwrap();
        assert!(facts.version.starts_with(version), "{}", facts.version);
        assert_eq!(
            (facts.standing, facts.group, facts.tier),
            (None, None, Tier::Quarantined)
        );
        assert!(facts.sent <= facts.received);
        assert!(!client(&server).exists::<_, bool>(BORN).unwrap());
    }
}

#[tokio::test]
async fn the_first_join_writes_the_birth_record_and_later_joins_find_it() {
    let server = Server::start(Flavor::Redis);
    let (one, two) = (node(&server.url()), node(&server.url()));
    let first = join(&one, group()).await.unwrap();
    let second = join(&two, group()).await.unwrap();
    let (first_standing, second_standing) = (first.standing.unwrap(), second.standing.unwrap());
    assert_eq!(first_standing.incarnation, second_standing.incarnation);
    assert_eq!(first_standing.born_us, first.clock_us);
    assert_eq!(first_standing.born_us, second_standing.born_us);
    assert_eq!(second.group, Some(group()));
    assert_eq!(first.run_id, second.run_id);
}

#[tokio::test]
async fn a_group_with_other_values_is_refused_and_the_error_names_both() {
    let server = Server::start(Flavor::Redis);
    let (one, two) = (node(&server.url()), node(&server.url()));
    join(&one, group()).await.unwrap();
    let other = Group {
        nodes: 5,
        quarantine: Duration::from_secs(60),
        ..group()
    };
    let message = refused_as(join(&two, other).await, TroubleKind::Group);
    assert!(message.contains(&group().to_string()), "{message}");
    assert!(message.contains(&other.to_string()), "{message}");
    let outcome = call(&two, inspect(&["n"])).await;
    assert!(matches!(&outcome, Err(CallError::NotSent(t)) if t.kind == TroubleKind::Group));
    // A probe still works, and a join with the right values succeeds.
    assert_eq!(probe(&two).await.unwrap().group, Some(group()));
    join(&two, group()).await.unwrap();
    ballot(&two).await;
}

#[tokio::test]
async fn a_flushed_node_answers_newborn_and_joins_again() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let ballot = ballot(&node).await;
        let before = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS)))
            .await
            .unwrap();
        redis::cmd("FLUSHALL").exec(&mut client(&server)).unwrap();
        let outcome = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS))).await;
        refused_as(outcome, TroubleKind::Newborn);
        assert!(!client(&server).exists::<_, bool>("n").unwrap());
        let after = call(&node, inspect(&["n"])).await.unwrap();
        assert_ne!(after.standing.incarnation, before.standing.incarnation);
        assert!(after.standing.born_us > before.standing.born_us);
    }
}

#[tokio::test]
async fn a_flush_is_noticed_even_if_another_client_joined_first() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let before = call(&node, inspect(&["n"])).await.unwrap();
    redis::cmd("FLUSHALL").exec(&mut client(&server)).unwrap();
    let other = member(&server).await;
    refused_as(call(&node, inspect(&["n"])).await, TroubleKind::Newborn);
    let after = call(&node, inspect(&["n"])).await.unwrap();
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
    let others = call(&other, inspect(&["n"])).await.unwrap();
    assert_eq!(after.standing.incarnation, others.standing.incarnation);
}

#[tokio::test]
async fn a_restarted_server_is_another_incarnation() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let before = call(&node, inspect(&["n"])).await.unwrap();
    server.restart();
    let after = call_until_answered(&node, inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
    assert!(after.standing.born_us > before.standing.born_us);
}

#[tokio::test]
async fn a_durable_node_keeps_its_incarnation_and_its_locks_after_a_crash() {
    let server = durable().start();
    let node = node(&server.url());
    let facts = join(&node, group()).await.unwrap();
    assert_eq!(facts.tier, Tier::Durable);
    let ballot = ballot(&node).await;
    let before = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS)))
        .await
        .unwrap();
    server.restart();
    let after = call_until_answered(&node, inspect(&["n"])).await;
    assert_eq!(after.standing.incarnation, before.standing.incarnation);
    assert_eq!(after.standing.born_us, before.standing.born_us);
    assert!(matches!(&after.answer, Answer::Views(views) if views[0].ballot == Some(ballot)));
    assert_ne!(probe(&node).await.unwrap().run_id, facts.run_id);
}

#[tokio::test]
async fn a_server_whose_durability_was_switched_off_does_not_count_as_durable() {
    let server = durable().start();
    let node = member(&server).await;
    let before = call(&node, inspect(&["n"])).await.unwrap();
    let mut client = client(&server);
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("appendfsync")
        .arg("no")
        .exec(&mut client)
        .unwrap();
    let facts = join(&node, group()).await.unwrap();
    assert_eq!(facts.tier, Tier::Quarantined);
    let still = call(&node, inspect(&["n"])).await.unwrap();
    assert_eq!(still.standing.incarnation, before.standing.incarnation);
    // So the record survives the restart, although that was not guaranteed.
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("appendfsync")
        .arg("always")
        .exec(&mut client)
        .unwrap();
    server.restart();
    let after = call_until_answered(&node, inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
}

#[tokio::test]
async fn a_server_that_is_no_longer_durable_is_another_incarnation() {
    const SINCE: u64 = 1_700_000_000_000_000;
    let server = Server::start(Flavor::Redis);
    join(&node(&server.url()), group()).await.unwrap();
    let mut client = client(&server);
    let born: String = client.get(BORN).unwrap();
    let values: Vec<&str> = born.split(' ').skip(10).collect();
    // The record as an earlier, durable run of the server would have left it.
    let earlier = format!("5 ab12 cd34 - 0 0 {SINCE} 0 1 0 {}", values.join(" "));
    let () = client.set(BORN, earlier).unwrap();
    let facts = join(&node(&server.url()), group()).await.unwrap();
    let standing = facts.standing.unwrap();
    assert_ne!(standing.incarnation, SINCE);
    assert_ne!(standing.born_us, 0, "the node is in quarantine");
}

#[tokio::test]
async fn a_replica_does_not_vote() {
    let master = Server::start(Flavor::Redis);
    let replica = Server::builder(Flavor::Redis).replica_of(&master).start();
    let node = node(&replica.url());
    refused_as(probe(&node).await, TroubleKind::Replica);
}

#[tokio::test]
async fn a_promoted_replica_is_another_incarnation() {
    let master = durable().start();
    let before = join(&node(&master.url()), group()).await.unwrap();
    let replica = durable().replica_of(&master).start();
    wait_until("the replica to have the master's data", PATIENCE, || {
        client(&replica).exists::<_, bool>(BORN).unwrap_or(false)
    });
    redis::cmd("REPLICAOF")
        .arg("NO")
        .arg("ONE")
        .exec(&mut client(&replica))
        .unwrap();
    let after = join(&node(&replica.url()), group()).await.unwrap();
    assert_ne!(
        after.standing.unwrap().incarnation,
        before.standing.unwrap().incarnation
    );
}

#[tokio::test]
async fn a_cluster_node_is_refused() {
    let server = Server::builder(Flavor::Redis).cluster_mode().start();
    let message = refused_as(probe(&node(&server.url())).await, TroubleKind::Cluster);
    assert!(message.contains("cluster mode"), "{message}");
    let server = Server::builder(Flavor::Valkey).cluster_mode().start();
    refused_as(probe(&node(&server.url())).await, TroubleKind::Cluster);
}

#[tokio::test]
async fn a_node_that_evicts_does_not_vote_unless_allowed() {
    let server = Server::builder(Flavor::Redis)
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "volatile-lru")
        .start();
    let message = refused_as(probe(&node(&server.url())).await, TroubleKind::Evicts);
    assert!(
        message.contains("volatile-lru") && message.contains("?eviction=allow"),
        "{message}"
    );
    let url = format!("{}?eviction=allow", server.url());
    assert_eq!(probe(&node(&url)).await.unwrap().tier, Tier::BestEffort);
}

#[tokio::test]
async fn without_quarantine_a_node_votes_at_once() {
    let server = Server::start(Flavor::Redis);
    let url = server.url_without_quarantine();
    let facts = join(&node(&url), group()).await.unwrap();
    assert_eq!(facts.tier, Tier::BestEffort);
    assert_eq!(facts.standing.unwrap().born_us, 0);
}

#[tokio::test]
async fn init_makes_a_new_node_vote_at_once() {
    let server = Server::start(Flavor::Redis);
    let (one, two) = (member(&server).await, node(&server.url()));
    // The recent birth record of the first client's handshake does not prevent `init`.
    let given = Group {
        quarantine: Duration::from_secs(60),
        ..group()
    };
    let facts = init(&two, given, InitMode::Write).await.unwrap();
    assert_eq!(
        (facts.standing.unwrap().born_us, facts.group),
        (0, Some(given))
    );
    ballot(&two).await;
    // The first client gets an error: its values are not those of the group.
    refused_as(call(&one, inspect(&["n"])).await, TroubleKind::Newborn);
    let outcome = call(&one, inspect(&["n"])).await;
    assert_eq!(outcome.unwrap_err().trouble().kind, TroubleKind::Group);
    let message = refused_as(init(&two, given, InitMode::Write).await, TroubleKind::Other);
    assert!(message.contains("votes already"), "{message}");
}

#[tokio::test]
async fn init_refuses_a_node_with_locks_and_names_the_holders() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    for name in ["n", "{}odd"] {
        call(&node, request(&[name], 7, acquire(ballot, TTL_MS)))
            .await
            .unwrap();
    }
    call(&node, request(&["m"], 8, acquire(ballot, TTL_MS)))
        .await
        .unwrap();
    call(&node, request(&["m"], 8, release(ballot)))
        .await
        .unwrap();
    let message = refused_as(
        init(&node, group(), InitMode::Write).await,
        TroubleKind::Other,
    );
    assert!(message.contains("3 lock records"), "{message}");
    assert!(
        message.contains("`n` by job") && message.contains("`{}odd` by job"),
        "{message}"
    );
    assert!(!message.contains("`m`"), "{message}");
    let facts = init(&node, group(), InitMode::Force).await.unwrap();
    assert_eq!(facts.standing.unwrap().born_us, 0);
    super::ballot(&node).await;
}

#[tokio::test]
async fn a_damaged_birth_record_is_not_overwritten() {
    let server = Server::start(Flavor::Redis);
    let mut client = client(&server);
    let _: () = client.set(BORN, "of another program").unwrap();
    let node = node(&server.url());
    let message = refused_as(join(&node, group()).await, TroubleKind::Other);
    assert!(message.contains(BORN), "{message}");
    assert_eq!(client.get::<_, String>(BORN).unwrap(), "of another program");
    let _: () = client.del(BORN).unwrap();
    let _: () = client.lpush(BORN, "x").unwrap();
    refused_as(join(&node, group()).await, TroubleKind::ForeignType);
}

#[tokio::test]
async fn a_birth_record_of_another_version_is_refused_and_the_error_says_what_to_do() {
    let server = Server::start(Flavor::Redis);
    let mut client = client(&server);
    for (text, version) in [
        (
            "1 ab12 1700000000000001 0 1 3 5000000 35000 1500",
            "version 1",
        ),
        ("6 of the future", "version 6"),
    ] {
        let _: () = client.set(BORN, text).unwrap();
        let node = node(&server.url());
        let message = refused_as(join(&node, group()).await, TroubleKind::Version);
        for word in [
            version,
            "version 5",
            "upgrade all clients",
            BORN,
            "delete the key",
        ] {
            assert!(message.contains(word), "no `{word}` in: {message}");
        }
        let message = refused_as(
            init(&node, group(), InitMode::Write).await,
            TroubleKind::Version,
        );
        assert!(message.contains(version), "{message}");
        assert_eq!(client.get::<_, String>(BORN).unwrap(), text);
        let facts = init(&node, group(), InitMode::Force).await.unwrap();
        assert_eq!(facts.standing.unwrap().born_us, 0);
        ballot(&node).await;
    }
}

#[tokio::test]
async fn a_birth_record_with_an_epoch_is_left_to_clients_with_sentinels() {
    let server = Server::start(Flavor::Redis);
    let mut client = client(&server);
    let text = "5 ab12 cd34 7 3 1 5 5 0 0 3 5000000 35000 0 5000 1000 1500";
    let _: () = client.set(BORN, text).unwrap();
    let node = node(&server.url());
    let message = refused_as(join(&node, group()).await, TroubleKind::Version);
    assert!(message.contains("Sentinels"), "{message}");
    refused_as(
        init(&node, group(), InitMode::Write).await,
        TroubleKind::Version,
    );
    assert_eq!(client.get::<_, String>(BORN).unwrap(), text);
}
