//! How calls are answered while the connection works, breaks, hangs and is restored.

use std::time::Duration;

use redis::Commands;
use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::node::{CallError, Node, TroubleKind};
use ringfence_core::message::{Answer, Ballot, Holder, Op, PlainAcquire, PlainExtend};

use ringfence_testkit::{Flavor, Server, wait_until};

use super::*;
use crate::nodes::support::*;

#[tokio::test]
async fn a_lock_is_acquired_shown_and_released() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let (one, two) = (member(&server).await, member(&server).await);
        let ballot = ballot(&one).await;
        let reply = call(&one, request(&["n"], 1, acquire(ballot, TTL_MS)))
            .await
            .unwrap();
        assert_eq!(reply.answer, Answer::Granted);
        let stamp = reply.stamp.unwrap();
        assert_eq!(
            (stamp.floor, stamp.clock_us),
            (ballot, reply.standing.clock_us)
        );
        let later = Ballot::new(ballot.get() + 1000);
        let reply = call(&two, request(&["n"], 2, acquire(later, TTL_MS)))
            .await
            .unwrap();
        let Answer::Held(Holder {
            label, id, for_ms, ..
        }) = reply.answer
        else {
            panic!("{reply:?}");
        };
        assert_eq!(label.as_deref(), Some("job"));
        assert_eq!(id.as_deref(), Some(token(1).id()));
        assert!((9_000..=10_000).contains(&for_ms.unwrap()), "{for_ms:?}");
        let reply = call(&one, request(&["n"], 1, release(ballot)))
            .await
            .unwrap();
        assert_eq!(reply.answer, Answer::Released);
        let reply = call(&two, request(&["n"], 2, acquire(later, TTL_MS)))
            .await
            .unwrap();
        assert_eq!(reply.answer, Answer::Granted);
    }
}

#[tokio::test]
async fn plain_locks_are_plain_keys() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let plain = |holder, op| request(&["p"], holder, op);
    let answer = async |request| call(&node, request).await.unwrap().answer;
    let held = Answer::Held(Holder::default());
    let take = Op::PlainAcquire(PlainAcquire { ttl_ms: 5_000 });
    assert_eq!(answer(plain(1, take.clone())).await, Answer::Granted);
    assert_eq!(answer(plain(2, take)).await, held);
    assert_eq!(
        client(&server).get::<_, String>("p").unwrap(),
        token(1).expose()
    );
    let longer = Op::PlainExtend(PlainExtend { ttl_ms: 9_000 });
    assert_eq!(answer(plain(2, longer.clone())).await, held);
    assert_eq!(answer(plain(1, longer)).await, Answer::Extended);
    assert!(client(&server).pttl::<_, i64>("p").unwrap() > 8_000);
    assert_eq!(answer(plain(2, Op::PlainRelease)).await, held);
    assert_eq!(answer(plain(1, Op::PlainRelease)).await, Answer::Released);
    assert_eq!(answer(plain(1, Op::PlainRelease)).await, Answer::Gone);
    let both = request(&["p", "q"], 1, Op::PlainRelease);
    assert!(matches!(
        call(&node, both).await,
        Err(CallError::NotSent(_))
    ));
}

#[tokio::test]
async fn a_record_outlives_its_key() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let taken = acquire(ballot(&node).await, 90_000);
    // Two claims, since a single claim takes the fast path.
    let reply = call(&node, request(&["{a}1", "{a}2"], ALICE, taken)).await;
    assert_eq!(reply.unwrap().answer, Answer::Granted);
    let mut client = client(&server);
    for name in ["{a}1", "{a}2"] {
        let record: i64 = client
            .pttl(format!("ringfence:{{a}}:record:{name}"))
            .unwrap();
        assert!(record >= client.pttl(name).unwrap(), "{name}: {record}");
    }
}

#[tokio::test]
async fn flushed_scripts_are_resent() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let flush = || {
        redis::cmd("SCRIPT")
            .arg("FLUSH")
            .exec(&mut client(&server))
            .unwrap()
    };
    flush();
    let answers: Vec<_> = [
        request(&["n"], 1, acquire(ballot, TTL_MS)),
        request(&["n"], 1, release(ballot)),
        inspect(&["n"]),
    ]
    .map(|request| call(&node, request))
    .into();
    let mut replies = Vec::new();
    for answer in answers {
        replies.push(answer.await.unwrap().answer);
    }
    assert_eq!(replies[..2], [Answer::Granted, Answer::Released]);
    assert!(matches!(&replies[2], Answer::Views(views) if views[0].holder.is_none()));
    flush();
    let plain = request(&["n"], 1, Op::PlainRelease);
    assert_eq!(call(&node, plain).await.unwrap().answer, Answer::Gone);
}

#[tokio::test]
async fn many_calls_at_once_are_all_answered_in_order() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let mut answers = Vec::new();
    for i in 0..2_000u64 {
        let ballot = Ballot::new(ballot.get() + i);
        answers.push(call(&node, request(&["n"], 1, acquire(ballot, TTL_MS))));
        answers.push(call(&node, request(&["n"], 1, release(ballot))));
    }
    for (i, answer) in answers.into_iter().enumerate() {
        let expected = if i % 2 == 0 {
            Answer::Granted
        } else {
            Answer::Released
        };
        assert_eq!(answer.await.unwrap().answer, expected, "{i}");
    }
}

#[tokio::test]
async fn a_killed_connection_is_replaced() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let before = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS)))
        .await
        .unwrap();
    for _ in 0..3 {
        let mut client = client(&server);
        redis::cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .exec(&mut client)
            .unwrap();
        let reply = call_until_answered(&node, inspect(&["n"])).await;
        assert_eq!(reply.standing.incarnation, before.standing.incarnation);
        assert!(matches!(&reply.answer, Answer::Views(views) if views[0].ballot == Some(ballot)));
    }
}

#[tokio::test]
async fn calls_to_a_dead_server_fail_without_waiting() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    server.kill();
    let gone = call(&node, inspect(&["n"])).await;
    assert!(
        matches!(gone, Err(CallError::NotSent(_) | CallError::Unknown(_))),
        "{gone:?}"
    );
    for _ in 0..20 {
        let sent_at = Clock::System.now();
        let error = call(&node, inspect(&["n"])).await.unwrap_err();
        assert!(
            Clock::System.now().since(sent_at) < Duration::from_millis(90),
            "{:?}",
            Clock::System.now().since(sent_at)
        );
        assert!(
            matches!(&error, CallError::NotSent(t) if t.kind == TroubleKind::Unreachable),
            "{error:?}"
        );
        assert!(error.to_string().starts_with(node.name()), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_exist_is_unreachable() {
    let server = Server::start(Flavor::Redis);
    server.kill();
    let node = node(&server.url());
    assert_eq!(kind(probe(&node).await), TroubleKind::Unreachable);
    assert_eq!(kind(join(&node, group()).await), TroubleKind::Unreachable);
}

#[tokio::test]
async fn a_node_that_was_unreachable_at_join_joins_when_it_is_back() {
    let server = Server::start(Flavor::Redis);
    server.kill();
    let node = node(&server.url());
    assert_eq!(kind(join(&node, group()).await), TroubleKind::Unreachable);
    server.restart();
    call_until_answered(&node, inspect(&["n"])).await;
}

#[tokio::test]
async fn a_hung_server_times_out_and_is_used_again_later() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    server.pause();
    let sent_at = Clock::System.now();
    let error = call(&node, inspect(&["n"])).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unknown(t) if t.kind == TroubleKind::Timeout),
        "{error:?}"
    );
    assert!(
        (900..1_500).contains(&Clock::System.now().since(sent_at).as_millis()),
        "{:?}",
        Clock::System.now().since(sent_at)
    );
    // The system still accepts connections for a stopped server; calls do not wait for that.
    let sent_at = Clock::System.now();
    let error = call(&node, inspect(&["n"])).await.unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
    assert!(
        Clock::System.now().since(sent_at) < Duration::from_millis(300),
        "{:?}",
        Clock::System.now().since(sent_at)
    );
    // A new client fails, too, once it has waited long enough for the handshake.
    let new_client = super::node(&server.url());
    assert_eq!(kind(probe(&new_client).await), TroubleKind::Unreachable);
    server.resume();
    call_until_answered(&node, inspect(&["n"])).await;
}

#[tokio::test]
async fn an_expired_call_is_not_sent() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let late = request(&["n"], 1, acquire(ballot, TTL_MS));
    let answer = send(&node, late, Clock::System.now()).await;
    assert!(matches!(answer, Err(CallError::NotSent(_))), "{answer:?}");
    assert!(!client(&server).exists::<_, bool>("n").unwrap());
}

#[tokio::test]
async fn a_node_that_has_not_joined_sends_nothing() {
    let server = Server::start(Flavor::Redis);
    let node = node(&server.url());
    let outcome = call(&node, inspect(&["n"])).await;
    assert!(matches!(outcome, Err(CallError::NotSent(_))), "{outcome:?}");
    assert!(!client(&server).exists::<_, bool>("ringfence:born").unwrap());
}

#[tokio::test]
async fn calls_sent_before_the_node_was_dropped_are_executed() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let answer = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS)));
    drop(node);
    assert_eq!(answer.await.unwrap().answer, Answer::Granted);
    let mut client = client(&server);
    wait_until("the connection to be closed", PATIENCE, || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut client).unwrap();
        list.lines().count() == 1
    });
}

#[test]
fn a_node_that_outlives_its_tokio_runtime_answers_not_sent() {
    let server = Server::start(Flavor::Redis);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(member(&server));
    drop(runtime);
    let answer = call(&node, inspect(&["n"]));
    assert!(matches!(answer.wait(), Err(CallError::NotSent(_))));
    assert!(RedisNode::connect(url(&server.url()), Clock::System).is_err());
}

#[tokio::test]
async fn a_call_in_flight_when_the_server_dies_is_unknown() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    // A stopped server receives the request but cannot answer it any more.
    server.pause();
    let answer = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS)));
    tokio::task::yield_now().await;
    server.kill();
    let error = answer.await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unknown(t) if t.kind == TroubleKind::Disconnected),
        "{error:?}"
    );
}
