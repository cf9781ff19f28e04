//! Where the pure machines meet the nodes: sends what they want sent, hands them what comes back,
//! and keeps their timers. The only code that talks to nodes.
//!
//! Replies are fed to a machine by whoever delivers them ([`flight`]), so a round costs its caller
//! one wake-up and no task. One task per client, the [`keeper`], looks after everything that is
//! due later: renewals, deadlines, and what has to be said again.

pub(crate) mod acquire;
mod crowd;
mod draining;
pub(crate) mod extending;
pub(crate) mod flight;
pub(crate) mod gather;
mod hearing;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod latch;
mod policies;
mod refreshing;
mod renewals;
mod round;
pub(crate) mod runtime;
pub(crate) mod schedule;
pub(crate) mod strays;
pub(crate) mod taker;
mod ticket;
mod timer;
pub(crate) mod waiting;
pub(crate) mod withdraw;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::message::{Reply, Request};
use crate::node::{Call, Completion, Deliver, Node};
use crate::protocol::Cluster;
use crate::time::Timestamp;

use crowd::Crowd;
use hearing::Standstill;
use policies::Policies;
use renewals::Renewals;
use schedule::Schedule;
use waiting::WaitingRoom;

/// What all calls of one client share.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) renewals: Renewals,
    pub(crate) room: Arc<WaitingRoom>,
    crowd: Crowd,
    policies: Policies,
    standstill: Standstill,
    /// Set by `Locks::close`: no new attempts.
    closed: AtomicBool,
    /// Set when the keeper's runtime has ended: nothing could be renewed.
    runtime_gone: AtomicBool,
    closing: Notify,
    /// Attempts under way, which `Locks::close` has given up.
    attempting: AtomicUsize,
    given_up: Notify,
    /// Withdrawals under way: what `Locks::close` waits for.
    withdrawing: AtomicUsize,
    /// Those of them that no majority has confirmed.
    unconfirmed: AtomicUsize,
    /// Attempts that were won before every node had answered, and some have not yet.
    straggling: AtomicUsize,
    /// One of these numbers came down to zero.
    withdrawn: Notify,
}

/// How long `Locks::close` waits for what a majority has confirmed and others have not.
const LINGER: Duration = Duration::from_millis(100);

impl Driver {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        cluster: Cluster,
        clock: Clock,
        entropy: Entropy,
    ) -> Self {
        let schedule: Arc<Schedule> = Arc::default();
        Self {
            renewals: Renewals::new(Arc::clone(&schedule)),
            room: Arc::new(WaitingRoom::new(entropy.client_id(), clock.clone())),
            crowd: Crowd::default(),
            policies: Policies::default(),
            standstill: Standstill::default(),
            nodes,
            cluster: Mutex::new(cluster),
            clock,
            entropy,
            schedule,
            closed: AtomicBool::new(false),
            runtime_gone: AtomicBool::new(false),
            closing: Notify::new(),
            attempting: AtomicUsize::new(0),
            given_up: Notify::new(),
            withdrawing: AtomicUsize::new(0),
            unconfirmed: AtomicUsize::new(0),
            straggling: AtomicUsize::new(0),
            withdrawn: Notify::new(),
        }
    }

    /// Of `nodes` that form a group of their own.
    #[cfg(test)]
    pub(crate) fn of_group(nodes: Vec<Arc<dyn Node>>, clock: Clock) -> Arc<Self> {
        let group = crate::group::Group::new(nodes.len());
        let drift = crate::protocol::Drift::default();
        let cluster = Cluster::new(&group, drift, &vec![true; nodes.len()]);
        Arc::new(Self::new(nodes, cluster, clock, Entropy::default()))
    }

    /// What the client knows of its nodes. Held for a few instructions only, never across a send.
    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        lock(&self.cluster)
    }

    /// Sends `request` to `node`. The answer goes to `to`, under the node's number.
    fn send(
        &self,
        node: usize,
        request: &Arc<Request>,
        expires: Timestamp,
        to: Arc<dyn Deliver<Reply>>,
    ) {
        self.ask(node, request, expires, Completion::new(to, node as u64));
    }

    /// The same, with the answer to `done`.
    pub(crate) fn ask(
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

    /// Whether `close` was called, or the runtime of this client has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst) || self.is_runtime_gone()
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    /// Completes when the client is closed or its runtime has ended.
    pub(crate) async fn closing(&self) {
        wait_for(&self.closing, || self.is_closed()).await;
    }

    /// Completes when no attempt is under way any more, or after a second: a future that nobody
    /// polls cannot be waited for. What it set is taken back when it is dropped.
    pub(crate) async fn given_up(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let none = || self.attempting.load(Ordering::SeqCst) == 0;
        tokio::select! {
            biased;
            () = wait_for(&self.given_up, none) => {}
            () = self.clock.sleep_until(self.clock.now() + PATIENCE) => {}
        }
    }

    /// Completes when a majority of the nodes has confirmed everything that was to be taken back, or
    /// it can no longer be there, or nobody is left who could take it back. The other nodes, and those that have not answered an acquire that
    /// was won, are waited for a moment: they may be about to answer, or hang.
    pub(crate) async fn drained(&self) {
        let none = |count: &AtomicUsize| count.load(Ordering::SeqCst) == 0;
        wait_for(&self.withdrawn, || {
            none(&self.unconfirmed) || self.is_runtime_gone()
        })
        .await;
        let all = || none(&self.withdrawing) && none(&self.straggling) || self.is_runtime_gone();
        tokio::select! {
            biased;
            () = wait_for(&self.withdrawn, all) => {}
            () = self.clock.sleep_until(self.clock.now() + LINGER) => {}
        }
    }

    /// Every node has answered an attempt that was won earlier.
    fn straggled(&self) {
        if self.straggling.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.withdrawn.notify_waiters();
        }
    }
}

/// Waits until `done`, looking again at every `notify`.
pub(crate) async fn wait_for(notify: &Notify, done: impl Fn() -> bool) {
    loop {
        let notified = notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if done() {
            return;
        }
        notified.await;
    }
}

/// Locks `mutex`. The machines keep no invariant open while they could panic, so a poisoned lock
/// is as good as any; refusing it would turn one panic into a process full of them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time for which a node may take to answer: a tenth of the TTL, within reason.
pub(crate) fn call_timeout(ttl: Duration) -> Duration {
    (ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}
