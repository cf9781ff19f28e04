//! The only place from which requests go out to the nodes, and the way back of the replies.
//!
//! The thread that brings a reply first lets the sender learn from it ([`Sender::hear`]): how its node
//! stands, whose clock jumped, and whether it was our own that stood still. Then it feeds the reply to
//! the machine of the round ([`PendingRound`]), and wakes the caller if there is a verdict: one wake-up
//! per round, no task, no channel.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::message::{Reply, Request};
use crate::node::{Call, CallError, Completion, Deliver, Node};
use crate::protocol::{Attempt, ClockReading, Cluster, Discount, Verdict, Vote};
use crate::time::Timestamp;

use super::Driver;
use super::hold::Hold;

/// See the module.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) clock: Clock,
    cluster: Mutex<Cluster>,
    pub(super) freeze: ClockFreeze,
}

/// When our own clock was last found to have stood still.
///
/// Every hold compares it with its own beginning: no list of holds is kept, and none can be missed.
#[derive(Debug, Default)]
pub(super) struct ClockFreeze {
    /// In nanoseconds of the client's clock; zero for never.
    pub(super) found: AtomicU64,
    pub(super) times: AtomicU64,
    pub(super) noticed: Notify,
}

impl Sender {
    pub(crate) fn new(nodes: Vec<Arc<dyn Node>>, cluster: Cluster, clock: Clock) -> Self {
        Self {
            nodes,
            clock,
            cluster: Mutex::new(cluster),
            freeze: ClockFreeze::default(),
        }
    }

    /// What the client knows of its nodes. Held for a few instructions only, never across a send.
    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        lock(&self.cluster)
    }

    /// Sends `request` to every node. The answers go to `to`, each under its node's number.
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

    /// Sends `request` to `node`. The answer goes to `to`, under the node's number.
    pub(super) fn send(
        &self,
        node: usize,
        request: &Arc<Request>,
        expires: Timestamp,
        to: Arc<dyn Deliver<Reply>>,
    ) {
        self.ask(node, request, expires, Completion::new(to, node as u64));
    }

    /// The same, with the answer to `done`.
    pub(super) fn ask(
        &self,
        node: usize,
        request: &Arc<Request>,
        expires: Timestamp,
        done: Completion<Reply>,
    ) {
        self.nodes[node].send(Call {
            request: Arc::clone(request),
            expires,
            done,
        });
    }

    /// Has releases that were sent so far carried out even if the process ends right after. No lock
    /// of the driver may be held: a node may answer meanwhile.
    pub(crate) fn flush(&self) {
        for node in &self.nodes {
            node.flush();
        }
    }

    /// Hears what came of a call; why its answer does not count, if it does not.
    pub(crate) fn hear(
        &self,
        node: usize,
        outcome: &Result<Reply, CallError>,
        sent: Timestamp,
        now: Timestamp,
    ) -> Option<Discount> {
        let mut cluster = self.cluster();
        let event = cluster.observe(node, outcome, sent, now);
        // Before anybody else can count a reply that this one outdated.
        if let Some(event) = &event {
            self.take_note(event, now);
        }
        let reply = outcome.as_ref().ok();
        let discount = reply.and_then(|reply| cluster.discount(node, reply.standing, sent, now));
        let duplicates = cluster.take_duplicates();
        drop(cluster);
        if event.is_some() || duplicates.is_some() {
            self.tell(event, duplicates);
        }
        discount
    }

    /// What the clock says, and when it was last found to have stood still.
    pub(crate) fn read_clock(&self) -> ClockReading {
        let found = self.freeze.found.load(Ordering::SeqCst);
        ClockReading {
            now: self.clock.now(),
            froze: (found != 0).then(|| Timestamp::from_nanos(found)),
        }
    }
}

/// Locks `mutex`. The machines keep no invariant open while they could panic, so a poisoned lock
/// is as good as any; refusing it would turn one panic into a process full of them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine that takes replies and comes to a verdict.
pub(crate) trait Round: Send + 'static {
    type Verdict: Copy + Send;

    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    );
    /// Tells it that time has passed. The nodes that have been silent for too long, as far as it can
    /// tell.
    fn handle_timeout(&mut self, now: Timestamp) -> Vec<usize>;
    fn poll_timeout(&self) -> Option<Timestamp>;
    fn verdict(&self) -> Option<Self::Verdict>;
}

impl Round for Attempt {
    type Verdict = Verdict;

    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        Self::handle_reply(self, node, outcome, discount, now);
    }

    fn handle_timeout(&mut self, now: Timestamp) -> Vec<usize> {
        Self::handle_timeout(self, now);
        let votes = self.votes().enumerate();
        let silent = votes.filter(|(_, vote)| **vote == Vote::Silent);
        silent.map(|(node, _)| node).collect()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        Self::poll_timeout(self)
    }

    fn verdict(&self) -> Option<Verdict> {
        Self::verdict(self)
    }
}

/// A round under way: a machine that replies are fed to as they arrive.
pub(crate) struct PendingRound<R> {
    pub(crate) driver: Arc<Driver>,
    sent: Timestamp,
    pub(super) state: Mutex<RoundState<R>>,
    /// The hold that was won in this round before all nodes had answered.
    heir: OnceLock<Weak<Hold>>,
}

pub(super) struct RoundState<R> {
    pub(super) round: R,
    waker: Option<Waker>,
    /// Of the caller that waits for the last answer.
    pub(super) last: Option<Waker>,
    /// It counts among the attempts that were won before every node had answered.
    straggling: bool,
}

impl<R: Round> PendingRound<R> {
    /// A round of which the first request leaves at `sent`.
    pub(crate) fn new(driver: &Arc<Driver>, round: R, sent: Timestamp) -> Self {
        Self {
            driver: Arc::clone(driver),
            sent,
            state: Mutex::new(RoundState {
                round,
                waker: None,
                last: None,
                straggling: false,
            }),
            heir: OnceLock::new(),
        }
    }

    /// Looks into the round.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut R) -> T) -> T {
        look(&mut lock(&self.state).round)
    }

    /// Takes one reply: learns from it, feeds the machine, and returns whatever `then` makes of
    /// the machine. Wakes the waiting caller once there is a verdict, and only then.
    pub(crate) fn take<T>(
        &self,
        node: usize,
        outcome: Result<Reply, CallError>,
        then: impl FnOnce(&mut R, Timestamp) -> T,
    ) -> T {
        let sender = &self.driver.sender;
        let now = sender.clock.now();
        let discount = sender.hear(node, &outcome, self.sent, now);
        let mut state = lock(&self.state);
        state.round.handle_reply(node, outcome, discount, now);
        let made = then(&mut state.round, now);
        wake_if_decided(state);
        made
    }

    /// Tells the machine that time has passed.
    pub(crate) fn time_out(&self) {
        let sender = &self.driver.sender;
        let mut state = lock(&self.state);
        let silent = state.round.handle_timeout(sender.clock.now());
        wake_if_decided(state);
        if !silent.is_empty() {
            let mut cluster = sender.cluster();
            silent.into_iter().for_each(|node| cluster.silent(node));
        }
    }

    /// Waits for the verdict, which comes with the machine's own timeout at the latest. `None` if the
    /// client is closed before. May be dropped at any time; the round goes on without its caller.
    pub(crate) async fn verdict(&self) -> Option<R::Verdict> {
        let driver = &self.driver;
        let timeout = self.with(|round| round.poll_timeout());
        let sleep = driver
            .schedule
            .sleep_until(timeout.unwrap_or(self.sent), &driver.sender.clock);
        let mut sleep = pin!(sleep);
        poll_fn(|cx| {
            let mut verdict = self.poll_verdict(cx);
            if verdict.is_pending() && sleep.as_mut().poll(cx).is_ready() {
                self.time_out();
                verdict = self.poll_verdict(cx);
            }
            match verdict {
                Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
                // After it has lain down: whoever closes the client wakes the sleepers after that.
                Poll::Pending if driver.closing.closed.load(Ordering::SeqCst) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Looks for the verdict, and has the caller woken when there is one.
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

/// Wakes the caller that waits for the verdict, if there is one.
fn wake_if_decided<R: Round>(mut state: MutexGuard<'_, RoundState<R>>) {
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
    /// The attempt was won: nodes that have not answered are counted until they have.
    pub(crate) fn won(&self) {
        let mut state = lock(&self.state);
        if !state.round.is_complete() {
            state.straggling = true;
            let straggling = &self.driver.closing.straggling;
            straggling.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Has `hold` told of every answer from now on.
    pub(crate) fn left_to(&self, hold: &Arc<Hold>) {
        // An attempt is won once.
        let _ = self.heir.set(Arc::downgrade(hold));
    }
}

impl Deliver<Reply> for PendingRound<Attempt> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let complete = self.take(tag as usize, outcome, |attempt, _| attempt.is_complete());
        if let Some(hold) = self.heir.get().and_then(Weak::upgrade) {
            hold.hear_acquire(self);
        }
        if !complete {
            return;
        }
        let mut state = lock(&self.state);
        let last = state.last.take();
        let straggled = std::mem::take(&mut state.straggling);
        drop(state);
        if let Some(waker) = last {
            waker.wake();
        }
        if straggled {
            let closing = &self.driver.closing;
            closing.count_down(&closing.straggling);
        }
    }
}
