//! Sends requests to a node and waits for the replies, with a tokio runtime or without; and a
//! temporary folder.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{self, Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use std::{env, fs, process};

use ringfence::clock::Clock;
use ringfence::node::{Call, CallError, Completion, Deliver, Facts, Hear, InitMode, Node};
use ringfence_core::group::Group;
use ringfence_core::message::{
    Acquire, Answer, Ballot, Claim, Extend, Holder, Mode, Op, Refresh, Release, ReleaseKind, Reply,
    ReplyStamp, Request, Restore, Ticket, Wake,
};
use ringfence_core::name::Name;
use ringfence_core::time::Timestamp;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};
use tokio::sync::oneshot;

/// Longer than any reply takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A call that never expires.
pub(crate) const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

pub(crate) const ALICE: u8 = 0xaa;
pub(crate) const BOB: u8 = 0xbb;
pub(crate) const TTL_MS: u64 = 10_000;

struct Inbox<T>(Mutex<Option<oneshot::Sender<Result<T, CallError>>>>);

impl<T: Send> Deliver<T> for Inbox<T> {
    fn deliver(&self, _tag: u64, outcome: Result<T, CallError>) {
        let sender = self.0.lock().unwrap().take().expect("answered twice");
        // The test may have stopped waiting for the reply.
        let _ = sender.send(outcome);
    }
}

/// A reply that is expected: to be awaited, or waited for in a thread without a tokio runtime.
pub(crate) struct Pending<T>(oneshot::Receiver<Result<T, CallError>>);

impl<T> Pending<T> {
    pub(crate) fn wait(mut self) -> Result<T, CallError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let deadline = Clock::System.now() + PATIENCE;
        loop {
            match Pin::new(&mut self).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park_timeout(PATIENCE),
            }
            assert!(Clock::System.now() < deadline, "no answer in time");
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.0).poll(cx);
        answer.map(|answer| answer.expect("a node answers every call"))
    }
}

struct Unpark(Thread);

impl task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn start<T: Send + 'static>(ask: impl FnOnce(Completion<T>)) -> Pending<T> {
    let (to, answer) = oneshot::channel();
    ask(Completion::new(Arc::new(Inbox(Mutex::new(Some(to)))), 0));
    Pending(answer)
}

pub(crate) fn join(node: &dyn Node, group: Group) -> Pending<Facts> {
    start(|done| node.join(group, done))
}

pub(crate) fn probe(node: &dyn Node) -> Pending<Facts> {
    start(|done| node.probe(done))
}

pub(crate) fn init(node: &dyn Node, group: Group, mode: InitMode) -> Pending<Facts> {
    start(|done| node.init(group, mode, done))
}

pub(crate) fn send(node: &dyn Node, request: Request, expires: Timestamp) -> Pending<Reply> {
    start(|done| {
        node.send(Call {
            request: Arc::new(request),
            expires,
            done,
        });
    })
}

pub(crate) fn request(names: &[&str], client: u8, op: Op) -> Request {
    let claims = names.iter().map(|name| Claim {
        name: Name::new("", name).unwrap(),
        mode: Mode::Exclusive,
    });
    Request {
        claims: claims.collect(),
        token: token(client),
        op,
    }
}

pub(crate) fn token(client: u8) -> Token {
    Token::from_entropy([client; TOKEN_ENTROPY_BYTES])
}

pub(crate) fn reply(node: &dyn Node, names: &[&str], client: u8, op: Op) -> Reply {
    let reply = send(node, request(names, client, op), NEVER).wait();
    reply.unwrap_or_else(|error| panic!("{error:?}"))
}

pub(crate) fn ask(node: &dyn Node, name: &str, client: u8, op: Op) -> Answer {
    reply(node, &[name], client, op).answer
}

/// The node's clock and the floor of `name`.
pub(crate) fn stamp(node: &dyn Node, name: &str) -> ReplyStamp {
    let stamp = reply(node, &[name], ALICE, Op::Inspect).stamp;
    stamp.expect("an inspect carries a stamp")
}

/// A ballot that the node accepts for `name`, if no other client is faster.
pub(crate) fn next_ballot(node: &dyn Node, name: &str) -> Ballot {
    let stamp = stamp(node, name);
    Ballot::new(stamp.clock_us.max(stamp.floor.get() + 1))
}

pub(crate) fn plus(ballot: Ballot, by: u64) -> Ballot {
    Ballot::new(ballot.get() + by)
}

pub(crate) fn acquire(ballot: Ballot, ttl_ms: u64) -> Op {
    Op::Acquire(Acquire {
        ballot,
        ttl_ms,
        label: Arc::from("job"),
        ticket: None,
        not_after_us: None,
    })
}

/// An acquire with a ticket.
pub(crate) fn acquire_with_ticket(ballot: Ballot, ttl_ms: u64, ticket: &Ticket) -> Op {
    Op::Acquire(Acquire {
        ballot,
        ttl_ms,
        label: Arc::from("job"),
        ticket: Some(ticket.clone()),
        not_after_us: None,
    })
}

pub(crate) fn refresh(tickets: &[&Ticket]) -> Op {
    Op::Refresh(Refresh {
        tickets: tickets.iter().map(|ticket| (*ticket).clone()).collect(),
    })
}

/// A ticket that waits since `since_us`.
pub(crate) fn ticket(since_us: u64, id: &str) -> Ticket {
    Ticket {
        since_us,
        id: Arc::from(id),
        first: false,
        label: Arc::from(format!("waiter {id}")),
    }
}

pub(crate) fn extend(ballot: Ballot, ttl_ms: u64) -> Op {
    Op::Extend(Extend {
        ballot,
        ttl_ms,
        delay_ms: 0,
    })
}

pub(crate) fn restore(ballot: Ballot) -> Op {
    Op::Restore(Restore {
        ballot,
        ttl_ms: TTL_MS,
        label: Arc::from("job"),
    })
}

pub(crate) fn release(ballot: Ballot) -> Op {
    leave(ballot, ReleaseKind::Final, None, false)
}

/// A final release while something of the hold may still be under way.
pub(crate) fn release_of_unknown_fate(ballot: Ballot) -> Op {
    let mut op = release(ballot);
    if let Some(release) = op.release_mut() {
        release.fate_unknown = true;
    }
    op
}

pub(crate) fn undo(ballot: Ballot, fate_unknown: bool) -> Op {
    Op::Release(Release {
        ballot,
        kind: ReleaseKind::Undo,
        fate_unknown,
        ticket: None,
        stays: true,
        keep_ms: None,
        delay_ms: 0,
    })
}

/// A release or an undo by a client that waits, or has waited.
pub(crate) fn leave(ballot: Ballot, kind: ReleaseKind, ticket: Option<&Ticket>, stays: bool) -> Op {
    Op::Release(Release {
        ballot,
        kind,
        fate_unknown: false,
        ticket: ticket.cloned(),
        stays,
        keep_ms: None,
        delay_ms: 0,
    })
}

/// Receives wakes and keeps them.
pub(crate) struct WakeListener {
    to: Arc<WakeSender>,
    received: Receiver<Wake>,
}

struct WakeSender(Sender<Wake>);

impl Hear for WakeSender {
    fn hear(&self, wake: Wake) {
        // The test may have stopped waiting for wakes.
        let _ = self.0.send(wake);
    }
}

impl WakeListener {
    pub(crate) fn new() -> Self {
        let (to, received) = channel();
        let to = Arc::new(WakeSender(to));
        Self { to, received }
    }

    /// A listener on `node` for `client`.
    pub(crate) fn at(node: &dyn Node, client: &str) -> Self {
        let listener = Self::new();
        listener.listen(node, client);
        listener
    }

    pub(crate) fn listen(&self, node: &dyn Node, client: &str) {
        node.listen(client, Arc::clone(&self.to) as Arc<dyn Hear>);
    }

    /// Waits for the next wake.
    pub(crate) fn wait(&self) -> Wake {
        self.received
            .recv_timeout(PATIENCE)
            .expect("no wake in time")
    }

    /// The wakes that have arrived by now.
    pub(crate) fn received(&self) -> Vec<Wake> {
        self.received.try_iter().collect()
    }
}

pub(crate) fn wake(ticket: &str, after_ms: u64) -> Wake {
    Wake {
        ticket: ticket.to_owned(),
        after_ms,
        slot: None,
    }
}

/// The holder of an answer `Held`.
pub(crate) fn held(answer: Answer) -> Holder {
    match answer {
        Answer::Held(holder) => holder,
        other => panic!("not held but {other:?}"),
    }
}

/// A temporary folder for one test, removed at its end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("ringfence-test-{}-{serial}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the folder stays: that is no reason to fail a test that has passed.
        let _ = fs::remove_dir_all(&self.0);
    }
}
