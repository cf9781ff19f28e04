//! A server that sends far more than was requested: the client disconnects, and the error says why.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ringfence::Locks;
use ringfence::node::{InitMode, TroubleKind};
use ringfence_testkit::{Flavor, Server, wait_until_async};

use super::*;
use crate::nodes::support::*;

/// A listener that serves each connection in a thread of its own.
struct Listener {
    port: u16,
}

impl Listener {
    /// Serves every connection with `serve`. It ends with the process.
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Self { port }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Writes `chunk` until the peer disconnects, but at most `bytes`. Returns the bytes written.
fn flood(stream: &mut TcpStream, chunk: &[u8], bytes: usize) -> usize {
    let mut sent = 0;
    while sent < bytes && stream.write_all(chunk).is_ok() {
        sent += chunk.len();
    }
    sent
}

/// Probe, join, init and doctor read only a part of a reply that is too large.
#[tokio::test]
async fn a_reply_that_is_too_large_is_refused_for_every_request() {
    const ANNOUNCED: usize = 60_000_000;
    let most = Arc::<AtomicUsize>::default();
    let taken = Arc::clone(&most);
    let listener = Listener::start(move |mut stream| {
        let _ = stream.read(&mut [0; 1 << 10]);
        let begin = format!("${ANNOUNCED}\r\n");
        if stream.write_all(begin.as_bytes()).is_ok() {
            let sent = flood(&mut stream, &[b'x'; 1 << 16], ANNOUNCED);
            taken.fetch_max(sent, Ordering::SeqCst);
        }
    });
    let message = format!(
        "127.0.0.1:{} sent a reply larger than 1 MiB; is this a Redis server?",
        listener.port
    );
    let node = node(&listener.url());
    for outcome in [
        probe(&node).await,
        join(&node, group()).await,
        init(&node, group(), InitMode::Check).await,
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.trouble().kind, TroubleKind::Garbage);
    }
    let doctor = Locks::builder().nodes(&listener.url());
    let mut examined = doctor.examine(None).await.unwrap();
    let found = examined.remove(0).found;
    assert_eq!(found.unwrap_err().to_string(), message);
    // The sockets may hold megabytes, but the client did not wait for the pause.
    let taken = most.load(Ordering::SeqCst);
    assert!(taken < ANNOUNCED / 2, "{taken}");
}

/// Relays bytes between `client` and the server at `port` until the node has `joined` and the server has
/// sent nothing for a moment, as after a handshake. Then pushes to the client without end.
fn relay_and_flood(mut client: TcpStream, port: u16, joined: &AtomicBool) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    let idle = Duration::from_millis(100);
    server.set_read_timeout(Some(idle)).unwrap();
    let mut chunk = [0; 1 << 16];
    loop {
        match server.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) if client.write_all(&chunk[..count]).is_err() => return,
            Ok(_) => {}
            // Nothing for a moment. A busy server may need longer for a handshake.
            Err(_) if joined.load(Ordering::SeqCst) => break,
            Err(_) => {}
        }
    }
    let push = b">3\r\n$7\r\nmessage\r\n$16\r\nringfence:wake:c\r\n$5\r\n0 c.7\r\n";
    flood(&mut client, &push.repeat(100), usize::MAX);
}

#[tokio::test]
async fn a_connection_flooded_with_pushes_is_closed_and_reopened_after_growing_pauses() {
    let server = Server::start(Flavor::Redis);
    let port = server.port();
    let pauses = Arc::<Mutex<Vec<Duration>>>::default();
    let (noted, ended) = (Arc::clone(&pauses), Mutex::new(None));
    let joined = Arc::<AtomicBool>::default();
    let has_joined = Arc::clone(&joined);
    let listener = Listener::start(move |stream| {
        let before = ended.lock().unwrap().take();
        let pause = before.map(|before| Clock::System.now().since(before));
        noted.lock().unwrap().extend(pause);
        relay_and_flood(stream, port, &has_joined);
        *ended.lock().unwrap() = Some(Clock::System.now());
    });
    let node = node(&listener.url());
    wait_until_async("the node to join", PATIENCE, async || {
        join(&node, group()).await.is_ok()
    })
    .await;
    joined.store(true, Ordering::SeqCst);
    // The shortest pauses are 10, 20, 40, 80, 160, 320 and 500 ms. After a connection that was lost
    // for another reason the pause is 50 ms at most.
    wait_until_async("a long pause", PATIENCE, async || {
        let pauses = pauses.lock().unwrap();
        pauses
            .iter()
            .any(|pause| *pause >= Duration::from_millis(200))
    })
    .await;
}
