//! Real servers on free loopback ports, each stopped when its test is done, and ways to talk to a
//! node from a test.

// Each test binary uses a part of this; tests may look at the clock.
#![allow(dead_code, unreachable_pub, clippy::disallowed_methods)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence::clock::Clock;
use ringfence::group::Group;
use ringfence::message::{Ballot, Claim, Mode, Op, ReleaseKind, Reply, Request};
use ringfence::name::Name;
use ringfence::node::redis::RedisNode;
use ringfence::node::{Call, CallError, Completion, Deliver, Facts, InitMode, Node, TroubleKind};
use ringfence::token::{TOKEN_ENTROPY_BYTES, Token};
use ringfence::url::{NodeUrl, RedisUrl, parse_nodes};
use tokio::sync::oneshot;

/// How long anything may take before a test gives up.
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    Redis,
    Valkey,
}

impl Make {
    fn binary(self) -> PathBuf {
        match self {
            Self::Redis => "redis-server".into(),
            Self::Valkey => std::env::var_os("RINGFENCE_VALKEY_SERVER")
                .expect("RINGFENCE_VALKEY_SERVER must name a valkey-server")
                .into(),
        }
    }
}

/// One server process in a directory of its own.
pub struct Server {
    child: Child,
    pub port: u16,
    pub dir: PathBuf,
    make: Make,
    args: Vec<String>,
}

impl Server {
    pub fn start(make: Make, args: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("ringfence-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self::start_in(make, args, dir)
    }

    pub fn start_in(make: Make, args: &[&str], dir: PathBuf) -> Self {
        let port = free_port();
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        let child = spawn(make, &args, &dir, port);
        let server = Self {
            child,
            port,
            dir,
            make,
            args,
        };
        server.await_ready();
        server
    }

    /// Kills the server and starts it again on the same port: another run of it.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.make, &self.args, &self.dir, self.port);
        self.await_ready();
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn url(&self) -> RedisUrl {
        url(&format!("redis://127.0.0.1:{}", self.port))
    }

    /// A connection of the test's own, past our library.
    pub fn client(&self) -> redis::Connection {
        let client = redis::Client::open(("127.0.0.1", self.port)).unwrap();
        client.get_connection().unwrap()
    }

    fn await_ready(&self) {
        eventually("the server answers", || {
            let client = redis::Client::open(("127.0.0.1", self.port)).unwrap();
            match client.get_connection() {
                // An error is an answer too: the server may want a password.
                Ok(mut connection) => match redis::cmd("PING").query::<String>(&mut connection) {
                    Ok(_) => true,
                    Err(error) => error.code().is_some_and(|code| code != "LOADING"),
                },
                Err(_) => self.args.iter().any(|arg| arg == "--tls-port"),
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn spawn(make: Make, args: &[String], dir: &Path, port: u16) -> Child {
    Command::new(make.binary())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .arg("--dir")
        .arg(dir)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", make.binary()))
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Waits for `true`, and fails the test if it does not come.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn url(text: &str) -> RedisUrl {
    match parse_nodes(text).unwrap().remove(0) {
        NodeUrl::Redis(url) => url,
        other => panic!("{other:?}"),
    }
}

pub fn node(url: RedisUrl) -> RedisNode {
    RedisNode::connect(url, Clock::System).unwrap()
}

/// A node that has joined [`group`].
pub async fn member(server: &Server) -> RedisNode {
    let node = node(server.url());
    join(&node, group()).await.unwrap();
    node
}

pub fn group() -> Group {
    Group::new(3)
}

struct Once<T>(Mutex<Option<oneshot::Sender<Result<T, CallError>>>>);

impl<T: Send> Deliver<T> for Once<T> {
    fn deliver(&self, _: u64, outcome: Result<T, CallError>) {
        let sender = self.0.lock().unwrap().take().expect("answered once");
        let _ = sender.send(outcome);
    }
}

/// A completion, and where its answer comes out.
pub fn completion<T: Send + 'static>() -> (Completion<T>, oneshot::Receiver<Result<T, CallError>>) {
    let (sender, receiver) = oneshot::channel();
    (
        Completion::new(Arc::new(Once(Mutex::new(Some(sender)))), 0),
        receiver,
    )
}

async fn answered<T>(receiver: oneshot::Receiver<Result<T, CallError>>) -> Result<T, CallError> {
    let answer = tokio::time::timeout(DEADLINE, receiver).await;
    answer.expect("an answer in time").expect("an answer")
}

/// What sort of trouble a call met.
pub fn kind<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> TroubleKind {
    outcome.unwrap_err().trouble().kind
}

pub async fn probe(node: &RedisNode) -> Result<Facts, CallError> {
    let (done, answer) = completion();
    node.probe(done);
    answered(answer).await
}

pub async fn join(node: &RedisNode, group: Group) -> Result<Facts, CallError> {
    let (done, answer) = completion();
    node.join(group, done);
    answered(answer).await
}

pub async fn init(node: &RedisNode, group: Group, mode: InitMode) -> Result<Facts, CallError> {
    let (done, answer) = completion();
    node.init(group, mode, done);
    answered(answer).await
}

/// Sends `request` and returns at once.
pub fn start(node: &RedisNode, request: Request) -> oneshot::Receiver<Result<Reply, CallError>> {
    let (done, answer) = completion();
    node.send(Call {
        request: Arc::new(request),
        expires: Clock::System.now() + Duration::from_secs(5),
        done,
    });
    answer
}

pub async fn call(node: &RedisNode, request: Request) -> Result<Reply, CallError> {
    answered(start(node, request)).await
}

/// Calls until the answer is one of the ledger's.
pub async fn call_until_answered(node: &RedisNode, request: Request) -> Reply {
    let until = Instant::now() + DEADLINE;
    loop {
        match call(node, request.clone()).await {
            Ok(reply) => return reply,
            Err(error) => assert!(Instant::now() < until, "still no answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn token(n: u8) -> Token {
    Token::from_entropy([n; TOKEN_ENTROPY_BYTES])
}

pub fn request(names: &[&str], token: Token, op: Op) -> Request {
    let claims = Name::set("", names).unwrap();
    let claims = claims.iter().map(|name| Claim {
        name: name.clone(),
        mode: Mode::Exclusive,
    });
    Request {
        claims: claims.collect(),
        token,
        op,
    }
}

pub fn acquire(names: &[&str], holder: u8, ballot: Ballot) -> Request {
    let op = Op::Acquire {
        ballot,
        ttl_ms: 10_000,
        label: format!("holder {holder}").into(),
    };
    request(names, token(holder), op)
}

pub fn release(names: &[&str], holder: u8, ballot: Ballot) -> Request {
    let op = Op::Release {
        ballot,
        kind: ReleaseKind::Final,
        fate_unknown: false,
    };
    request(names, token(holder), op)
}

pub fn inspect(names: &[&str]) -> Request {
    request(names, token(0), Op::Inspect)
}

/// A ballot that the node will accept: its own clock.
pub async fn ballot(node: &RedisNode) -> Ballot {
    let reply = call_until_answered(node, inspect(&["ballot"])).await;
    Ballot::new(reply.standing.clock_us)
}
