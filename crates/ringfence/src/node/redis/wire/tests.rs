use std::sync::Mutex;
use std::time::Duration;

use redis::{RedisWrite, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;
use crate::clock::{Clock, SteppedClock};
use crate::message::Wake;
use crate::node::Hear;
use crate::node::redis::wire::stream::Detached;

const SOON: Duration = Duration::from_secs(10);

impl Stream for DuplexStream {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        None
    }
}

fn wire(room: usize) -> (Wire, DuplexStream) {
    let (ours, theirs) = duplex(room);
    (Wire::new(ours, None), theirs)
}

fn ask(wire: &mut Wire, texts: &[&str]) {
    let commands: Vec<Cmd> = texts.iter().map(|text| cmd(text)).collect();
    wire.send(&commands);
}

async fn numbers(wire: &mut Wire) -> RedisResult<Vec<Value>> {
    timeout(SOON, wire.answers())
        .await
        .expect("an answer in time")
}

#[tokio::test]
async fn each_batch_gets_its_answers_in_any_pieces() {
    let (mut wire, mut server) = wire(1 << 16);
    ask(&mut wire, &["A", "B"]);
    ask(&mut wire, &["C"]);
    assert_eq!(wire.batches.len(), 2);
    let serve = async {
        let mut asked = vec![0; 3 * b"*1\r\n$1\r\nA\r\n".len()];
        server.read_exact(&mut asked).await.unwrap();
        for byte in b":1\r\n-ERR no\r\n$5\r\nabcde\r\n" {
            server.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let take = async {
        let first = numbers(&mut wire).await.unwrap();
        (first, numbers(&mut wire).await.unwrap())
    };
    let ((), (first, second)) = tokio::join!(serve, take);
    assert!(matches!(
        first.as_slice(),
        [Value::Int(1), Value::ServerError(_)]
    ));
    assert_eq!(second, [Value::BulkString(b"abcde".to_vec())]);
    assert_eq!(wire.batches.len(), 0);
}

#[tokio::test]
async fn more_than_the_stream_takes_at_once_goes_both_ways() {
    let (mut wire, mut server) = wire(100);
    let long = "x".repeat(BATCH_BYTES);
    ask(&mut wire, &[&long, &long]);
    let serve = async {
        let mut asked = vec![0; wire_length(&long) * 2];
        server.read_exact(&mut asked).await.unwrap();
        let reply = format!("${}\r\n{long}\r\n:2\r\n", long.len());
        server.write_all(reply.as_bytes()).await.unwrap();
    };
    let ((), answers) = tokio::join!(serve, numbers(&mut wire));
    let long = Value::BulkString(long.into_bytes());
    assert_eq!(answers.unwrap(), [long, Value::Int(2)]);
    // A buffer that had to grow is freed.
    ask(&mut wire, &["A"]);
    let serve = async { server.write_all(b":3\r\n").await.unwrap() };
    let ((), answers) = tokio::join!(serve, numbers(&mut wire));
    assert_eq!(answers.unwrap(), [Value::Int(3)]);
    assert_eq!(wire.incoming.len(), CHUNK);
    assert!(wire.outgoing.capacity() <= BATCH_BYTES);
}

fn wire_length(text: &str) -> usize {
    cmd(text).get_packed_command().len()
}

#[tokio::test]
async fn answers_before_the_end_count_and_then_the_end_is_reported() {
    let (mut wire, mut server) = wire(1 << 16);
    ask(&mut wire, &["A"]);
    ask(&mut wire, &["B"]);
    server.write_all(b":1\r\n").await.unwrap();
    drop(server);
    // The other side is gone, so nothing can be written either.
    assert_eq!(numbers(&mut wire).await.unwrap(), [Value::Int(1)]);
    assert_eq!(numbers(&mut wire).await.unwrap_err().kind(), ErrorKind::Io);
}

#[tokio::test]
async fn an_end_is_noticed_without_a_batch_in_flight() {
    let (mut wire, server) = wire(1 << 16);
    drop(server);
    assert_eq!(numbers(&mut wire).await.unwrap_err().kind(), ErrorKind::Io);
}

#[tokio::test]
async fn a_reply_without_a_request_and_a_malformed_reply_end_the_connection() {
    for reply in [&b":1\r\n"[..], b"HTTP/1.1 400\r\n"] {
        let (mut wire, mut server) = wire(1 << 16);
        server.write_all(reply).await.unwrap();
        assert_eq!(
            numbers(&mut wire).await.unwrap_err().kind(),
            ErrorKind::Parse
        );
    }
}

/// Waits for the error that ends the connection, while the server sends `begin` and then `chunk`
/// repeatedly. Also returns how much it could send.
async fn flooded(begin: &[u8], chunk: &[u8]) -> (Option<Excess>, usize) {
    let (mut wire, mut server) = wire(1 << 20);
    ask(&mut wire, &["A", "B"]);
    let flood = async {
        let mut sent = begin.len();
        let mut more = server.write_all(begin).await.is_ok();
        while more {
            sent += chunk.len();
            more = server.write_all(chunk).await.is_ok();
        }
        sent
    };
    let refused = async {
        let error = timeout(SOON * 6, wire.answers()).await.unwrap();
        drop(wire);
        error.unwrap_err()
    };
    let (sent, error) = tokio::join!(flood, refused);
    (Excess::of(&error), sent)
}

#[tokio::test]
async fn a_reply_that_is_too_large_ends_the_connection_before_it_arrives() {
    let megabyte = vec![b'x'; 1 << 20];
    let (excess, sent) = flooded(b"$60000000\r\n", &megabyte).await;
    assert_eq!(excess, Some(Excess::Bytes));
    assert!(sent < 3 << 20, "{sent}");
    let (excess, sent) = flooded(b"*100000\r\n", &b":1\r\n".repeat(1 << 16)).await;
    assert_eq!(excess, Some(Excess::Values));
    assert!(sent < 3 << 20, "{sent}");
    // Each is small enough, but all of them together are not.
    let half = format!("${0}\r\n{1}\r\n", 1 << 19, "x".repeat(1 << 19));
    let (excess, sent) = flooded(b"*1000\r\n", half.as_bytes()).await;
    assert_eq!(excess, Some(Excess::Bytes));
    assert!(sent < 5 << 20, "{sent}");
}

#[tokio::test]
async fn replies_to_one_batch_that_take_too_much_memory_end_the_connection() {
    let (mut wire, mut server) = wire(1 << 20);
    let large = format!("${0}\r\n{1}\r\n", 1 << 19, "x".repeat(1 << 19));
    let count = 2 * BATCH_MAX_MEMORY / large.len();
    ask(&mut wire, &vec!["A"; count]);
    let serve = async {
        for _ in 0..count {
            if server.write_all(large.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let refused = async {
        let error = numbers(&mut wire).await.unwrap_err();
        drop(wire);
        error
    };
    let ((), error) = tokio::join!(serve, refused);
    assert_eq!(Excess::of(&error), Some(Excess::Batch));
}

/// Input is handled in turns of a bounded length. Counts the polls.
#[tokio::test]
async fn a_turn_ends_although_more_has_arrived() {
    let pushes = b">2\r\n$7\r\nmessage\r\n:1\r\n".repeat(2_000);
    let large = format!("${0}\r\n{1}\r\n", 1 << 19, "x".repeat(1 << 19)).into_bytes();
    for (arrived, turns_min) in [(pushes, 2_000 / (TURN_BYTES / PUSH_COST)), (large, 8)] {
        let (ours, mut server) = duplex(1 << 20);
        let mut wire = Wire::new(ours, Some(Arc::default()));
        ask(&mut wire, &["A"]);
        server.write_all(&arrived).await.unwrap();
        server.write_all(b":1\r\n").await.unwrap();
        let mut turns = 0;
        let polled = poll_fn(|cx| {
            turns += 1;
            wire.poll_answers(cx)
        });
        timeout(SOON, polled).await.unwrap().unwrap();
        assert!(turns > turns_min, "{turns}");
    }
}

#[derive(Default)]
struct WakeTexts(Mutex<Vec<String>>);

impl Hear for WakeTexts {
    fn hear(&self, wake: Wake) {
        self.0.lock().unwrap().push(wake.ticket);
    }
}

#[tokio::test]
async fn pushes_arrive_between_answers_and_a_subscription_is_answered_by_one() {
    let (listeners, recorded) = (Arc::<WakeListeners>::default(), Arc::<WakeTexts>::default());
    listeners.add("c", recorded.clone());
    let (ours, mut server) = duplex(1 << 16);
    let mut wire = Wire::new(ours, Some(listeners));
    ask(&mut wire, &["SUBSCRIBE", "A"]);
    let pushed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n\
        >3\r\n$7\r\nmessage\r\n$16\r\nringfence:wake:c\r\n$5\r\n0 c.7\r\n:5\r\n";
    server.write_all(pushed).await.unwrap();
    assert_eq!(
        numbers(&mut wire).await.unwrap(),
        [Value::Okay, Value::Int(5)]
    );
    assert_eq!(*recorded.0.lock().unwrap(), ["c.7"]);
}

/// Pushes wakes until the connection ends. Returns how many were delivered.
async fn pushed(wire: &mut Wire, server: &mut DuplexStream, recorded: &WakeTexts) -> usize {
    let wake = b">3\r\n$7\r\nmessage\r\n$16\r\nringfence:wake:c\r\n$5\r\n0 c.7\r\n";
    let many = wake.repeat(100);
    let flood = async {
        loop {
            server.write_all(&many).await.unwrap();
        }
    };
    let refused = async { timeout(SOON * 6, wire.answers()).await.unwrap() };
    let refused = tokio::select! {
        () = flood => unreachable!("it ends only with the other"),
        refused = refused => refused,
    };
    assert_eq!(Excess::of(&refused.unwrap_err()), Some(Excess::Pushes));
    std::mem::take(&mut *recorded.0.lock().unwrap()).len()
}

#[tokio::test]
async fn pushes_without_end_end_the_connection_and_the_next_is_allowed_no_more() {
    let clock = SteppedClock::starting_at(Duration::from_secs(1));
    let listeners = Arc::new(WakeListeners::new(Clock::Stepped(clock.clone())));
    let recorded = Arc::<WakeTexts>::default();
    listeners.add("c", recorded.clone());
    let connect = || {
        let (ours, server) = duplex(1 << 16);
        (Wire::new(ours, Some(Arc::clone(&listeners))), server)
    };
    let (mut wire, mut server) = connect();
    let first = pushed(&mut wire, &mut server, &recorded).await;
    assert!(first > 20_000, "a burst of wakes is no flood: {first}");
    let (mut wire, mut server) = connect();
    clock.step(Duration::from_millis(100));
    let second = pushed(&mut wire, &mut server, &recorded).await;
    assert!(second < first / 10, "{second} of {first}");
    // Calls pay for the wakes that they cause.
    let (mut wire, mut server) = connect();
    wire.send_commands(std::iter::once(ThousandCalls));
    let third = pushed(&mut wire, &mut server, &recorded).await;
    assert!((1_000..10_000).contains(&third), "{third}");
}

#[tokio::test]
async fn a_server_without_resp3_must_not_push() {
    let (mut wire, mut server) = wire(1 << 16);
    server.write_all(b">1\r\n+x\r\n").await.unwrap();
    let error = numbers(&mut wire).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parse);
}

/// A command that carries out a thousand calls.
struct ThousandCalls;

impl Words for ThousandCalls {
    fn write(&self, out: &mut impl RedisWrite) {
        out.write_arg(b"A");
    }

    fn calls(&self) -> usize {
        1_000
    }
}
