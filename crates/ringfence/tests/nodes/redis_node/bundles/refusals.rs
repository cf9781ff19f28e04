//! Bundles that a server refuses, or whose script it has flushed.

use std::time::Duration;

use tokio::time::timeout;

use super::*;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn flushed_scripts_of_bundles_are_resent_and_then_cached() {
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
        let replies = answers(&node, each(&["a", "b"], &op)).await;
        assert_eq!(replies, [answer.clone(), answer]);
    }
    // The first call of each kind is sent twice, the second time with the whole script.
    assert_eq!(calls(&server, &["evalsha", "eval"]), [3, 2]);
}

#[tokio::test]
async fn unusual_calls_of_a_bundle_are_answered_although_every_script_was_flushed() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let names = ["a", "b", "c"];
    answers(&node, each(&names, &acquire(ballot, TTL_MS))).await;
    server.command(&["SCRIPT", "FLUSH"]);
    let requests = names.map(|name| request(&[name], BOB, acquire(plus(ballot, 1), TTL_MS)));
    let replies = timeout(SOON, answers(&node, requests.into())).await;
    let replies = replies.expect("the calls are resent without end");
    assert!(
        replies
            .iter()
            .all(|answer| matches!(answer, Answer::Held(_)))
    );
}

#[tokio::test]
async fn a_server_without_memory_refuses_acquires_of_a_bundle_and_executes_releases() {
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
    let replies = answers(&node, each(&["a", "b"], &release(ballot))).await;
    assert_eq!(replies, [const { Answer::Released }; 2]);
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
    // There is no master at that address, so the server keeps its data.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for refused in all(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await {
        let error = refused.unwrap_err();
        assert!(matches!(error, CallError::Refused(_)), "{error:?}");
        assert_eq!(error.trouble().kind, TroubleKind::Newborn, "{error}");
    }
    assert!(!exists(&server, "a"));
}

#[tokio::test]
async fn a_node_without_its_birth_record_executes_nothing_of_a_bundle() {
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
async fn a_forbidden_name_does_not_affect_the_others_of_a_bundle() {
    let server = Server::start(Flavor::Redis);
    let user = ["ACL", "SETUSER", "lock", "on", ">pw", "+@all"];
    let keys = ["~ringfence:*", "~ballot", "~mine:*"];
    server.command(&[&user[..], &keys].concat());
    let node = node(&format!("redis://lock:pw@{}", server.addr()));
    join(&node, group()).await.unwrap();
    let ballot = ballot(&node).await;
    let names = ["mine:1", "yours", "mine:2"];
    let replies = all(&node, each(&names, &acquire(ballot, TTL_MS))).await;
    assert_eq!(replies[0].as_ref().unwrap().answer, Answer::Granted);
    assert_eq!(replies[2].as_ref().unwrap().answer, Answer::Granted);
    assert_eq!(kind(replies[1].clone()), TroubleKind::Denied);
}
