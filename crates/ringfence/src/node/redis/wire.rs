//! The bytes of one connection: commands out in batches, answers in, in the same order.
//!
//! The client library could do this too, and does where only it can make the connection (see
//! [`super::line`]). There a command goes through three queues on its way out and a parser that can do
//! everything on its way back, and the task is woken for each; here it is two buffers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use redis::{Cmd, ErrorKind, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::client::TlsStream;

use super::ears::Ears;
use super::frame::{self, Framer};
use super::last_words::{Detached, Remainder};
use super::limits::{self, BATCH_MAX_MEMORY, Excess, PUSH_COST, READ_COST, TURN_BYTES};
use super::packer::Packer;

/// How much is read at once. A buffer that had to grow beyond it is given back afterwards.
const CHUNK: usize = 16 << 10;
/// How much room is kept for commands: what a large batch takes.
const BATCH_BYTES: usize = 64 << 10;

/// Bytes both ways.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The way out without the runtime, for a runtime that ends: it does not block. `None` if there
    /// is none.
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>>;
}

impl Stream for TcpStream {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        Some(Box::new(self.into_std().ok()?))
    }
}

#[cfg(unix)]
impl Stream for UnixStream {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        Some(Box::new(self.into_std().ok()?))
    }
}

impl Stream for TlsStream<TcpStream> {
    fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
        let (stream, session) = self.into_inner();
        let stream = stream.into_std().ok()?;
        Some(Box::new(rustls::StreamOwned::new(session, stream)))
    }
}

/// See the module.
pub(super) struct Wire {
    stream: Box<dyn Stream>,
    /// Commands, of which the first `written` bytes are on their way.
    outgoing: Vec<u8>,
    written: usize,
    /// Whether the stream itself keeps none of them back, as TLS may.
    flushed: bool,
    /// What has arrived and has not been read is in `read..arrived`; the rest is room.
    incoming: Vec<u8>,
    read: usize,
    arrived: usize,
    framer: Framer,
    /// How many answers each batch is to have that has not got them all.
    batches: VecDeque<usize>,
    /// Those to the first of them so far, and about how much memory they take.
    answers: Vec<Value>,
    memory: usize,
    /// How much has been handled since others last had their turn.
    spent: usize,
    /// Hears what is pushed.
    ears: Option<Arc<Ears>>,
    /// How many calls were sent since something was pushed.
    calls: u32,
    /// Why nothing more can be sent. What arrived before the end still counts.
    broken: Option<io::Error>,
}

impl Wire {
    pub(super) fn new(stream: impl Stream + 'static, ears: Option<Arc<Ears>>) -> Self {
        Self {
            stream: Box::new(stream),
            outgoing: Vec::new(),
            written: 0,
            flushed: true,
            incoming: vec![0; CHUNK],
            read: 0,
            arrived: 0,
            framer: Framer::default(),
            batches: VecDeque::new(),
            answers: Vec::new(),
            memory: 0,
            spent: 0,
            ears,
            calls: 0,
            broken: None,
        }
    }

    /// Whether the server may push.
    pub(super) fn hears(&self) -> bool {
        self.ears.is_some()
    }

    /// How many batches have not been answered.
    pub(super) fn under_way(&self) -> usize {
        self.batches.len()
    }

    /// Has `commands` sent, as one batch, by whoever waits for answers.
    pub(super) fn send<'a>(&mut self, commands: impl IntoIterator<Item = &'a Cmd>) {
        let mut count = 0;
        for command in commands {
            command.write_packed_command(&mut self.outgoing);
            count += 1;
        }
        self.batches.push_back(count);
    }

    /// Has a command sent for each of `items`, as `write` writes it, as one batch of so many calls.
    pub(super) fn send_each<T>(
        &mut self,
        items: &[T],
        calls: usize,
        write: impl Fn(&T, &mut Packer<'_>),
    ) {
        self.calls = self
            .calls
            .saturating_add(u32::try_from(calls).unwrap_or(u32::MAX));
        for item in items {
            write(item, &mut Packer::new(&mut self.outgoing));
        }
        self.batches.push_back(items.len());
    }

    /// The answers to the oldest batch, errors of the server among them; sends and hears meanwhile.
    /// Without a batch it ends only if the connection does. Safe to cancel.
    ///
    /// # Errors
    /// If the connection is of no more use.
    pub(super) async fn answers(&mut self) -> RedisResult<Vec<Value>> {
        poll_fn(|cx| self.poll_answers(cx)).await
    }

    /// Writes what can be written now, and waits for nothing.
    pub(super) async fn write_now(&mut self) {
        let write = poll_fn(|cx| {
            self.poll_write(cx);
            Poll::Ready(())
        });
        // It is one attempt: it must not fail because other work has used up the task's turn.
        tokio::task::unconstrained(write).await;
    }

    /// The connection without the runtime.
    pub(super) fn detach(mut self) -> Option<Remainder> {
        if self.broken.is_some() {
            return None;
        }
        self.outgoing.drain(..self.written);
        Some(Remainder {
            stream: self.stream.detach()?,
            unwritten: self.outgoing,
            arrived: self.incoming[self.read..self.arrived].to_vec(),
            framer: self.framer,
            missing: self.batches.iter().sum::<usize>() - self.answers.len(),
        })
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<Vec<Value>>> {
        self.poll_write(cx);
        loop {
            if let Some(answers) = self.take_answers()? {
                return Poll::Ready(Ok(answers));
            }
            if self.is_turn_over() {
                self.spent = 0;
                return let_others_run(cx);
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    // Whoever could not write knows better why.
                    return Poll::Ready(Err(self.broken.take().unwrap_or(error).into()));
                }
                Poll::Pending => {
                    self.spent = 0;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether others are to have their turn now.
    fn is_turn_over(&self) -> bool {
        self.spent >= TURN_BYTES
    }

    /// Sends what can be sent now. A failure is kept for later: the last answers may be there already.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        while self.written < self.outgoing.len() && self.broken.is_none() {
            let rest = &self.outgoing[self.written..];
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => self.broken = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => self.broken = Some(error),
            }
        }
        if self.written > 0 {
            self.outgoing.clear();
            self.outgoing.shrink_to(BATCH_BYTES);
            self.written = 0;
            self.flushed = false;
        }
        if !self.flushed && self.broken.is_none() {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(error)) => self.broken = Some(error),
            }
        }
    }

    /// Reads what has arrived, but not more than one turn handles.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.make_room();
        let end = self.incoming.len().min(self.arrived + TURN_BYTES);
        let mut room = ReadBuf::new(&mut self.incoming[self.arrived..end]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.arrived += count;
        self.spent += count.max(READ_COST);
        Poll::Ready(Ok(()))
    }

    /// The buffer stays below four times [`limits::REPLY_MAX_BYTES`]: the framer refuses longer replies.
    fn make_room(&mut self) {
        if self.read == self.arrived {
            (self.read, self.arrived) = (0, 0);
            if self.incoming.len() > CHUNK {
                self.incoming = vec![0; CHUNK];
            }
        }
        if self.arrived < self.incoming.len() {
            return;
        }
        self.incoming.copy_within(self.read.., 0);
        self.arrived -= self.read;
        self.read = 0;
        if self.arrived > self.incoming.len() / 2 {
            self.incoming.resize(2 * self.incoming.len(), 0);
        }
    }

    /// The answers to the oldest batch, if they are all there and the turn is long enough.
    fn take_answers(&mut self) -> RedisResult<Option<Vec<Value>>> {
        loop {
            if let Some(wanted) = self.batches.front()
                && self.answers.len() == *wanted
            {
                self.batches.pop_front();
                self.memory = 0;
                return Ok(Some(std::mem::take(&mut self.answers)));
            }
            if self.is_turn_over() {
                return Ok(None);
            }
            let bytes = &self.incoming[self.read..self.arrived];
            let Some(length) = self.framer.find(bytes)? else {
                return Ok(None);
            };
            let value = frame::read(&bytes[..length])?;
            self.read += length;
            self.take(value, length)?;
        }
    }

    /// Takes a reply of `length` bytes.
    fn take(&mut self, value: Value, length: usize) -> RedisResult<()> {
        let value = match value {
            // That is how a subscription is answered.
            Value::Push {
                kind: PushKind::Subscribe,
                ..
            } => Value::Okay,
            Value::Push { kind, data } => {
                self.spent += PUSH_COST;
                // Without RESP3 there is no such thing.
                let ears = self.ears.as_ref().ok_or_else(unasked)?;
                let calls = std::mem::take(&mut self.calls);
                return Ok(ears.hear(&PushInfo { kind, data }, length, calls)?);
            }
            value => value,
        };
        if self.batches.is_empty() {
            return Err(unasked());
        }
        self.memory += limits::memory(length, self.framer.values());
        if self.memory > BATCH_MAX_MEMORY {
            return Err(Excess::Batch.into());
        }
        self.answers.push(value);
        Ok(())
    }
}

/// Ends this turn and asks for another, after the runtime has looked at its sockets and timers. To wake
/// the task at once would not do: a runtime of one thread looks at them only every 61 polls while some
/// task is always ready.
fn let_others_run<T>(cx: &mut Context<'_>) -> Poll<T> {
    let yielded = std::pin::pin!(tokio::task::yield_now());
    // It asks for the next poll, and is pending the first time.
    let _ = yielded.poll(cx);
    Poll::Pending
}

fn unasked() -> RedisError {
    (ErrorKind::Parse, "a reply that nobody asked for").into()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use redis::{RedisWrite, cmd};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::message::Wake;
    use crate::node::Hear;

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
    async fn each_batch_has_its_answers_however_they_arrive() {
        let (mut wire, mut server) = wire(1 << 16);
        ask(&mut wire, &["A", "B"]);
        ask(&mut wire, &["C"]);
        assert_eq!(wire.under_way(), 2);
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
        assert_eq!(wire.under_way(), 0);
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
        // What had to grow is given back.
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
    async fn what_arrived_before_the_end_counts_and_then_it_is_told() {
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
    async fn an_end_is_noticed_by_whoever_waits_for_nothing() {
        let (mut wire, server) = wire(1 << 16);
        drop(server);
        assert_eq!(numbers(&mut wire).await.unwrap_err().kind(), ErrorKind::Io);
    }

    #[tokio::test]
    async fn what_nobody_asked_for_and_what_is_no_reply_end_it() {
        for said in [&b":1\r\n"[..], b"HTTP/1.1 400\r\n"] {
            let (mut wire, mut server) = wire(1 << 16);
            server.write_all(said).await.unwrap();
            assert_eq!(
                numbers(&mut wire).await.unwrap_err().kind(),
                ErrorKind::Parse
            );
        }
    }

    /// Waits for the error that ends the connection, while `server` sends `begin` and then `chunk` again
    /// and again. How much it could send, too.
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
        // Each is small enough, but not all together.
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

    /// What has arrived is handled in turns of a bounded length, whatever it is. Counts the polls.
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
    struct Diary(Mutex<Vec<String>>);

    impl Hear for Diary {
        fn hear(&self, wake: Wake) {
            self.0.lock().unwrap().push(wake.ticket);
        }
    }

    #[tokio::test]
    async fn pushes_are_heard_between_answers_and_a_subscription_is_answered_by_one() {
        let (ears, diary) = (Arc::<Ears>::default(), Arc::<Diary>::default());
        ears.add("c", diary.clone());
        let (ours, mut server) = duplex(1 << 16);
        let mut wire = Wire::new(ours, Some(ears));
        ask(&mut wire, &["SUBSCRIBE", "A"]);
        let pushed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n\
            >3\r\n$7\r\nmessage\r\n$16\r\nringfence:wake:c\r\n$5\r\n0 c.7\r\n:5\r\n";
        server.write_all(pushed).await.unwrap();
        assert_eq!(
            numbers(&mut wire).await.unwrap(),
            [Value::Okay, Value::Int(5)]
        );
        assert_eq!(*diary.0.lock().unwrap(), ["c.7"]);
    }

    /// Pushes wakes without end, until the connection ends. How many were heard.
    async fn pushed(wire: &mut Wire, server: &mut DuplexStream, diary: &Diary) -> usize {
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
        std::mem::take(&mut *diary.0.lock().unwrap()).len()
    }

    #[tokio::test]
    async fn pushes_without_end_end_the_connection_and_the_next_is_allowed_no_more() {
        let clock = SteppedClock::starting_at(Duration::from_secs(1));
        let ears = Arc::new(Ears::new(Clock::Stepped(clock.clone())));
        let diary = Arc::<Diary>::default();
        ears.add("c", diary.clone());
        let connect = || {
            let (ours, server) = duplex(1 << 16);
            (Wire::new(ours, Some(Arc::clone(&ears))), server)
        };
        let (mut wire, mut server) = connect();
        let first = pushed(&mut wire, &mut server, &diary).await;
        assert!(first > 20_000, "a burst of wakes is no flood: {first}");
        let (mut wire, mut server) = connect();
        clock.step(Duration::from_millis(100));
        let second = pushed(&mut wire, &mut server, &diary).await;
        assert!(second < first / 10, "{second} of {first}");
        // Calls pay for what they cause.
        let (mut wire, mut server) = connect();
        wire.send_each(&[(); 1], 1_000, |(), packer| packer.write_arg(b"A"));
        let third = pushed(&mut wire, &mut server, &diary).await;
        assert!((1_000..10_000).contains(&third), "{third}");
    }

    #[tokio::test]
    async fn a_server_that_was_not_asked_for_pushes_must_not_push() {
        let (mut wire, mut server) = wire(1 << 16);
        server.write_all(b">1\r\n+x\r\n").await.unwrap();
        let error = numbers(&mut wire).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parse);
    }
}
