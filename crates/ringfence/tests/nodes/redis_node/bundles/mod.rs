//! Many calls in one script: each is answered as if it had been sent alone, whatever happens to the
//! others.

mod extends;
mod refusals;

use redis::Commands;
use ringfence::node::TroubleKind;
use ringfence_core::message::{Acquire, Answer, Op, PlainAcquire};
use ringfence_testkit::{Flavor, Server};

use super::*;
use crate::nodes::support::*;

/// Sends all of `requests` before the node can send the first: they form one batch.
async fn all(node: &RedisNode, requests: Vec<Request>) -> Vec<Result<Reply, CallError>> {
    let answers: Vec<_> = requests
        .into_iter()
        .map(|request| call(node, request))
        .collect();
    let mut replies = Vec::new();
    for answer in answers {
        replies.push(answer.await);
    }
    replies
}

/// Like [`all`], if every call is answered.
async fn answers(node: &RedisNode, requests: Vec<Request>) -> Vec<Answer> {
    let replies = all(node, requests).await.into_iter();
    replies.map(|reply| reply.unwrap().answer).collect()
}

/// `op` by ALICE on each of `names` separately.
fn each(names: &[&str], op: &Op) -> Vec<Request> {
    let requests = names.iter().map(|name| request(&[name], ALICE, op.clone()));
    requests.collect()
}

/// How often each command has been called since the last call of this function.
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

/// Whether `key` exists.
fn exists(server: &Server, key: &str) -> bool {
    client(server).exists(key).unwrap()
}

#[tokio::test]
async fn calls_on_different_names_share_one_script() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let ballot = ballot(&node).await;
        let names = ["a", "{a}", "b}{", "ü:\n"];
        calls(&server, &[]);
        let replies = answers(&node, each(&names, &acquire(ballot, TTL_MS))).await;
        assert_eq!(replies, [const { Answer::Granted }; 4]);
        assert_eq!(calls(&server, &["evalsha", "mget", "set"]), [1, 1, 8]);
        let replies = answers(&node, each(&names, &release(ballot))).await;
        assert_eq!(replies, [const { Answer::Released }; 4]);
        assert_eq!(calls(&server, &["evalsha", "set", "del"]), [1, 0, 1]);
        let taken = answers(
            &node,
            each(&names, &Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS })),
        )
        .await;
        assert_eq!(taken, [const { Answer::Granted }; 4]);
        assert_eq!(calls(&server, &["evalsha", "set"]), [0, 4]);
        let replies = answers(&node, each(&names, &Op::PlainRelease)).await;
        assert_eq!(replies, [const { Answer::Released }; 4]);
        assert_eq!(calls(&server, &["evalsha", "del"]), [1, 1]);
        assert!(!names.iter().any(|name| exists(&server, name)));
    }
}

#[tokio::test]
async fn a_bundle_has_at_most_32_calls() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let names: Vec<String> = (0..100).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    calls(&server, &[]);
    let replies = answers(&node, each(&names, &acquire(ballot, TTL_MS))).await;
    assert_eq!(replies, vec![Answer::Granted; 100]);
    assert_eq!(calls(&server, &["evalsha"]), [4]);
}

#[tokio::test]
async fn calls_on_one_name_keep_their_order() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let replies = answers(
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
        replies.iter().collect::<Vec<_>>(),
        [g, g, r, g, g, r, g, g, r, r, g]
    );
}

#[tokio::test]
async fn each_call_of_a_bundle_keeps_its_own_ttl_and_label() {
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
            ticket: None,
            not_after_us: None,
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
        // The record outlives the key.
        let record: i64 = client
            .pttl(format!("ringfence:{{{name}}}:record:{name}"))
            .unwrap();
        assert!(record >= ttl_ms as i64 - 10_000, "{name}: {record}");
    }
}

#[tokio::test]
async fn unusual_names_in_a_bundle_get_their_own_answers() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        let ballot = ballot(&node).await;
        let theirs = request(&["held"], BOB, acquire(ballot, TTL_MS));
        assert_eq!(call(&node, theirs).await.unwrap().answer, Answer::Granted);
        let _: () = client.hset("hash", "field", "value").unwrap();
        let damaged = "ringfence:{damaged}:record:damaged";
        let _: () = client.set(damaged, "2:1").unwrap();
        let _: () = client.set("their", "own value").unwrap();
        let waits = ticket(ballot.get(), "c.1");
        call(&node, request(&["awaited"], BOB, refresh(&[&waits])))
            .await
            .unwrap();
        let names = ["a", "held", "hash", "damaged", "b", "their", "awaited", "c"];
        let later = plus(ballot, 1);
        let replies = all(&node, each(&names, &acquire(later, TTL_MS))).await;
        let answer = |name: &str| {
            let position = names.iter().position(|other| *other == name).unwrap();
            replies[position].clone()
        };
        for name in ["a", "b", "c"] {
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
        assert!(error.to_string().contains(damaged), "{error}");
        // And released again, although some of the names are not held.
        let replies = all(&node, each(&names, &release(later))).await;
        let answer = |name: &str| {
            let position = names.iter().position(|other| *other == name).unwrap();
            replies[position].clone()
        };
        for name in ["a", "b", "c"] {
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
async fn a_damaged_record_in_a_bundle_is_an_error() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let ballot = ballot(&node).await;
    let (huge, token) = (u64::MAX, token(ALICE));
    let seat = format!("0:7:9:{}:job", token.expose());
    for (value, record, op) in [
        (None, format!("2:{huge}:5:5:0"), acquire(ballot, TTL_MS)),
        (None, format!("2:5:{huge}:5:0"), acquire(ballot, TTL_MS)),
        (None, "2:5:x:5:0".to_owned(), acquire(ballot, TTL_MS)),
        (None, "1:5:5".to_owned(), acquire(ballot, TTL_MS)),
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
        let _: () = client
            .set("ringfence:{damaged}:record:damaged", &record)
            .unwrap();
        let replies = all(&node, each(&["a", "damaged"], &op)).await;
        assert!(replies[0].is_ok(), "{replies:?}");
        let error = replies[1].clone().expect_err(&record);
        assert!(error.to_string().contains("damaged record"), "{error}");
        assert_eq!(exists(&server, "damaged"), value.is_some(), "{record}");
    }
}

#[tokio::test]
async fn plain_releases_in_a_bundle_delete_only_their_own_keys() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        let take = Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS });
        answers(&node, each(&["a", "b"], &take)).await;
        let _: () = client.set("held", token(BOB).expose()).unwrap();
        let _: () = client.hset("hash", "field", "value").unwrap();
        let names = ["a", "held", "gone", "hash", "b"];
        let mut replies = all(&node, each(&names, &Op::PlainRelease)).await;
        assert_eq!(kind(replies.remove(3)), TroubleKind::ForeignType);
        let replies: Vec<Answer> = replies
            .into_iter()
            .map(|replies| replies.unwrap().answer)
            .collect();
        let held = Answer::Held(Default::default());
        assert_eq!(
            replies,
            [Answer::Released, held, Answer::Gone, Answer::Released]
        );
        assert!(exists(&server, "held") && exists(&server, "hash"));
        assert!(!exists(&server, "a") && !exists(&server, "b"));
    }
}

#[tokio::test]
async fn a_release_in_a_bundle_keeps_a_later_attempt_and_closes_its_ballot() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let later = plus(ballot, 5);
    answers(&node, each(&["a", "b"], &acquire(later, TTL_MS))).await;
    let replies = answers(&node, each(&["a", "b"], &release(ballot))).await;
    assert_eq!(replies, [const { Answer::Newer }; 2]);
    let closing = release_of_unknown_fate(later);
    let replies = answers(&node, each(&["a", "b"], &closing)).await;
    assert_eq!(replies, [const { Answer::Released }; 2]);
    // A restore after the release must find the ballot closed.
    let again = call(&node, request(&["a"], ALICE, restore(later))).await;
    assert_eq!(again.unwrap().answer, Answer::Gone);
}

#[tokio::test]
async fn a_release_in_a_bundle_leaves_a_higher_ballot_closed() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let later = plus(ballot, 5);
    // Closes a ballot without raising the fence: nothing of it is under way.
    let mut keep = release(later);
    if let Some(release) = keep.release_mut() {
        release.keep_ms = Some(1);
    }
    let kept = call(&node, request(&["a"], BOB, keep)).await;
    assert_eq!(kept.unwrap().answer, Answer::Gone);
    for op in [acquire(ballot, TTL_MS), release_of_unknown_fate(ballot)] {
        answers(&node, each(&["a", "b"], &op)).await;
    }
    assert!(!exists(&server, "a"));
    let again = call(&node, request(&["a"], BOB, restore(later))).await;
    assert_eq!(again.unwrap().answer, Answer::Gone);
}

#[tokio::test]
async fn a_ballot_in_a_bundle_must_be_above_the_floor_and_below_the_ceiling() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    for op in [acquire(ballot, TTL_MS), release(ballot)] {
        answers(&node, each(&["a", "b"], &op)).await;
    }
    let replies = answers(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await;
    assert_eq!(replies, [const { Answer::Stale }; 2]);
    let far = plus(ballot, 3_600_000_000);
    let replies = answers(&node, each(&["a", "b"], &acquire(far, TTL_MS))).await;
    assert_eq!(replies, [const { Answer::Ahead }; 2]);
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_own_release_is_stale() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let theirs = request(&["b"], BOB, acquire(ballot, TTL_MS));
    assert_eq!(call(&node, theirs).await.unwrap().answer, Answer::Granted);
    let later = plus(ballot, 1);
    let released = release_of_unknown_fate(later);
    let replies = answers(
        &node,
        vec![
            request(&["a"], ALICE, acquire(later, TTL_MS)),
            // Not the usual case, so it is sent again after the rest was executed.
            request(&["b"], ALICE, acquire(later, TTL_MS)),
            request(&["b"], ALICE, released),
            request(&["b"], BOB, release(ballot)),
        ],
    )
    .await;
    assert_eq!(replies[0], Answer::Granted);
    assert_eq!(replies[1], Answer::Stale);
    held(replies[2].clone());
    assert_eq!(replies[3], Answer::Released);
    assert!(!exists(&server, "b"));
}
