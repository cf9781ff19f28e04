//! Births, incarnations and groups of real servers, and the servers that may not vote.

use std::time::Duration;

use redis::Commands;
use ringfence::node::{CallError, InitMode, Tier, TroubleKind};
use ringfence_core::group::Group;
use ringfence_core::message::Answer;

use ringfence_testkit::{Flavor, Persistence, Server, ServerBuilder, wait_until};

use super::*;
use crate::support::*;

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
async fn the_first_to_join_writes_the_birth_and_the_others_find_it() {
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
async fn a_group_with_other_values_is_refused_naming_both() {
    let server = Server::start(Flavor::Redis);
    let (one, two) = (node(&server.url()), node(&server.url()));
    join(&one, group()).await.unwrap();
    let other = Group {
        nodes: 5,
        quarantine: Duration::from_secs(60),
        ..group()
    };
    let said = refused_as(join(&two, other).await, TroubleKind::Group);
    assert!(said.contains(&group().to_string()), "{said}");
    assert!(said.contains(&other.to_string()), "{said}");
    let outcome = call(&two, inspect(&["n"])).await;
    assert!(matches!(&outcome, Err(CallError::NotSent(t)) if t.kind == TroubleKind::Group));
    // It can still be asked what the group is, and told better.
    assert_eq!(probe(&two).await.unwrap().group, Some(group()));
    join(&two, group()).await.unwrap();
    ballot(&two).await;
}

#[tokio::test]
async fn a_flushed_node_is_newborn_and_joins_again() {
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
async fn a_restart_is_another_incarnation() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let before = call(&node, inspect(&["n"])).await.unwrap();
    server.restart();
    let after = call_until_answered(&node, inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
    assert!(after.standing.born_us > before.standing.born_us);
}

#[tokio::test]
async fn a_durable_node_keeps_its_birth_and_its_locks_over_a_crash() {
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
async fn durability_that_was_switched_off_counts_as_none() {
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
    // So that the record survives although nothing promised it.
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
async fn a_server_that_is_durable_no_longer_is_another_incarnation() {
    const SINCE: u64 = 1_700_000_000_000_000;
    let server = Server::start(Flavor::Redis);
    join(&node(&server.url()), group()).await.unwrap();
    let mut client = client(&server);
    let born: String = client.get(BORN).unwrap();
    let values: Vec<&str> = born.split(' ').skip(8).collect();
    // As an earlier run would have left it, which was durable.
    let earlier = format!("2 ab12 cd34 - 0 {SINCE} 0 1 {}", values.join(" "));
    let () = client.set(BORN, earlier).unwrap();
    let facts = join(&node(&server.url()), group()).await.unwrap();
    let standing = facts.standing.unwrap();
    assert_ne!(standing.incarnation, SINCE);
    assert_ne!(standing.born_us, 0, "it has to wait");
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
    let said = refused_as(probe(&node(&server.url())).await, TroubleKind::Cluster);
    assert!(said.contains("cluster mode"), "{said}");
    let server = Server::builder(Flavor::Valkey).cluster_mode().start();
    refused_as(probe(&node(&server.url())).await, TroubleKind::Cluster);
}

#[tokio::test]
async fn a_node_that_evicts_does_not_vote_unless_allowed() {
    let server = Server::builder(Flavor::Redis)
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "volatile-lru")
        .start();
    let said = refused_as(probe(&node(&server.url())).await, TroubleKind::Evicts);
    assert!(
        said.contains("volatile-lru") && said.contains("?eviction=allow"),
        "{said}"
    );
    let url = format!("{}?eviction=allow", server.url());
    assert_eq!(probe(&node(&url)).await.unwrap().tier, Tier::BestEffort);
}

#[tokio::test]
async fn without_quarantine_a_node_is_born_grown_up() {
    let server = Server::start(Flavor::Redis);
    let url = server.url_without_quarantine();
    let facts = join(&node(&url), group()).await.unwrap();
    assert_eq!(facts.tier, Tier::BestEffort);
    assert_eq!(facts.standing.unwrap().born_us, 0);
}

#[tokio::test]
async fn init_makes_a_new_node_grown_up() {
    let server = Server::start(Flavor::Redis);
    let (one, two) = (member(&server).await, node(&server.url()));
    // The young record that the first client's handshake left is no obstacle.
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
    // The first client learns of it, and that its values are not the group's.
    refused_as(call(&one, inspect(&["n"])).await, TroubleKind::Newborn);
    let outcome = call(&one, inspect(&["n"])).await;
    assert_eq!(outcome.unwrap_err().trouble().kind, TroubleKind::Group);
    let said = refused_as(init(&two, given, InitMode::Write).await, TroubleKind::Other);
    assert!(said.contains("votes already"), "{said}");
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
    let said = refused_as(
        init(&node, group(), InitMode::Write).await,
        TroubleKind::Other,
    );
    assert!(said.contains("3 lock records"), "{said}");
    assert!(
        said.contains("`n` by job") && said.contains("`{}odd` by job"),
        "{said}"
    );
    assert!(!said.contains("`m`"), "{said}");
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
    let said = refused_as(join(&node, group()).await, TroubleKind::Other);
    assert!(said.contains(BORN), "{said}");
    assert_eq!(client.get::<_, String>(BORN).unwrap(), "of another program");
    let _: () = client.del(BORN).unwrap();
    let _: () = client.lpush(BORN, "x").unwrap();
    refused_as(join(&node, group()).await, TroubleKind::ForeignType);
}

#[tokio::test]
async fn a_birth_record_of_another_version_is_refused_with_what_to_do() {
    let server = Server::start(Flavor::Redis);
    let mut client = client(&server);
    for (text, version) in [
        (
            "1 ab12 1700000000000001 0 1 3 5000000 35000 1500",
            "version 1",
        ),
        ("3 of the future", "version 3"),
    ] {
        let _: () = client.set(BORN, text).unwrap();
        let node = node(&server.url());
        let said = refused_as(join(&node, group()).await, TroubleKind::Version);
        for word in [
            version,
            "version 2",
            "upgrade all clients",
            BORN,
            "delete the key",
        ] {
            assert!(said.contains(word), "no `{word}` in: {said}");
        }
        let said = refused_as(
            init(&node, group(), InitMode::Write).await,
            TroubleKind::Version,
        );
        assert!(said.contains(version), "{said}");
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
    let text = "2 ab12 cd34 7 1 5 5 0 3 5000000 35000 1500";
    let _: () = client.set(BORN, text).unwrap();
    let node = node(&server.url());
    let said = refused_as(join(&node, group()).await, TroubleKind::Version);
    assert!(said.contains("Sentinels"), "{said}");
    refused_as(
        init(&node, group(), InitMode::Write).await,
        TroubleKind::Version,
    );
    assert_eq!(client.get::<_, String>(BORN).unwrap(), text);
}
