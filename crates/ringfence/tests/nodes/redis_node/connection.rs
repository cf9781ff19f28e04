//! What calls are answered while the connection stands, breaks, hangs and comes back.

use std::time::{Duration, Instant};

use redis::Commands;
use ringfence::clock::Clock;
use ringfence::message::{Answer, Ballot, Holder, Op, Reply};
use ringfence::node::redis::RedisNode;
use ringfence::node::{Call, CallError, Node, TroubleKind};

use crate::support::{self, Make, Server, kind};

fn now() -> Instant {
    #[allow(clippy::disallowed_methods)]
    Instant::now()
}

#[tokio::test]
async fn a_lock_is_taken_shown_and_given_back() {
    for make in [Make::Redis, Make::Valkey] {
        let server = Server::start(make, &[]);
        let (one, two) = (
            support::member(&server).await,
            support::member(&server).await,
        );
        let ballot = support::ballot(&one).await;
        let reply = support::call(&one, support::acquire(&["n"], 1, ballot))
            .await
            .unwrap();
        assert_eq!(reply.answer, Answer::Granted);
        let stamp = reply.stamp.unwrap();
        assert_eq!(
            (stamp.floor, stamp.clock_us),
            (ballot, reply.standing.clock_us)
        );
        let later = Ballot::new(ballot.get() + 1000);
        let reply = support::call(&two, support::acquire(&["n"], 2, later))
            .await
            .unwrap();
        let Answer::Held(Holder {
            label, id, for_ms, ..
        }) = reply.answer
        else {
            panic!("{reply:?}");
        };
        assert_eq!(label.as_deref(), Some("holder 1"));
        assert_eq!(id.as_deref(), Some(support::token(1).id()));
        assert!((9_000..=10_000).contains(&for_ms.unwrap()), "{for_ms:?}");
        let reply = support::call(&one, support::release(&["n"], 1, ballot))
            .await
            .unwrap();
        assert_eq!(reply.answer, Answer::Released);
        let reply = support::call(&two, support::acquire(&["n"], 2, later))
            .await
            .unwrap();
        assert_eq!(reply.answer, Answer::Granted);
    }
}

#[tokio::test]
async fn plain_locks_are_plain_keys() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let plain = |holder, op| support::request(&["p"], support::token(holder), op);
    let answer = async |request| support::call(&node, request).await.unwrap().answer;
    let held = Answer::Held(Holder::default());
    let take = Op::PlainAcquire { ttl_ms: 5_000 };
    assert_eq!(answer(plain(1, take.clone())).await, Answer::Granted);
    assert_eq!(answer(plain(2, take)).await, held);
    assert_eq!(
        server.client().get::<_, String>("p").unwrap(),
        support::token(1).expose()
    );
    let longer = Op::PlainExtend { ttl_ms: 9_000 };
    assert_eq!(answer(plain(2, longer.clone())).await, held);
    assert_eq!(answer(plain(1, longer)).await, Answer::Extended);
    assert!(server.client().pttl::<_, i64>("p").unwrap() > 8_000);
    assert_eq!(answer(plain(2, Op::PlainRelease)).await, held);
    assert_eq!(answer(plain(1, Op::PlainRelease)).await, Answer::Released);
    assert_eq!(answer(plain(1, Op::PlainRelease)).await, Answer::Gone);
    let both = support::request(&["p", "q"], support::token(1), Op::PlainRelease);
    assert!(matches!(
        support::call(&node, both).await,
        Err(CallError::NotSent(_))
    ));
}

#[tokio::test]
async fn flushed_scripts_are_sent_again() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    let flush = || {
        redis::cmd("SCRIPT")
            .arg("FLUSH")
            .exec(&mut server.client())
            .unwrap()
    };
    flush();
    let answers: Vec<_> = [
        support::acquire(&["n"], 1, ballot),
        support::release(&["n"], 1, ballot),
        support::inspect(&["n"]),
    ]
    .map(|request| support::start(&node, request))
    .into();
    let mut said = Vec::new();
    for answer in answers {
        said.push(answer.await.unwrap().unwrap().answer);
    }
    assert_eq!(said[..2], [Answer::Granted, Answer::Released]);
    assert!(matches!(&said[2], Answer::Views(views) if views[0].holder.is_none()));
    flush();
    let plain = support::request(&["n"], support::token(1), Op::PlainRelease);
    assert_eq!(
        support::call(&node, plain).await.unwrap().answer,
        Answer::Gone
    );
}

#[tokio::test]
async fn many_calls_at_once_are_all_answered_in_their_order() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    let mut answers = Vec::new();
    for i in 0..2_000u64 {
        let ballot = Ballot::new(ballot.get() + i);
        answers.push(support::start(&node, support::acquire(&["n"], 1, ballot)));
        answers.push(support::start(&node, support::release(&["n"], 1, ballot)));
    }
    for (i, answer) in answers.into_iter().enumerate() {
        let expected = if i % 2 == 0 {
            Answer::Granted
        } else {
            Answer::Released
        };
        assert_eq!(answer.await.unwrap().unwrap().answer, expected, "{i}");
    }
}

#[tokio::test]
async fn a_killed_connection_is_made_again() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    let before = support::call(&node, support::acquire(&["n"], 1, ballot))
        .await
        .unwrap();
    for _ in 0..3 {
        let mut client = server.client();
        redis::cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .exec(&mut client)
            .unwrap();
        let reply = support::call_until_answered(&node, support::inspect(&["n"])).await;
        assert_eq!(reply.standing.incarnation, before.standing.incarnation);
        assert!(matches!(&reply.answer, Answer::Views(views) if views[0].ballot == Some(ballot)));
    }
}

#[tokio::test]
async fn a_dead_server_costs_no_wait() {
    let mut server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    server.kill();
    let gone = support::call(&node, support::inspect(&["n"])).await;
    assert!(
        matches!(gone, Err(CallError::NotSent(_) | CallError::Unknown(_))),
        "{gone:?}"
    );
    for _ in 0..20 {
        let asked = now();
        let error = support::call(&node, support::inspect(&["n"]))
            .await
            .unwrap_err();
        assert!(
            asked.elapsed() < Duration::from_millis(90),
            "{:?}",
            asked.elapsed()
        );
        assert!(
            matches!(&error, CallError::NotSent(t) if t.kind == TroubleKind::Unreachable),
            "{error:?}"
        );
        assert!(error.to_string().starts_with(node.name()), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_was_never_there_is_unreachable() {
    let node = support::node(support::url(&format!(
        "redis://127.0.0.1:{}",
        support::free_port()
    )));
    assert_eq!(kind(support::probe(&node).await), TroubleKind::Unreachable);
    assert_eq!(
        kind(support::join(&node, support::group()).await),
        TroubleKind::Unreachable
    );
    let node = support::node(support::url("redis://no-such-host.invalid"));
    assert_eq!(kind(support::probe(&node).await), TroubleKind::Unreachable);
}

#[tokio::test]
async fn a_node_that_was_away_when_told_to_join_joins_when_it_comes_back() {
    let mut server = Server::start(Make::Redis, &[]);
    server.kill();
    let node = support::node(server.url());
    assert_eq!(
        kind(support::join(&node, support::group()).await),
        TroubleKind::Unreachable
    );
    server.restart();
    support::call_until_answered(&node, support::inspect(&["n"])).await;
}

#[tokio::test]
async fn a_hung_server_is_given_up_and_found_again() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    server.stop();
    let asked = now();
    let error = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, CallError::Unknown(t) if t.kind == TroubleKind::Timeout),
        "{error:?}"
    );
    assert!(
        (900..1_500).contains(&asked.elapsed().as_millis()),
        "{:?}",
        asked.elapsed()
    );
    // The system still accepts connections for a stopped server; its calls do not wait for that.
    let asked = now();
    let error = support::call(&node, support::inspect(&["n"]))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
    assert!(
        asked.elapsed() < Duration::from_millis(300),
        "{:?}",
        asked.elapsed()
    );
    // A newcomer is told too, once it has waited long enough for a greeting.
    let newcomer = support::node(server.url());
    assert_eq!(
        kind(support::probe(&newcomer).await),
        TroubleKind::Unreachable
    );
    server.resume();
    support::call_until_answered(&node, support::inspect(&["n"])).await;
}

#[tokio::test]
async fn a_call_that_is_too_late_is_not_sent() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    let (done, answer) = support::completion::<Reply>();
    node.send(Call {
        request: support::acquire(&["n"], 1, ballot).into(),
        expires: Clock::System.now(),
        done,
    });
    assert!(matches!(answer.await.unwrap(), Err(CallError::NotSent(_))));
    assert!(!server.client().exists::<_, bool>("n").unwrap());
}

#[tokio::test]
async fn a_node_that_has_not_joined_is_not_asked() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::node(server.url());
    let outcome = support::call(&node, support::inspect(&["n"])).await;
    assert!(matches!(outcome, Err(CallError::NotSent(_))), "{outcome:?}");
    assert!(!server.client().exists::<_, bool>("ringfence:born").unwrap());
}

#[tokio::test]
async fn what_was_sent_before_the_node_was_dropped_is_carried_out() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    let answer = support::start(&node, support::acquire(&["n"], 1, ballot));
    drop(node);
    assert_eq!(answer.await.unwrap().unwrap().answer, Answer::Granted);
    let mut client = server.client();
    support::eventually("the connection is closed", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut client).unwrap();
        list.lines().count() == 1
    });
}

#[test]
fn a_node_outlives_its_runtime_without_harm() {
    let server = Server::start(Make::Redis, &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(support::member(&server));
    drop(runtime);
    let answer = support::start(&node, support::inspect(&["n"]));
    assert!(matches!(
        answer.blocking_recv().unwrap(),
        Err(CallError::NotSent(_))
    ));
    assert!(RedisNode::connect(server.url(), Clock::System).is_err());
}
