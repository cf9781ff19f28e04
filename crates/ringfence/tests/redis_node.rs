//! The connection of a Redis node: what calls are answered when it breaks, hangs, is refused or talks
//! to something that is no Redis.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::Commands;
use ringfence::clock::Clock;
use ringfence::message::{Answer, Ballot, Holder, Op, Reply};
use ringfence::node::redis::RedisNode;
use ringfence::node::{Call, CallError, Node, TroubleKind};

use support::{Make, Server};

fn kind<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> TroubleKind {
    outcome.unwrap_err().trouble().kind
}

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
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let mut client = server.client();
    let _: () = client.hset("hash", "field", "value").unwrap();
    let ballot = support::ballot(&node).await;
    for names in [&["hash"][..], &["a", "hash", "b"]] {
        let error = support::call(&node, support::acquire(names, 1, ballot))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, CallError::Refused(t) if t.kind == TroubleKind::ForeignType),
            "{error:?}"
        );
        assert!(error.to_string().contains("`hash`"), "{error}");
    }
    let plain = support::request(&["hash"], support::token(1), Op::PlainRelease);
    assert_eq!(
        kind(support::call(&node, plain).await),
        TroubleKind::ForeignType
    );
    let keys: Vec<String> = client.keys("*").unwrap();
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[tokio::test]
async fn a_damaged_record_is_never_taken_for_an_absent_one() {
    let server = Server::start(Make::Redis, &[]);
    let node = support::member(&server).await;
    let ballot = support::ballot(&node).await;
    let mut client = server.client();
    let huge = format!("1:{}:0", u64::MAX);
    for damage in [
        "",
        "nonsense",
        "2:5:5",
        "1:5",
        "1:5:5:",
        "1:5:5:x:t:l",
        "1:5:5:7:t",
        "1:-5:5",
        &huge,
    ] {
        let _: () = client.set("ringfence:{n}:n", damage).unwrap();
        let error = support::call(&node, support::acquire(&["m", "n"], 1, ballot))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, CallError::Refused(t) if t.kind == TroubleKind::Other),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("`ringfence:{n}:n`"),
            "{damage}: {error}"
        );
    }
    assert!(!client.exists::<_, bool>(&["m", "n"]).unwrap());
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

/// Something that listens, and answers everything with `junk`, `times` over.
fn junk_server(junk: Vec<u8>, times: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, junk) = (stream.unwrap(), junk.clone());
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                for _ in 0..times {
                    if stream.write_all(&junk).is_err() {
                        return;
                    }
                }
                let _ = stream.read(&mut [0; 1024]);
            });
        }
    });
    port
}

#[tokio::test]
async fn what_is_no_redis_is_told_so() {
    let deep = b"*1\r\n".repeat(5_000);
    for (junk, times) in [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
            1,
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), 1),
        (b"\0\xff\xfe junk \r\n".to_vec(), 1),
        (deep, 1),
        (b"+OK\r\n".to_vec(), 1_000),
        (b":1\r\n".to_vec(), 1_000),
    ] {
        let node = support::node(support::url(&format!(
            "redis://127.0.0.1:{}",
            junk_server(junk.clone(), times)
        )));
        let error = support::probe(&node).await.unwrap_err();
        assert_eq!(
            error.trouble().kind,
            TroubleKind::Garbage,
            "{error}: {:?}",
            &junk[..8]
        );
        assert!(error.to_string().contains(node.name()), "{error}");
    }
}

#[tokio::test]
async fn replies_without_end_are_cut_off() {
    for head in [
        &b"$9000000000000000000\r\n"[..],
        b"*9000000000000000000\r\n",
        b"+",
        b"%9000000000000000000\r\n",
    ] {
        let mut junk = head.to_vec();
        junk.resize(1 << 20, b'x');
        let port = junk_server(junk, 1_000);
        let node = support::node(support::url(&format!("redis://127.0.0.1:{port}")));
        let outcome = support::probe(&node).await;
        assert!(outcome.is_err(), "{outcome:?}");
    }
}
