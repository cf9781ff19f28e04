//! Many calls in one script: each is answered as if it had come by itself, whatever happens to the
//! others.

use std::time::Duration;

use redis::Commands;
use ringfence::message::{Acquire, Answer, Op, PlainAcquire, Release};
use ringfence::node::TroubleKind;
use ringfence_testkit::{Flavor, Server};
use tokio::time::timeout;

use super::*;
use crate::support::*;

const SOON: Duration = Duration::from_secs(20);

/// Sends all of `requests` before the node can send any: they are one batch.
async fn all(node: &RedisNode, requests: Vec<Request>) -> Vec<Result<Reply, CallError>> {
    let answers: Vec<_> = requests
        .into_iter()
        .map(|request| call(node, request))
        .collect();
    let mut said = Vec::new();
    for answer in answers {
        said.push(answer.await);
    }
    said
}

/// As [`all`], where every call is answered.
async fn answers(node: &RedisNode, requests: Vec<Request>) -> Vec<Answer> {
    let said = all(node, requests).await.into_iter();
    said.map(|reply| reply.unwrap().answer).collect()
}

/// `op` by ALICE on each of `names` apart.
fn each(names: &[&str], op: &Op) -> Vec<Request> {
    let requests = names.iter().map(|name| request(&[name], ALICE, op.clone()));
    requests.collect()
}

/// How often each of the commands has been called since this was last asked.
fn calls(server: &Server, commands: &[&str]) -> Vec<u64> {
    let mut client = client(server);
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut client)
        .unwrap();
    redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(&mut client)
        .unwrap();
    let count = |command: &&str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    commands.iter().map(count).collect()
}

/// Whether `key` stands.
fn exists(server: &Server, key: &str) -> bool {
    client(server).exists(key).unwrap()
}

#[tokio::test]
async fn calls_on_different_names_are_one_script() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let ballot = ballot(&node).await;
        let names = ["a", "{a}", "b}{", "ü:\n"];
        calls(&server, &[]);
        let said = answers(&node, each(&names, &acquire(ballot, TTL_MS))).await;
        assert_eq!(said, [const { Answer::Granted }; 4]);
        assert_eq!(calls(&server, &["evalsha", "mget", "set"]), [1, 1, 8]);
        let said = answers(&node, each(&names, &release(ballot))).await;
        assert_eq!(said, [const { Answer::Released }; 4]);
        assert_eq!(calls(&server, &["evalsha", "set", "del"]), [1, 4, 1]);
        let taken = answers(
            &node,
            each(&names, &Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS })),
        )
        .await;
        assert_eq!(taken, [const { Answer::Granted }; 4]);
        assert_eq!(calls(&server, &["evalsha", "set"]), [0, 4]);
        let said = answers(&node, each(&names, &Op::PlainRelease)).await;
        assert_eq!(said, [const { Answer::Released }; 4]);
        assert_eq!(calls(&server, &["evalsha", "del"]), [1, 1]);
        assert!(!names.iter().any(|name| exists(&server, name)));
    }
}

#[tokio::test]
async fn a_bundle_is_bounded() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    calls(&server, &[]);
    let said = answers(&node, each(&names, &acquire(ballot, TTL_MS))).await;
    assert_eq!(said, vec![Answer::Granted; 100]);
    assert_eq!(calls(&server, &["evalsha"]), [4]);
}

#[tokio::test]
async fn calls_on_one_name_keep_their_order() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let said = answers(
        &node,
        vec![
            request(&["a"], ALICE, acquire(ballot, TTL_MS)),
            request(&["b"], ALICE, acquire(ballot, TTL_MS)),
            request(&["a"], ALICE, release(ballot)),
            request(&["c"], ALICE, acquire(ballot, TTL_MS)),
            request(&["a"], BOB, acquire(plus(ballot, 1), TTL_MS)),
            request(&["b"], ALICE, release(ballot)),
            request(
                &["b"],
                ALICE,
                Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
            ),
            request(
                &["d"],
                ALICE,
                Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
            ),
            request(&["b"], ALICE, Op::PlainRelease),
            request(&["d"], ALICE, Op::PlainRelease),
            request(&["b", "d"], BOB, acquire(plus(ballot, 1), TTL_MS)),
        ],
    )
    .await;
    let (granted, released) = (Answer::Granted, Answer::Released);
    let [g, r] = [&granted, &released];
    assert_eq!(
        said.iter().collect::<Vec<_>>(),
        [g, g, r, g, g, r, g, g, r, r, g]
    );
}

#[tokio::test]
async fn each_call_of_a_bundle_keeps_its_own_terms() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let terms = [
        ("a", 20_000, "one"),
        ("b", 90_000, "two: \n"),
        ("c", 20_000, "one"),
    ];
    let requests = terms.map(|(name, ttl_ms, label)| {
        let op = Op::Acquire(Acquire {
            ballot,
            ttl_ms,
            label: label.into(),
            place: None,
        });
        request(&[name], ALICE, op)
    });
    assert_eq!(
        answers(&node, requests.into()).await,
        [const { Answer::Granted }; 3]
    );
    let mut client = client(&server);
    for (name, ttl_ms, label) in terms {
        let answer = call(&node, request(&[name], BOB, acquire(plus(ballot, 1), 1))).await;
        let holder = held(answer.unwrap().answer);
        assert_eq!(holder.label.as_deref(), Some(label));
        let left = holder.for_ms.unwrap();
        assert!((ttl_ms - 10_000..=ttl_ms).contains(&left), "{name}: {left}");
        // The record outlives the key it vouches for.
        let record: i64 = client.pttl(format!("ringfence:{{{name}}}:{name}")).unwrap();
        assert!(record >= ttl_ms as i64 - 10_000, "{name}: {record}");
    }
}

#[tokio::test]
async fn what_is_unusual_in_the_middle_of_a_bundle_has_its_own_answer() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        let ballot = ballot(&node).await;
        let theirs = request(&["held"], BOB, acquire(ballot, TTL_MS));
        assert_eq!(call(&node, theirs).await.unwrap().answer, Answer::Granted);
        let _: () = client.hset("hash", "field", "value").unwrap();
        let _: () = client.set("ringfence:{damaged}:damaged", "2:1").unwrap();
        let _: () = client
            .set_ex("ringfence:{old}:old", "1:5:5:7:t:l", 60)
            .unwrap();
        let _: () = client.set("their", "own value").unwrap();
        let waits = place(ballot.get(), "c.1");
        call(&node, request(&["awaited"], BOB, refresh(&[&waits])))
            .await
            .unwrap();
        let names = [
            "a", "held", "hash", "damaged", "b", "old", "their", "awaited", "c",
        ];
        let later = plus(ballot, 1);
        let said = all(&node, each(&names, &acquire(later, TTL_MS))).await;
        let answer = |name: &str| {
            let position = names.iter().position(|other| *other == name).unwrap();
            said[position].clone()
        };
        for name in ["a", "b", "c", "old"] {
            assert_eq!(answer(name).unwrap().answer, Answer::Granted, "{name}");
        }
        let holder = held(answer("held").unwrap().answer);
        assert_eq!(holder.id.as_deref(), Some(token(BOB).id()));
        assert_eq!(held(answer("their").unwrap().answer).label, None);
        assert!(matches!(
            answer("awaited").unwrap().answer,
            Answer::Behind { .. }
        ));
        let error = answer("hash").unwrap_err();
        assert_eq!(error.trouble().kind, TroubleKind::ForeignType);
        assert!(error.to_string().contains("`hash`"), "{error}");
        let error = answer("damaged").unwrap_err();
        assert!(
            error.to_string().contains("`ringfence:{damaged}:damaged`"),
            "{error}"
        );
        // And back again, with those who hold nothing among those who hold.
        let said = all(&node, each(&names, &release(later))).await;
        let answer = |name: &str| {
            let position = names.iter().position(|other| *other == name).unwrap();
            said[position].clone()
        };
        for name in ["a", "b", "c", "old"] {
            assert_eq!(answer(name).unwrap().answer, Answer::Released, "{name}");
            assert!(!exists(&server, name), "{name}");
        }
        held(answer("held").unwrap().answer);
        held(answer("their").unwrap().answer);
        assert_eq!(answer("awaited").unwrap().answer, Answer::Gone);
        assert!(answer("damaged").is_err());
    }
}

#[tokio::test]
async fn a_damaged_record_is_not_taken_for_a_usual_one() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let ballot = ballot(&node).await;
    let (huge, token) = (u64::MAX, token(ALICE));
    let seat = format!("0:7:9:{}:job", token.expose());
    for (value, record, op) in [
        (None, format!("2:{huge}:5:5:0"), acquire(ballot, TTL_MS)),
        (None, format!("2:5:{huge}:5:0"), acquire(ballot, TTL_MS)),
        (None, format!("2:5:5:{huge}:0"), acquire(ballot, TTL_MS)),
        (None, "2:5:5:5:2".to_owned(), acquire(ballot, TTL_MS)),
        (
            Some(&token),
            format!("2:{huge}:5:5:{seat}"),
            release(ballot),
        ),
        (
            Some(&token),
            format!("2:5:{huge}:5:{seat}"),
            release(ballot),
        ),
        (Some(&token), "2:5:5".to_owned(), release(ballot)),
        (
            Some(&token),
            format!("2:5:5:5:0:7:{huge}:{}:job", token.expose()),
            extend(ballot, TTL_MS),
        ),
        (
            Some(&token),
            format!("2:5:5:5:0:{huge}:9:{}:job", token.expose()),
            extend(ballot, TTL_MS),
        ),
    ] {
        let _: () = client.del("damaged").unwrap();
        if let Some(token) = value {
            let _: () = client.set("damaged", token.expose()).unwrap();
        }
        let _: () = client.set("ringfence:{damaged}:damaged", &record).unwrap();
        let said = all(&node, each(&["a", "damaged"], &op)).await;
        assert!(said[0].is_ok(), "{said:?}");
        let error = said[1].clone().expect_err(&record);
        assert!(error.to_string().contains("damaged record"), "{error}");
        assert_eq!(exists(&server, "damaged"), value.is_some(), "{record}");
    }
}

#[tokio::test]
async fn plain_releases_in_a_bundle_delete_only_their_own() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        let take = Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS });
        answers(&node, each(&["a", "b"], &take)).await;
        let _: () = client.set("held", token(BOB).expose()).unwrap();
        let _: () = client.hset("hash", "field", "value").unwrap();
        let names = ["a", "held", "gone", "hash", "b"];
        let mut said = all(&node, each(&names, &Op::PlainRelease)).await;
        assert_eq!(kind(said.remove(3)), TroubleKind::ForeignType);
        let said: Vec<Answer> = said.into_iter().map(|said| said.unwrap().answer).collect();
        let held = Answer::Held(Default::default());
        assert_eq!(
            said,
            [Answer::Released, held, Answer::Gone, Answer::Released]
        );
        assert!(exists(&server, "held") && exists(&server, "hash"));
        assert!(!exists(&server, "a") && !exists(&server, "b"));
    }
}

#[tokio::test]
async fn a_release_in_a_bundle_spares_a_later_attempt_and_closes_its_ballot() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let later = plus(ballot, 5);
    answers(&node, each(&["a", "b"], &acquire(later, TTL_MS))).await;
    let said = answers(&node, each(&["a", "b"], &release(ballot))).await;
    assert_eq!(said, [const { Answer::Newer }; 2]);
    let said = answers(&node, each(&["a", "b"], &release(later))).await;
    assert_eq!(said, [const { Answer::Released }; 2]);
    // A restore of what was released must find it closed.
    let again = call(&node, request(&["a"], ALICE, restore(later))).await;
    assert_eq!(again.unwrap().answer, Answer::Gone);
}

#[tokio::test]
async fn extends_are_one_script_and_raise_ballots() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        let ballot = ballot(&node).await;
        let later = plus(ballot, 5);
        answers(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await;
        calls(&server, &[]);
        let said = answers(&node, each(&["a", "b"], &extend(later, 2 * TTL_MS))).await;
        assert_eq!(said, [const { Answer::Extended }; 2]);
        assert_eq!(calls(&server, &["evalsha", "pexpire", "set"]), [1, 2, 2]);
        for name in ["a", "b"] {
            let left: u64 = client.pttl(name).unwrap();
            assert!(left > TTL_MS, "{left}");
        }
        let said = answers(&node, each(&["a", "b"], &release(ballot))).await;
        assert_eq!(said, [const { Answer::Newer }; 2], "under a higher ballot");
    }
}

#[tokio::test]
async fn a_bundle_extends_only_what_its_token_holds_and_nothing_shortens() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let ballot = ballot(&node).await;
    let names = ["a", "theirs", "taken", "gone", "long", "b"];
    answers(&node, each(&["a", "b", "taken"], &acquire(ballot, TTL_MS))).await;
    answers(&node, each(&["long"], &acquire(ballot, 9 * TTL_MS))).await;
    let theirs = request(&["theirs"], BOB, acquire(ballot, TTL_MS));
    assert_eq!(call(&node, theirs).await.unwrap().answer, Answer::Granted);
    // Somebody else's value where the record still says that it is ours.
    let _: () = client
        .pset_ex("taken", token(BOB).expose(), TTL_MS)
        .unwrap();
    let said = answers(&node, each(&names, &extend(ballot, 2 * TTL_MS))).await;
    for (name, answer) in names.iter().zip(said) {
        match *name {
            "theirs" | "taken" => drop(held(answer)),
            "gone" => assert_eq!(answer, Answer::Gone),
            _ => assert_eq!(answer, Answer::Extended, "{name}"),
        }
    }
    let left = names.map(|name| client.pttl::<_, i64>(name).unwrap());
    let ttl = TTL_MS as i64;
    assert!(left[0] > ttl && left[5] > ttl, "{left:?}");
    assert!(left[1] <= ttl && left[2] <= ttl, "{left:?}");
    assert_eq!(left[3], -2, "not made anew");
    assert!(left[4] > 3 * ttl, "{left:?}");
}

#[tokio::test]
async fn a_ballot_in_a_bundle_must_be_above_the_floor_and_below_the_ceiling() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    for op in [acquire(ballot, TTL_MS), release(ballot)] {
        answers(&node, each(&["a", "b"], &op)).await;
    }
    let said = answers(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await;
    assert_eq!(said, [const { Answer::Stale }; 2]);
    let far = plus(ballot, 3_600_000_000);
    let said = answers(&node, each(&["a", "b"], &acquire(far, TTL_MS))).await;
    assert_eq!(said, [const { Answer::Ahead }; 2]);
}

#[tokio::test]
async fn an_acquire_that_its_own_release_has_overtaken_is_stale() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let theirs = request(&["b"], BOB, acquire(ballot, TTL_MS));
    assert_eq!(call(&node, theirs).await.unwrap().answer, Answer::Granted);
    let later = plus(ballot, 1);
    let withdrawn = Op::Release(Release {
        ballot: later,
        kind: ringfence::message::ReleaseKind::Final,
        fate_unknown: true,
        place: None,
        stays: false,
        keep_ms: None,
    });
    let said = answers(
        &node,
        vec![
            request(&["a"], ALICE, acquire(later, TTL_MS)),
            // Not the usual case, so it is sent again when the rest has been carried out.
            request(&["b"], ALICE, acquire(later, TTL_MS)),
            request(&["b"], ALICE, withdrawn),
            request(&["b"], BOB, release(ballot)),
        ],
    )
    .await;
    assert_eq!(said[0], Answer::Granted);
    assert_eq!(said[1], Answer::Stale);
    held(said[2].clone());
    assert_eq!(said[3], Answer::Released);
    assert!(!exists(&server, "b"));
}

#[tokio::test]
async fn flushed_scripts_of_bundles_are_sent_again_and_kept() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    server.command(&["SCRIPT", "FLUSH"]);
    calls(&server, &[]);
    for (op, answer) in [
        (acquire(ballot, TTL_MS), Answer::Granted),
        (release(ballot), Answer::Released),
        (
            Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
            Answer::Granted,
        ),
        (Op::PlainRelease, Answer::Released),
    ] {
        let said = answers(&node, each(&["a", "b"], &op)).await;
        assert_eq!(said, [answer.clone(), answer]);
    }
    // The first of each sort is sent twice, and in full the second time.
    assert_eq!(calls(&server, &["evalsha", "eval"]), [3, 2]);
}

#[tokio::test]
async fn what_a_bundle_leaves_alone_is_answered_though_every_script_was_flushed() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let names = ["a", "b", "c"];
    answers(&node, each(&names, &acquire(ballot, TTL_MS))).await;
    server.command(&["SCRIPT", "FLUSH"]);
    let requests = names.map(|name| request(&[name], BOB, acquire(plus(ballot, 1), TTL_MS)));
    let said = timeout(SOON, answers(&node, requests.into())).await;
    let said = said.expect("the calls go round in circles");
    assert!(said.iter().all(|answer| matches!(answer, Answer::Held(_))));
}

#[tokio::test]
async fn a_server_without_memory_takes_no_lock_of_a_bundle_and_frees_what_is_held() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    answers(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for refused in all(&node, each(&["c", "d"], &acquire(ballot, TTL_MS))).await {
        let error = refused.unwrap_err();
        assert!(matches!(error, CallError::Refused(_)), "{error:?}");
        assert!(error.to_string().contains("maxmemory"), "{error}");
    }
    let said = answers(&node, each(&["a", "b"], &release(ballot))).await;
    assert_eq!(said, [const { Answer::Released }; 2]);
    assert!(
        !["a", "b", "c", "d"]
            .iter()
            .any(|name| exists(&server, name))
    );
}

#[tokio::test]
async fn a_server_that_may_not_write_refuses_every_call_of_a_bundle() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    // Nobody is there to be followed, so it keeps what it has.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for refused in all(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await {
        let error = refused.unwrap_err();
        assert!(matches!(error, CallError::Refused(_)), "{error:?}");
        assert_eq!(error.trouble().kind, TroubleKind::Newborn, "{error}");
    }
    assert!(!exists(&server, "a"));
}

#[tokio::test]
async fn a_node_that_forgot_its_birth_does_nothing_of_a_bundle() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let _: () = client(&server).del("ringfence:born").unwrap();
    for refused in all(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await {
        let newborn =
            matches!(&refused, Err(CallError::Refused(t)) if t.kind == TroubleKind::Newborn);
        assert!(newborn, "{refused:?}");
    }
    assert!(!exists(&server, "a") && !exists(&server, "b"));
    call_until_answered(&node, inspect(&["a"])).await;
}

#[tokio::test]
async fn a_name_that_is_forbidden_costs_the_others_of_a_bundle_nothing() {
    let server = Server::start(Flavor::Redis);
    let user = ["ACL", "SETUSER", "lock", "on", ">pw", "+@all"];
    let keys = ["~ringfence:*", "~ballot", "~mine:*"];
    server.command(&[&user[..], &keys].concat());
    let node = node(&format!("redis://lock:pw@{}", server.addr()));
    join(&node, group()).await.unwrap();
    let ballot = ballot(&node).await;
    let names = ["mine:1", "yours", "mine:2"];
    let said = all(&node, each(&names, &acquire(ballot, TTL_MS))).await;
    assert_eq!(said[0].as_ref().unwrap().answer, Answer::Granted);
    assert_eq!(said[2].as_ref().unwrap().answer, Answer::Granted);
    assert_eq!(kind(said[1].clone()), TroubleKind::Denied);
}
