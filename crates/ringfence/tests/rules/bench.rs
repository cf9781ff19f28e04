//! In-memory nodes and a clock that only the test moves.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::memory::MemoryNode;
use ringfence::node::{Call, CallError, Completion, Deliver, NodeClock, Trouble, TroubleKind};
use ringfence::{Builder, ExtendError, Guard, Lock, Locks, Lost, ReadGuard};
use ringfence_core::message::{
    Ballot, Claim, Mode, Op, PlainAcquire, Release, ReleaseKind, Reply, Request,
};
use ringfence_core::name::Name;
use ringfence_core::splitmix::SplitMix64;
use ringfence_core::token::Token;
use tokio::task::yield_now;

const START_US: u64 = 1_700_000_000_000_000;

/// Milliseconds, which is what most tests count in.
pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Nodes on one clock that stands still until it is stepped.
pub(crate) struct Bench {
    pub(crate) time: SteppedClock,
    pub(crate) nodes: Vec<MemoryNode>,
}

impl Bench {
    /// `nodes` nodes that vote: the cluster is initialised.
    pub(crate) async fn new(nodes: usize) -> Self {
        Self::skewed(&vec![0; nodes]).await
    }

    /// One node per skew, its clock that many microseconds ahead.
    pub(crate) async fn skewed(skews_us: &[i64]) -> Self {
        let bench = Self::uninitialised(skews_us);
        if skews_us.len() > 1 {
            bench.builder().init().await.expect("a new cluster");
        }
        bench
    }

    /// Nodes without `init`: if there are several, all of them are in quarantine.
    pub(crate) fn uninitialised(skews_us: &[i64]) -> Self {
        let time = SteppedClock::starting_at(Duration::from_secs(1000));
        let nodes = skews_us.iter().zip('a'..).map(|(&skew_us, name)| {
            let start_us = START_US.saturating_add_signed(skew_us);
            let clock = NodeClock::following(Clock::Stepped(time.clone()), start_us);
            MemoryNode::with_clock(name, clock)
        });
        Self {
            nodes: nodes.collect(),
            time,
        }
    }

    /// Client settings with the clock and the nodes of the bench.
    pub(crate) fn builder(&self) -> Builder {
        let clocked = Locks::builder().clock(Clock::Stepped(self.time.clone()));
        let nodes = self.nodes.iter().cloned();
        nodes.fold(clocked.label("job"), Builder::node)
    }

    /// A client with the label `job`.
    pub(crate) async fn client(&self) -> Locks {
        self.builder().connect().await.expect("a client")
    }

    /// A client with a label of its own.
    pub(crate) async fn labelled(&self, label: &str) -> Locks {
        let builder = self.builder().label(label);
        builder.connect().await.expect("a client")
    }

    /// The lock `x`, held by a client of its own.
    pub(crate) async fn lock_x(&self) -> Guard {
        self.lock_x_with(|lock| lock).await
    }

    /// The same with the options that `set` sets.
    pub(crate) async fn lock_x_with(&self, set: impl FnOnce(Lock) -> Lock) -> Guard {
        let lock = set(self.client().await.mutex("x"));
        at_once(lock.lock()).await.expect("the lock is free")
    }

    /// Runs `future`. When no task has anything to do, the clock moves by one millisecond.
    pub(crate) async fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        for _ in 0..120_000 {
            for _ in 0..3 {
                if let Poll::Ready(output) = poll_once(future.as_mut()).await {
                    return output;
                }
                yield_now().await;
            }
            self.time.step(ms(1));
        }
        panic!("not done after two minutes of the bench's time");
    }

    /// Lets `span` pass in steps so small that every timer runs in time.
    pub(crate) async fn pass(&self, span: Duration) {
        self.pass_in(span, ms(5)).await;
    }

    /// The same in steps of `step`.
    pub(crate) async fn pass_in(&self, span: Duration, step: Duration) {
        let end = self.time.now() + span;
        idle().await;
        while self.time.now() < end {
            self.time.step(step.min(end.since(self.time.now())));
            idle().await;
        }
    }

    /// The value of the key `name`, node by node; `None` where it has no holder.
    pub(crate) fn keys(&self, name: &str) -> Vec<Option<String>> {
        let name = Name::new("", name).expect("a name");
        let keys = self.nodes.iter().map(|node| {
            let key = node.entry(&name).key?;
            let exists = |until: u64| until >= node.clock().now_us() / 1000;
            key.until_ms.is_none_or(exists).then_some(key.value)
        });
        keys.collect()
    }

    /// The number of nodes on which `name` has a holder.
    pub(crate) fn holding(&self, name: &str) -> usize {
        self.keys(name).iter().flatten().count()
    }

    /// The number of nodes on which `guard` holds `name`.
    pub(crate) fn held_by(&self, name: &str, guard: &Guard) -> usize {
        let keys = self.keys(name);
        keys.iter()
            .flatten()
            .filter(|key| *key == guard.token().expose())
            .count()
    }

    /// Deletes a holder's key by hand, as an operator might.
    pub(crate) fn delete(&self, node: usize, name: &str, token: &Token) {
        self.send(node, name, token, Op::PlainRelease);
    }

    /// Puts another holder on one node, as a client that reached only this node leaves it.
    pub(crate) fn occupy(&self, node: usize, name: &str, token: &Token, ttl_ms: u64) {
        self.send(node, name, token, Op::PlainAcquire(PlainAcquire { ttl_ms }));
    }

    /// Removes a reader's share from one node, as a fault might. The node closes no ballot.
    pub(crate) fn unshare(&self, node: usize, name: &str, guard: &ReadGuard) {
        let undo = Op::Release(Release {
            ballot: Ballot::new(guard.fence()),
            kind: ReleaseKind::Undo,
            fate_unknown: false,
            ticket: None,
            stays: false,
            keep_ms: None,
            delay_ms: 0,
        });
        self.send(node, name, guard.token(), undo);
    }

    fn send(&self, node: usize, name: &str, token: &Token, op: Op) {
        let name = Name::new("", name).expect("a name");
        let mode = Mode::Exclusive;
        let request = Request {
            claims: Arc::from([Claim { name, mode }]),
            token: token.clone(),
            op,
        };
        ringfence::node::Node::send(
            &self.nodes[node],
            Call {
                request: Arc::new(request),
                expires: self.time.now() + ms(1),
                done: Completion::new(Arc::new(IgnoreReply), 0),
            },
        );
    }

    /// Makes the first `nodes` nodes fail as if no server listened there.
    pub(crate) fn break_first(&self, nodes: usize) {
        for node in &self.nodes[..nodes] {
            node.fail_with(Some(unreachable()));
        }
    }

    /// Ends every fault of every node.
    pub(crate) fn mend(&self) {
        for node in &self.nodes {
            node.fail_with(None);
            node.lose_replies(false);
            node.hold_replies(false);
            node.hang(false);
        }
    }

    /// Makes every node log the operations that it executes.
    pub(crate) fn log_operations(&self) {
        for node in &self.nodes {
            node.log_operations(true);
        }
    }

    /// The number of operations like `wanted` that every node has executed since the last call.
    pub(crate) fn count(&self, wanted: fn(&Op) -> bool) -> Vec<usize> {
        let count = |node: &MemoryNode| {
            let operations = node.take_operations();
            operations
                .iter()
                .filter(|one| wanted(&one.request.op))
                .count()
        };
        self.nodes.iter().map(count).collect()
    }
}

struct IgnoreReply;

impl Deliver<Reply> for IgnoreReply {
    fn deliver(&self, _tag: u64, _outcome: Result<Reply, CallError>) {}
}

/// The error of a node that cannot be reached.
pub(crate) fn unreachable() -> CallError {
    let detail = "connection refused";
    CallError::NotSent(Trouble::new(TroubleKind::Unreachable, detail))
}

/// Asserts that an extension failed because the lock is lost for `reason`.
#[track_caller]
pub(crate) fn assert_lost(error: &ExtendError, reason: Lost) {
    let ExtendError::Lost { why, .. } = error else {
        panic!("not lost: {error}");
    };
    assert_eq!(*why, reason, "{error}");
}

/// A token that no client of the test draws.
pub(crate) fn foreign(byte: u8) -> Token {
    Token::from_entropy([byte; ringfence_core::token::TOKEN_ENTROPY_BYTES])
}

/// Polls once and returns the result.
pub(crate) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// The output of a future that must be ready without any time passing.
pub(crate) async fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..8 {
        if let Poll::Ready(output) = poll_once(future.as_mut()).await {
            return output;
        }
        yield_now().await;
    }
    panic!("this should not have to wait for time to pass");
}

/// Whether `future` still waits after all other tasks had a chance to run.
pub(crate) async fn waits<F: Future + ?Sized>(mut future: Pin<&mut F>) -> bool {
    idle().await;
    poll_once(future.as_mut()).await.is_pending()
}

/// Lets background tasks do what they can do without time passing.
pub(crate) async fn idle() {
    for _ in 0..6 {
        yield_now().await;
    }
}

/// A small random generator for tests that choose their steps at random.
pub(crate) struct Dice(SplitMix64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0.draw() % sides
    }
}
