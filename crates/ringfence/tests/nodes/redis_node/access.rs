//! The ways to a server: passwords and rights, databases, sockets, TLS, clients that are handed in.

use std::process::Command;

use redis::Commands;
use ringfence::clock::Clock;
use ringfence::message::Answer;
use ringfence::node::redis::RedisNode;
use ringfence::node::{CallError, Node, TroubleKind};

use crate::support::{self, Make, Server};

#[tokio::test]
async fn passwords_and_rights_are_checked_and_never_shown() {
    let args = ["--requirepass", "hunter2"];
    let server = Server::start(Make::Redis, &args);
    let at = format!("127.0.0.1:{}", server.port);
    for (login, ok) in [("", false), (":wrong-secret@", false), (":hunter2@", true)] {
        let node = support::node(support::url(&format!("redis://{login}{at}")));
        let outcome = support::probe(&node).await;
        match outcome {
            Ok(_) => assert!(ok, "{login}"),
            Err(error) => {
                assert!(!ok, "{login}: {error}");
                assert_eq!(error.trouble().kind, TroubleKind::Denied, "{error}");
                assert!(!error.to_string().contains("secret"), "{error}");
            }
        }
    }
    let mut admin = redis::Client::open(format!("redis://:hunter2@{at}"))
        .unwrap()
        .get_connection()
        .unwrap();
    let mut acl = |rules: &[&str]| {
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg("lock")
            .arg("reset")
            .arg("on")
            .arg(">pw")
            .arg("~*")
            .arg(rules)
            .exec(&mut admin)
            .unwrap();
    };
    let node = |text: &str| support::node(support::url(&format!("redis://lock:pw@{at}{text}")));
    acl(&["+@all", "-info"]);
    let error = support::probe(&node("")).await.unwrap_err();
    assert_eq!(error.trouble().kind, TroubleKind::Denied);
    assert!(error.to_string().contains("'info'"), "{error}");
    // The least rights: no CONFIG, so nothing is known to be durable, and no SCRIPT LOAD.
    acl(&[
        "+info", "+eval", "+evalsha", "+time", "+get", "+set", "+mget", "+pttl", "+pexpire",
        "+del", "+exists",
    ]);
    let least = node("");
    support::join(&least, support::group()).await.unwrap();
    let ballot = support::ballot(&least).await;
    let reply = support::call(&least, support::acquire(&["n"], 1, ballot))
        .await
        .unwrap();
    assert_eq!(reply.answer, Answer::Granted);
    // A script that breaks off may have written something before.
    acl(&["+info", "+eval", "+evalsha", "+time", "+get", "+mget"]);
    let outcome = support::call(&least, support::acquire(&["m"], 1, ballot)).await;
    assert!(
        matches!(&outcome, Err(CallError::Unknown(t)) if t.kind == TroubleKind::Denied),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn the_database_of_the_url_is_used() {
    let server = Server::start(Make::Redis, &[]);
    for tail in ["/2", "?db=2"] {
        let node = support::node(support::url(&format!(
            "redis://127.0.0.1:{}{tail}",
            server.port
        )));
        support::join(&node, support::group()).await.unwrap();
    }
    let mut client = server.client();
    assert!(!client.exists::<_, bool>("ringfence:born").unwrap());
    redis::cmd("SELECT").arg(2).exec(&mut client).unwrap();
    assert!(client.exists::<_, bool>("ringfence:born").unwrap());
}

#[tokio::test]
async fn a_unix_socket_will_do() {
    let server = Server::start(Make::Redis, &["--unixsocket", "socket"]);
    let path = server.dir.join("socket");
    let node = support::node(support::url(&format!("redis+unix://{}", path.display())));
    support::join(&node, support::group()).await.unwrap();
    support::ballot(&node).await;
}

#[tokio::test]
async fn a_client_can_be_handed_in() {
    let server = Server::start(Make::Redis, &[]);
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/1", server.port)).unwrap();
    let node = RedisNode::from_client(client, "mine", Clock::System).unwrap();
    assert_eq!(node.name(), "mine");
    support::join(&node, support::group()).await.unwrap();
    support::ballot(&node).await;
}

#[tokio::test]
async fn tls_trusts_the_authority_of_the_url_and_no_other() {
    let dir = std::env::temp_dir().join(format!("ringfence-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-days", "2", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let tls_port = support::free_port().to_string();
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::start(
        Make::Redis,
        &[
            "--tls-port",
            &tls_port,
            "--tls-cert-file",
            cert,
            "--tls-key-file",
            key,
            "--tls-auth-clients",
            "no",
        ],
    );
    let trusting = support::url(&format!("rediss://localhost:{tls_port}?ca={cert}"));
    let node = support::node(trusting);
    support::join(&node, support::group()).await.unwrap();
    support::ballot(&node).await;
    let both = format!("rediss://127.0.0.1:{tls_port}?ca={cert}&cert={cert}&key={key}");
    support::probe(&support::node(support::url(&both)))
        .await
        .unwrap();
    // Whether or not this system has roots, none of them signed that certificate.
    if let Ok(doubting) = RedisNode::connect(
        support::url(&format!("rediss://localhost:{tls_port}")),
        Clock::System,
    ) {
        let error = support::probe(&doubting).await.unwrap_err();
        assert_eq!(error.trouble().kind, TroubleKind::Unreachable);
        assert!(error.to_string().contains("?ca="), "{error}");
    }
    let no_file = support::url("rediss://localhost?ca=/no/such.pem");
    let error = RedisNode::connect(no_file, Clock::System).unwrap_err();
    assert!(error.to_string().contains("/no/such.pem"), "{error}");
    drop(server);
    let _ = std::fs::remove_dir_all(dir);
}
