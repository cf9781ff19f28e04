//! Sends every request to the nodes, and receives their replies.
//!
//! The thread that receives a reply first lets the sender learn from it
//! ([`Sender::observe_reply`]): the node's incarnation, a jump of its clock, or a freeze of our
//! own. Then it feeds the reply to the machine of the round ([`PendingRound`]), and wakes the
//! caller if there is a verdict: one wake-up per round, no task, no channel.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::message::{Reply, Request};
use crate::node::{Call, CallError, Completion, Deliver, Node, Trouble, TroubleKind};
use crate::observation::Observation;
use crate::protocol::{Attempt, ClockReading, Cluster, Line, RoundMachine, Vote};
use crate::time::Timestamp;

use super::ClientRuntime;
use super::hold::HeldLock;
use super::second::SecondNodes;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) clock: Clock,
    cluster: Mutex<Cluster>,
    pub(crate) observation: Observation,
    pub(super) freeze: ClockFreeze,
    /// Other instances of the nodes, while the second line of renewal uses them.
    pub(super) second: SecondNodes,
}

/// When a freeze of our own clock was last detected.
///
/// Every hold compares it with its own beginning, so there is no list of holds that could miss one.
#[derive(Debug, Default)]
pub(super) struct ClockFreeze {
    /// In nanoseconds of the client's clock; zero for never.
    pub(super) found: AtomicU64,
    pub(super) times: AtomicU64,
    pub(super) noticed: Notify,
}

impl Sender {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        cluster: Cluster,
        clock: Clock,
        observation: Observation,
    ) -> Self {
        Self {
            nodes,
            clock,
            cluster: Mutex::new(cluster),
            observation,
            freeze: ClockFreeze::default(),
            second: SecondNodes::default(),
        }
    }

    /// What the client knows of its nodes. Locked for a few instructions, never during a send.
    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        lock(&self.cluster)
    }

    /// Sends `request` to every node. `to` receives the replies, tagged with the node's number.
    pub(super) fn send_all(
        &self,
        request: Request,
        expires: Timestamp,
        to: &Arc<dyn Deliver<Reply>>,
    ) {
        let request = Arc::new(request);
        for node in 0..self.nodes.len() {
            self.send(node, &request, expires, Arc::clone(to));
        }
    }

    /// Sends `request` to `node`. `to` receives the reply, tagged with the node's number.
    pub(super) fn send(
        &self,
        node: usize,
        request: &Arc<Request>,
        expires: Timestamp,
        to: Arc<dyn Deliver<Reply>>,
    ) {
        self.ask(node, request, expires, Completion::new(to, node as u64));
    }

    /// Sends `request` to `node`. `done` receives the reply.
    pub(super) fn ask(
        &self,
        node: usize,
        request: &Arc<Request>,
        expires: Timestamp,
        done: Completion<Reply>,
    ) {
        Self::ask_of(&*self.nodes[node], request, expires, done);
    }

    /// The same, for another instance of a client's node.
    pub(super) fn ask_of(
        node: &dyn Node,
        request: &Arc<Request>,
        expires: Timestamp,
        done: Completion<Reply>,
    ) {
        node.send(Call {
            request: Arc::clone(request),
            expires,
            done,
        });
    }

    /// Flushes all nodes, so that the releases sent so far are executed even if the process ends
    /// right after. The caller holds no lock of the runtime: a node may answer meanwhile.
    pub(crate) fn flush(&self) {
        for node in &self.nodes {
            node.flush();
        }
    }

    /// Learns from the outcome of a call. Returns why its reply does not count, if it does not.
    pub(crate) fn observe_reply(
        &self,
        node: usize,
        outcome: &Result<Reply, CallError>,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Vote> {
        self.observe_reply_to(None, node, outcome, sent, now, None)
    }

    /// The same, for a guard that is valid until `deadline` and extends its lock. After a failover
    /// the reply counts for it alone. `second`: the nodes that were asked, if not the client's own.
    pub(super) fn observe_reply_to(
        &self,
        second: Option<&[Arc<dyn Node>]>,
        node: usize,
        outcome: &Result<Reply, CallError>,
        sent: Timestamp,
        now: Timestamp,
        deadline: Option<Timestamp>,
    ) -> Option<Vote> {
        let (line, asked) = match second {
            None => (Line::First, &self.nodes[node]),
            Some(second) => (Line::Second, &second[node]),
        };
        let confirmation = asked.confirmation();
        let mut cluster = self.cluster();
        if let Some(confirmation) = confirmation {
            cluster.confirm(line, node, confirmation);
        }
        let event = cluster.observe(node, outcome, sent, now);
        // Under the lock: no other thread may count a reply that this freeze invalidates.
        if let Some(event) = &event {
            self.record_freeze(event, now);
        }
        let reply = outcome.as_ref().ok();
        let discount = |reply| cluster.discount_extension(line, node, reply, sent, now, deadline);
        let discount = reply.and_then(discount);
        let duplicates = cluster.take_duplicates();
        drop(cluster);
        if event.is_some() || duplicates.is_some() {
            self.report(event, duplicates);
        }
        self.observation
            .answered(node, outcome, discount.as_ref(), now);
        discount
    }

    /// The time, and when a freeze of the clock was last detected.
    pub(crate) fn read_clock(&self) -> ClockReading {
        let found = self.freeze.found.load(Ordering::SeqCst);
        ClockReading {
            now: self.clock.now(),
            froze: (found != 0).then(|| Timestamp::from_nanos(found)),
        }
    }
}

/// What is known of a call that was not answered before its timeout.
pub(super) fn no_answer() -> CallError {
    CallError::Unknown(Trouble::new(TroubleKind::Timeout, "no answer in time"))
}

/// Locks `mutex`, also when it is poisoned: no machine can panic while its invariants are broken,
/// and a refusal would turn one panic into a panic of every later call.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A round in progress: its machine, which gets the replies as they arrive.
pub(crate) struct PendingRound<R> {
    pub(crate) runtime: Arc<ClientRuntime>,
    sent: Timestamp,
    pub(super) state: Mutex<RoundState<R>>,
    /// The hold that this round won before all nodes had answered.
    won_hold: OnceLock<Weak<HeldLock>>,
    /// The caller has given up: what was not sent by now need not be sent.
    abandoned: AtomicBool,
}

pub(super) struct RoundState<R> {
    pub(super) round: R,
    waker: Option<Waker>,
    /// The caller that waits for the last answer.
    pub(super) last: Option<Waker>,
    /// Counted among the attempts that won before every node had answered.
    late_replies: bool,
}

impl<R: RoundMachine> PendingRound<R> {
    /// A round whose first request is sent at `sent`.
    pub(crate) fn new(runtime: &Arc<ClientRuntime>, round: R, sent: Timestamp) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            sent,
            state: Mutex::new(RoundState {
                round,
                waker: None,
                last: None,
                late_replies: false,
            }),
            won_hold: OnceLock::new(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Calls `with` on the machine.
    pub(crate) fn with<T>(&self, with: impl FnOnce(&mut R) -> T) -> T {
        with(&mut lock(&self.state).round)
    }

    /// Handles one reply: learns from it, feeds the machine, and returns the result of `then`.
    /// Wakes the waiting caller only once there is a verdict.
    pub(crate) fn handle_reply<T>(
        &self,
        node: usize,
        outcome: Result<Reply, CallError>,
        then: impl FnOnce(&mut R, Timestamp) -> T,
    ) -> T {
        let sender = &self.runtime.sender;
        let now = sender.clock.now();
        let discount = sender.observe_reply(node, &outcome, self.sent, now);
        if R::VOTES {
            let observation = &sender.observation;
            observation.voted(node, &outcome, discount.as_ref(), self.sent, now);
        }
        let mut state = lock(&self.state);
        state.round.handle_reply(node, outcome, discount, now);
        let made = then(&mut state.round, now);
        wake_if_decided(state);
        made
    }

    /// Handles a timeout of the machine.
    pub(crate) fn time_out(&self) {
        let sender = &self.runtime.sender;
        let mut state = lock(&self.state);
        let now = sender.clock.now();
        state.round.handle_timeout(now);
        let silent = state.round.silent();
        wake_if_decided(state);
        for node in silent {
            sender.cluster().silent(node);
            let outcome: Result<Reply, _> = Err(no_answer());
            sender.observation.answered(node, &outcome, None, now);
        }
    }

    /// Waits for the verdict, which the machine reaches at its own timeout at the latest. `None`
    /// if the client is closed before. May be dropped at any time; the round continues without
    /// its caller.
    pub(crate) async fn verdict(&self) -> Option<R::Verdict> {
        let runtime = &self.runtime;
        let timeout = self.with(|round| round.poll_timeout());
        let sleep = runtime
            .schedule
            .sleep_until(timeout.unwrap_or(self.sent), &runtime.sender.clock);
        let mut sleep = pin!(sleep);
        poll_fn(|cx| {
            let mut verdict = self.poll_verdict(cx);
            if verdict.is_pending() && sleep.as_mut().poll(cx).is_ready() {
                self.time_out();
                verdict = self.poll_verdict(cx);
            }
            match verdict {
                Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
                // Read after the sleeper is registered: `close` sets the flag, then wakes all
                // sleepers.
                Poll::Pending if runtime.closing.closed.load(Ordering::SeqCst) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Polls for the verdict. Registers the caller to be woken.
    pub(super) fn poll_verdict(&self, cx: &mut Context<'_>) -> Poll<R::Verdict> {
        let mut state = lock(&self.state);
        match state.round.verdict() {
            Some(verdict) => Poll::Ready(verdict),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Wakes the caller that waits for the verdict, if the machine has one.
fn wake_if_decided<R: RoundMachine>(mut state: MutexGuard<'_, RoundState<R>>) {
    let waker = state.round.verdict().and_then(|_| state.waker.take());
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<R> fmt::Debug for PendingRound<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingRound({:?})", self.sent)
    }
}

impl PendingRound<Attempt> {
    /// The attempt won. Counts it until every node has answered.
    pub(crate) fn won(&self) {
        let mut state = lock(&self.state);
        if !state.round.is_complete() {
            state.late_replies = true;
            let late_replies = &self.runtime.closing.late_replies;
            late_replies.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The caller has given up: what was not sent by now need not be sent.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    /// From now on `hold` gets every reply to this round.
    pub(crate) fn set_hold(&self, hold: &Arc<HeldLock>) {
        // Set once: an attempt wins once.
        let _ = self.won_hold.set(Arc::downgrade(hold));
    }
}

impl Deliver<Reply> for PendingRound<Attempt> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let complete = self.handle_reply(tag as usize, outcome, |attempt, _| attempt.is_complete());
        if let Some(hold) = self.won_hold.get().and_then(Weak::upgrade) {
            hold.observe_acquire(self);
        }
        if !complete {
            return;
        }
        let mut state = lock(&self.state);
        let last = state.last.take();
        let was_late = std::mem::take(&mut state.late_replies);
        drop(state);
        if let Some(waker) = last {
            waker.wake();
        }
        if was_late {
            let closing = &self.runtime.closing;
            closing.count_down(&closing.late_replies);
        }
    }

    fn is_wanted(&self, _: u64) -> bool {
        !self.abandoned.load(Ordering::SeqCst)
    }

    /// The node did not fail, so nothing is learned about it.
    fn withdrawn(&self, tag: u64) {
        lock(&self.state).round.withdraw(tag as usize);
    }
}
