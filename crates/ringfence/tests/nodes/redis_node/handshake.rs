//! Births, incarnations and groups of real servers, and the servers that may not vote.

use std::time::Duration;

use redis::Commands;
use ringfence::group::Group;
use ringfence::message::Answer;
use ringfence::node::{CallError, InitMode, Tier, TroubleKind};

use crate::support::{self, Make, Server};

const BORN: &str = "ringfence:born";

fn refused_as(outcome: Result<impl std::fmt::Debug, CallError>, kind: TroubleKind) -> String {
    match outcome {
        Err(CallError::Refused(trouble)) if trouble.kind == kind => trouble.to_string(),
        other => panic!("{kind:?} expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_probe_changes_nothing() {
    for (make, version) in [(Make::Redis, "Redis "), (Make::Valkey, "Valkey ")] {
        let server = Server::start(make, &[]);
        let node = support::node(server.url());
        let facts = support::probe(&node).await.unwrap();
        assert!(facts.version.starts_with(version), "{}", facts.version);
        assert_eq!(
            (facts.standing, facts.group, facts.tier),
            (None, None, Tier::Quarantined)
        );
        assert!(facts.sent <= facts.received);
        assert!(!server.client().exists::<_, bool>(BORN).unwrap());
    }
}

#[tokio::test]
async fn the_first_to_join_writes_the_birth_and_the_others_find_it() {
    let server = Server::start(Make::Redis, &[]);
    let (one, two) = (support::node(server.url()), support::node(server.url()));
    let first = support::join(&one, support::group()).await.unwrap();
    let second = support::join(&two, support::group()).await.unwrap();
    let (first_standing, second_standing) = (first.standing.unwrap(), second.standing.unwrap());
    assert_eq!(first_standing.incarnation, second_standing.incarnation);
    assert_eq!(first_standing.born_us, first.clock_us);
    assert_eq!(first_standing.born_us, second_standing.born_us);
    assert_eq!(second.group, Some(support::group()));
    assert_eq!(first.run_id, second.run_id);
}

#[tokio::test]
async fn a_group_with_other_values_is_refused_naming_both() {
    let server = Server::start(Make::Redis, &[]);
    let (one, two) = (support::node(server.url()), support::node(server.url()));
    support::join(&one, support::group()).await.unwrap();
    let other = Group {
        nodes: 5,
        quarantine: Duration::from_secs(60),
        ..support::group()
    };
    let said = refused_as(support::join(&two, other).await, TroubleKind::Group);
    assert!(said.contains(&support::group().to_string()), "{said}");
    assert!(said.contains(&other.to_string()), "{said}");
    // And it can still be told better.
    support::join(&two, support::group()).await.unwrap();
    support::ballot(&two).await;
}

#[tokio::test]
async fn a_flushed_node_is_newborn_and_joins_again() {
    for make in [Make::Redis, Make::Valkey] {
        let server = Server::start(make, &[]);
        let node = support::member(&server).await;
        let ballot = support::ballot(&node).await;
        let before = support::call(&node, support::acquire(&["n"], 1, ballot))
            .await
            .unwrap();
        redis::cmd("FLUSHALL").exec(&mut server.client()).unwrap();
        let outcome = support::call(&node, support::acquire(&["n"], 1, ballot)).await;
        refused_as(outcome, TroubleKind::Newborn);
        assert!(!server.client().exists::<_, bool>("n").unwrap());
        let after = support::call(&node, support::inspect(&["n"]))
            .await
            .unwrap();
        assert_ne!(after.standing.incarnation, before.standing.incarnation);
        assert!(after.standing.born_us > before.standing.born_us);
    }
}

#[tokio::test]
async fn a_flush_is_noticed_even_if_another_client_joined_first() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let before = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap();
    redis::cmd("FLUSHALL").exec(&mut server.client()).unwrap();
    let other = support::member(&server).await;
    refused_as(
        support::call(&node, support::inspect(&["n"])).await,
        TroubleKind::Newborn,
    );
    let after = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap();
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
    let others = support::call(&other, support::inspect(&["n"]))
        .await
        .unwrap();
    assert_eq!(after.standing.incarnation, others.standing.incarnation);
}

#[tokio::test]
async fn a_restart_is_another_incarnation() {
    let mut server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let before = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap();
    server.restart();
    let after = support::call_until_answered(&node, support::inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
    assert!(after.standing.born_us > before.standing.born_us);
}

#[tokio::test]
async fn a_durable_node_keeps_its_birth_and_its_locks_over_a_crash() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::start(Make::Redis, &always);
    let node = support::node(server.url());
    let facts = support::join(&node, support::group()).await.unwrap();
    assert_eq!(facts.tier, Tier::Durable);
    let ballot = support::ballot(&node).await;
    let before = support::call(&node, support::acquire(&["n"], 1, ballot))
        .await
        .unwrap();
    server.restart();
    let after = support::call_until_answered(&node, support::inspect(&["n"])).await;
    assert_eq!(after.standing.incarnation, before.standing.incarnation);
    assert_eq!(after.standing.born_us, before.standing.born_us);
    assert!(matches!(&after.answer, Answer::Views(views) if views[0].ballot == Some(ballot)));
    assert_ne!(support::probe(&node).await.unwrap().run_id, facts.run_id);
}

#[tokio::test]
async fn durability_that_was_switched_off_counts_as_none() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::start(Make::Redis, &always);
    let node = support::member(&server).await;
    let before = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap();
    let mut client = server.client();
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("appendfsync")
        .arg("no")
        .exec(&mut client)
        .unwrap();
    let facts = support::join(&node, support::group()).await.unwrap();
    assert_eq!(facts.tier, Tier::Quarantined);
    let still = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap();
    assert_eq!(still.standing.incarnation, before.standing.incarnation);
    // So that the record survives although nothing promised it.
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("appendfsync")
        .arg("always")
        .exec(&mut client)
        .unwrap();
    server.restart();
    let after = support::call_until_answered(&node, support::inspect(&["n"])).await;
    assert_ne!(after.standing.incarnation, before.standing.incarnation);
}

#[tokio::test]
async fn a_replica_does_not_vote() {
    let master = Server::start(Make::Redis, &[]);
    let of = format!("127.0.0.1 {}", master.port);
    let replica = Server::start(Make::Redis, &["--replicaof", &of]);
    let node = support::node(replica.url());
    refused_as(support::probe(&node).await, TroubleKind::Replica);
}

#[tokio::test]
async fn a_promoted_replica_is_another_incarnation() {
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let master = Server::start(Make::Redis, &always);
    let before = support::join(&support::node(master.url()), support::group())
        .await
        .unwrap();
    let of = format!("127.0.0.1 {}", master.port);
    let args = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--replicaof",
        &of,
    ];
    let replica = Server::start(Make::Redis, &args);
    support::eventually("the replica has the master's data", || {
        replica.client().exists::<_, bool>(BORN).unwrap_or(false)
    });
    redis::cmd("REPLICAOF")
        .arg("NO")
        .arg("ONE")
        .exec(&mut replica.client())
        .unwrap();
    let after = support::join(&support::node(replica.url()), support::group())
        .await
        .unwrap();
    assert_ne!(
        after.standing.unwrap().incarnation,
        before.standing.unwrap().incarnation
    );
}

#[tokio::test]
async fn a_cluster_node_is_refused() {
    let server = Server::start(Make::Redis, &["--cluster-enabled", "yes"]);
    let said = refused_as(
        support::probe(&support::node(server.url())).await,
        TroubleKind::Cluster,
    );
    assert!(said.contains("cluster mode"), "{said}");
    let server = Server::start(Make::Valkey, &["--cluster-enabled", "yes"]);
    refused_as(
        support::probe(&support::node(server.url())).await,
        TroubleKind::Cluster,
    );
}

#[tokio::test]
async fn a_node_that_evicts_does_not_vote_unless_allowed() {
    let args = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"];
    let server = Server::start(Make::Redis, &args);
    let said = refused_as(
        support::probe(&support::node(server.url())).await,
        TroubleKind::Evicts,
    );
    assert!(
        said.contains("volatile-lru") && said.contains("?eviction=allow"),
        "{said}"
    );
    let mut url = server.url();
    url.eviction_allowed = true;
    assert_eq!(
        support::probe(&support::node(url)).await.unwrap().tier,
        Tier::BestEffort
    );
}

#[tokio::test]
async fn without_quarantine_a_node_is_born_grown_up() {
    let server = Server::start(Make::Redis, &[]);
    let mut url = server.url();
    url.quarantine = false;
    let facts = support::join(&support::node(url), support::group())
        .await
        .unwrap();
    assert_eq!(facts.tier, Tier::BestEffort);
    assert_eq!(facts.standing.unwrap().born_us, 0);
}

#[tokio::test]
async fn init_makes_a_new_node_grown_up() {
    let server = Server::start(Make::Redis, &[]);
    let (one, two) = (support::member(&server).await, support::node(server.url()));
    // The young record that the first client's handshake left is no obstacle.
    let given = Group {
        quarantine: Duration::from_secs(60),
        ..support::group()
    };
    let facts = support::init(&two, given, InitMode::Write).await.unwrap();
    assert_eq!(
        (facts.standing.unwrap().born_us, facts.group),
        (0, Some(given))
    );
    support::ballot(&two).await;
    // The first client learns of it, and that its values are not the group's.
    refused_as(
        support::call(&one, support::inspect(&["n"])).await,
        TroubleKind::Newborn,
    );
    let outcome = support::call(&one, support::inspect(&["n"])).await;
    assert_eq!(outcome.unwrap_err().trouble().kind, TroubleKind::Group);
    let said = refused_as(
        support::init(&two, given, InitMode::Write).await,
        TroubleKind::Other,
    );
    assert!(said.contains("votes already"), "{said}");
}

#[tokio::test]
async fn init_refuses_a_node_with_locks_and_names_the_holders() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    for name in ["n", "{}odd"] {
        support::call(&node, support::acquire(&[name], 7, ballot))
            .await
            .unwrap();
    }
    support::call(&node, support::acquire(&["m"], 8, ballot))
        .await
        .unwrap();
    support::call(&node, support::release(&["m"], 8, ballot))
        .await
        .unwrap();
    let said = refused_as(
        support::init(&node, support::group(), InitMode::Write).await,
        TroubleKind::Other,
    );
    assert!(said.contains("3 lock records"), "{said}");
    assert!(
        said.contains("`n` by holder 7") && said.contains("`{}odd` by holder 7"),
        "{said}"
    );
    assert!(!said.contains("holder 8"), "{said}");
    let facts = support::init(&node, support::group(), InitMode::Force)
        .await
        .unwrap();
    assert_eq!(facts.standing.unwrap().born_us, 0);
    support::ballot(&node).await;
}

#[tokio::test]
async fn a_damaged_birth_record_is_not_overwritten() {
    let server = Server::start(Make::Redis, &[]);
    let mut client = server.client();
    let _: () = client.set(BORN, "2 of a newer version").unwrap();
    let node = support::node(server.url());
    let said = refused_as(
        support::join(&node, support::group()).await,
        TroubleKind::Other,
    );
    assert!(said.contains(BORN), "{said}");
    assert_eq!(
        client.get::<_, String>(BORN).unwrap(),
        "2 of a newer version"
    );
    let _: () = client.del(BORN).unwrap();
    let _: () = client.lpush(BORN, "x").unwrap();
    refused_as(
        support::join(&node, support::group()).await,
        TroubleKind::ForeignType,
    );
}
