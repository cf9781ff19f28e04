//! Data that is not ours: keys of other programs, damaged records, servers that are not Redis.

use std::io::{Read, Write};
use std::net::TcpListener;

use redis::Commands;
use ringfence::node::{CallError, Node, TroubleKind};
use ringfence_core::message::{Claim, Mode, Op};

use ringfence_testkit::{Flavor, Server};

use super::*;
use crate::nodes::support::*;

#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_written() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let _: () = client.hset("hash", "field", "value").unwrap();
    let ballot = ballot(&node).await;
    for names in [&["hash"][..], &["a", "hash", "b"]] {
        let error = call(&node, request(names, 1, acquire(ballot, TTL_MS)))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, CallError::Refused(t) if t.kind == TroubleKind::ForeignType),
            "{error:?}"
        );
        assert!(error.to_string().contains("`hash`"), "{error}");
        assert!(error.to_string().contains("a hash,"), "{error}");
    }
    let plain = request(&["hash"], 1, Op::PlainRelease);
    assert_eq!(kind(call(&node, plain).await), TroubleKind::ForeignType);
    let keys: Vec<String> = client.keys("*").unwrap();
    assert_eq!(keys.len(), 2, "{keys:?}");
}

#[tokio::test]
async fn a_key_with_the_marker_of_readers_but_without_readers_belongs_to_another_program() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let marker = ringfence_core::ledger::SHARED;
    for names in [&["x"][..], &["a", "x"]] {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let _: () = client.set("x", marker).unwrap();
            let ballot = ballot(&node).await;
            let mut shared_request = request(names, 1, acquire(ballot, TTL_MS));
            let claims = shared_request.claims.iter().cloned();
            shared_request.claims = claims.map(|claim| Claim { mode, ..claim }).collect();
            let holder = held(call(&node, shared_request).await.unwrap().answer);
            assert_eq!((holder.label, holder.for_ms), (None, None));
            let (value, left): (String, i64) =
                redis::pipe().get("x").ttl("x").query(&mut client).unwrap();
            assert_eq!((&*value, left), (marker, -1), "it was overwritten");
        }
    }
}

#[tokio::test]
async fn a_damaged_record_is_an_error_and_not_treated_as_absent() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let mut client = client(&server);
    let huge = format!("2:{}:0:0:0", u64::MAX);
    for damage in [
        "",
        "nonsense",
        "3:5:5:5:0",
        "1:5",
        "2:5",
        "2:5:5:5",
        "2:5:5:5:2",
        "2:5:5:5:0:",
        "2:5:5:5:0:7:t:l",
        "2:5:5:5:0:7:x:t:l",
        "1:5:5",
        "1:5:5:7:t:l",
        "2:-5:5:5:0",
        &huge,
    ] {
        let _: () = client.set("ringfence:{n}:record:n", damage).unwrap();
        let error = call(&node, request(&["m", "n"], 1, acquire(ballot, TTL_MS)))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, CallError::Refused(t) if t.kind == TroubleKind::Other),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("`ringfence:{n}:record:n`"),
            "{damage}: {error}"
        );
    }
    assert!(!client.exists::<_, bool>(&["m", "n"]).unwrap());
}

/// A listener that answers every request with `times` times `junk`.
fn junk_server(junk: Vec<u8>, times: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, junk) = (stream.unwrap(), junk.clone());
            std::thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                    for _ in 0..times {
                        if stream.write_all(&junk).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_reported_as_garbage() {
    let deep = b"*1\r\n".repeat(5_000);
    for (junk, times) in [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
            1,
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), 1),
        (b"\0\xff\xfe junk \r\n".to_vec(), 1),
        (deep, 1),
        (b"+OK\r\n".to_vec(), 10),
        (b":1\r\n".to_vec(), 10),
    ] {
        let node = node(&format!(
            "redis://127.0.0.1:{}",
            junk_server(junk.clone(), times)
        ));
        let error = probe(&node).await.unwrap_err();
        assert_eq!(
            error.trouble().kind,
            TroubleKind::Garbage,
            "{error}: {:?}",
            junk.get(..8).unwrap_or(&junk)
        );
        assert!(error.to_string().contains(node.name()), "{error}");
    }
}

#[tokio::test]
async fn endless_replies_are_errors() {
    for head in [
        &b"$9000000000000000000\r\n"[..],
        b"*9000000000000000000\r\n",
        b"+",
        b"%9000000000000000000\r\n",
    ] {
        let mut junk = head.to_vec();
        junk.resize(1 << 20, b'x');
        let port = junk_server(junk, 1_000);
        let node = node(&format!("redis://127.0.0.1:{port}"));
        let outcome = probe(&node).await;
        assert!(outcome.is_err(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_server_without_memory_refuses_acquires_and_the_error_says_what_to_do() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let mut client = client(&server);
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory")
        .arg(1)
        .exec(&mut client)
        .unwrap();
    let error = call(&node, request(&["a", "b"], 1, acquire(ballot, TTL_MS)))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    assert!(!client.exists::<_, bool>(&["a", "b"]).unwrap());
}
