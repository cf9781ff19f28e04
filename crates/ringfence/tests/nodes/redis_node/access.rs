//! Access to a server: passwords and rights, databases, sockets, TLS, and clients that users
//! provide.

use redis::Commands;
use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::node::{CallError, Node, Tier, TroubleKind};
use ringfence_core::message::{Answer, Standing};

use ringfence_testkit::{Certificates, Flavor, Server};

use super::*;
use crate::nodes::support::*;

#[tokio::test]
async fn passwords_and_rights_are_checked_and_never_shown() {
    let server = Server::builder(Flavor::Redis)
        .requirepass("hunter2")
        .start();
    let at = server.addr();
    for (login, ok) in [("", false), (":wrong-secret@", false), (":hunter2@", true)] {
        let node = node(&format!("redis://{login}{at}"));
        match probe(&node).await {
            Ok(_) => assert!(ok, "{login}"),
            Err(error) => {
                assert!(!ok, "{login}: {error}");
                assert_eq!(error.trouble().kind, TroubleKind::Denied, "{error}");
                assert!(!error.to_string().contains("secret"), "{error}");
            }
        }
    }
    let acl = |rules: &[&str]| {
        let user = ["ACL", "SETUSER", "lock", "reset", "on", ">pw", "~*"];
        server.command(&[&user, rules].concat());
    };
    let node = || node(&format!("redis://lock:pw@{at}"));
    // The minimal rights: no CONFIG, so the server does not count as durable, and no SCRIPT LOAD.
    acl(&[
        "+info", "+eval", "+evalsha", "+time", "+get", "+set", "+mget", "+pttl", "+pexpire",
        "+del", "+exists",
    ]);
    let least = node();
    join(&least, group()).await.unwrap();
    let ballot = ballot(&least).await;
    let reply = call(&least, request(&["n"], 1, acquire(ballot, TTL_MS)))
        .await
        .unwrap();
    assert_eq!(reply.answer, Answer::Granted);
    // A script that fails half-way may have written something.
    acl(&["+info", "+eval", "+evalsha", "+time", "+get", "+mget"]);
    let outcome = call(&least, request(&["m"], 1, acquire(ballot, TTL_MS))).await;
    assert!(
        matches!(&outcome, Err(CallError::Unknown(t)) if t.kind == TroubleKind::Denied),
        "{outcome:?}"
    );
}

/// A service may deny `INFO`. Then nothing tells of a restart with old data or of a failover, but a
/// lock excludes others, and a server that lost its data is noticed.
#[tokio::test]
async fn a_server_that_denies_info_is_used_as_best_effort() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        let rules = ["on", ">pw", "~*", "&*", "+@all", "-info"];
        server.command(&[&["ACL", "SETUSER", "lock"], &rules[..]].concat());
        let unseen = node(&format!("redis://lock:pw@{}", server.addr()));
        let seeing = node(&server.url());
        let facts = join(&unseen, group()).await.unwrap();
        assert_eq!(facts.tier, Tier::BestEffort);
        let since = facts.standing.unwrap().incarnation;
        let ballot_before = ballot(&unseen).await;
        let take = |token| request(&["n"], token, acquire(ballot_before, TTL_MS));
        let granted = call(&unseen, take(1)).await.unwrap();
        assert_eq!(granted.answer, Answer::Granted);
        let refused = call(&unseen, take(2)).await.unwrap();
        assert!(matches!(refused.answer, Answer::Held(_)), "{refused:?}");
        // A client that sees more knows that the run id was made up. The other one adopts its record.
        let corrected = join(&seeing, group()).await.unwrap();
        assert!(corrected.standing.unwrap().incarnation > since);
        let adopted = join(&unseen, group()).await.unwrap();
        assert_eq!(
            adopted.standing,
            Some(Standing {
                clock_us: adopted.clock_us,
                ..corrected.standing.unwrap()
            })
        );
        let born: String = client(&server).get("ringfence:born").unwrap();
        server.command(&["FLUSHALL"]);
        join(&unseen, group()).await.unwrap();
        let after: String = client(&server).get("ringfence:born").unwrap();
        assert_ne!(after, born);
    }
}

#[tokio::test]
async fn durability_cannot_be_claimed_for_a_server_that_denies_info() {
    let server = Server::start(Flavor::Redis);
    let rules = ["on", ">pw", "~*", "&*", "+@all", "-info"];
    server.command(&[&["ACL", "SETUSER", "lock"], &rules[..]].concat());
    let claimed = node(&format!("redis://lock:pw@{}?durable=yes", server.addr()));
    let error = probe(&claimed).await.unwrap_err();
    assert_eq!(error.trouble().kind, TroubleKind::NotDurable);
    assert!(error.to_string().contains("grant +info"), "{error}");
}

#[tokio::test]
async fn the_database_of_the_url_is_used() {
    let server = Server::start(Flavor::Redis);
    for tail in ["/2", "?db=2"] {
        let node = node(&format!("{}{tail}", server.url()));
        join(&node, group()).await.unwrap();
    }
    let mut client = client(&server);
    assert!(!client.exists::<_, bool>("ringfence:born").unwrap());
    redis::cmd("SELECT").arg(2).exec(&mut client).unwrap();
    assert!(client.exists::<_, bool>("ringfence:born").unwrap());
}

#[tokio::test]
async fn a_database_that_the_server_does_not_have_is_a_misconfiguration() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        let url = format!("{}/99", server.url());
        let client = redis::Client::open(url.as_str()).unwrap();
        let given = RedisNode::from_client(client, "mine", Clock::System).unwrap();
        for node in [node(&url), given] {
            let error = probe(&node).await.unwrap_err();
            assert_eq!(error.trouble().kind, TroubleKind::Database, "{error}");
            assert!(error.trouble().is_misconfiguration());
            let text = error.to_string();
            assert!(
                text.contains("has no database with the number in its URL"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_node_connects_over_a_unix_socket() {
    let server = Server::builder(Flavor::Redis).unix_socket().start();
    let node = node(&server.url());
    join(&node, group()).await.unwrap();
    ballot(&node).await;
}

#[tokio::test]
async fn a_node_can_use_a_client_that_the_user_provides() {
    let server = Server::start(Flavor::Redis);
    let client = redis::Client::open(format!("{}/1", server.url())).unwrap();
    let node = RedisNode::from_client(client, "mine", Clock::System).unwrap();
    assert_eq!(node.name(), "mine");
    join(&node, group()).await.unwrap();
    ballot(&node).await;
}

#[tokio::test]
async fn tls_trusts_the_authority_of_the_url_and_no_other() {
    let certificates = Certificates::generate();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let ca = certificates.authority_file();
    let trusting = format!("rediss://localhost:{}?ca={}", server.port(), ca.display());
    let node = node(&trusting);
    join(&node, group()).await.unwrap();
    ballot(&node).await;
    let identified = format!(
        "{}?ca={}&cert={}&key={}",
        server.url(),
        ca.display(),
        certificates.certificate_file().display(),
        certificates.key_file().display()
    );
    probe(&super::node(&identified)).await.unwrap();
    // Whether or not this system has root certificates, none of them signed that certificate.
    if let Ok(doubting) = RedisNode::connect(url(&server.url()), Clock::System) {
        let error = probe(&doubting).await.unwrap_err();
        assert_eq!(error.trouble().kind, TroubleKind::Tls);
        assert!(error.to_string().contains("?ca="), "{error}");
    }
    let no_file = url("rediss://localhost?ca=/no/such.pem");
    let error = RedisNode::connect(no_file, Clock::System).unwrap_err();
    assert!(error.to_string().contains("/no/such.pem"), "{error}");
}

#[tokio::test]
async fn tls_on_one_side_only_is_named_with_the_scheme_to_use() {
    let certificates = Certificates::generate();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let plain = format!("redis://127.0.0.1:{}", server.port());
    let error = probe(&node(&plain)).await.unwrap_err();
    assert!(error.to_string().contains("use rediss://"), "{error}");
    let server = Server::start(Flavor::Redis);
    let ca = certificates.authority_file();
    let tls = format!("rediss://127.0.0.1:{}?ca={}", server.port(), ca.display());
    let error = probe(&node(&tls)).await.unwrap_err();
    assert!(error.to_string().contains("use redis://"), "{error}");
}

#[tokio::test]
async fn an_authority_s_certificate_as_the_server_s_own_is_named() {
    let certificates = Certificates::of_authority_alone();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let ca = certificates.authority_file();
    let url = format!("{}?ca={}", server.url(), ca.display());
    let error = probe(&node(&url)).await.unwrap_err();
    assert_eq!(error.trouble().kind, TroubleKind::Tls);
    let text = error.to_string();
    assert!(
        text.contains("certificate of an authority as its own"),
        "{text}"
    );
    assert!(!text.contains("CaUsedAsEndEntity"), "{text}");
}

#[tokio::test]
async fn a_host_name_that_does_not_exist_is_named() {
    let error = probe(&node("redis://no-such-host.invalid"))
        .await
        .unwrap_err();
    let text = error.to_string();
    // Without a name service the name may exist.
    let kind = match text.contains("Temporary failure") || text.contains("Try again") {
        true => TroubleKind::Unreachable,
        false => TroubleKind::NoSuchHost,
    };
    assert_eq!(error.trouble().kind, kind, "{text}");
    assert!(text.contains("no-such-host.invalid"), "{text}");
}
