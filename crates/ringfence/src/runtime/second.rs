//! The second line of renewal: one thread of the process that renews what clients hold while their
//! tokio runtime is blocked.
//!
//! Keeper and connections of a client are tasks. Code that blocks a thread of the tokio runtime may
//! keep all of them from running: the only thread, the one that waits for sockets and timers, or the
//! one that was to run the connections next. So this thread looks whether the keeper is late
//! (`schedule.rs`). If it is, the thread does the work of the keeper, over connections of its own in a
//! tokio runtime of its own, until the keeper runs again. It also provides these connections if the
//! keeper runs but its connections are silent.
//!
//! Both lines feed one machine per hold under one mutex, so the deadline and the release take account
//! of what either has in flight. What is known of the nodes is shared
//! ([`Cluster`](crate::protocol::Cluster) says why).
//!
//! The thread starts with the first client of the process, because nothing of ours runs once blocking
//! code does. It sleeps without a timer while nothing is held, looks once per half a TTL while locks
//! are held or taken, and ends some seconds after the last client.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::environment::OwnerProcess;
use crate::node::Node;
use crate::protocol::Line;
use crate::time::Timestamp;

use super::sender::Sender;
use super::{ClientRuntime, lock};

/// After this time without use, connections are closed and the thread ends.
const IDLE: Duration = Duration::from_secs(5);
/// The pause before a tokio runtime is made again after that failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How many holds are executed before the connections get their turn.
const AT_ONCE: usize = 4096;

/// Has the second line of this process watch `runtime`. This is the only place that starts its
/// thread.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn watch(runtime: &Arc<ClientRuntime>) -> io::Result<()> {
    if !matches!(runtime.sender.clock, Clock::System) {
        // The thread cannot wait for a clock that a test steps.
        return Ok(());
    }
    let line = SecondLine::of_this_process();
    let mut state = lock(&line.state);
    if !state.running {
        let thread = thread::Builder::new().name("ringfence-renew".to_owned());
        thread.spawn(|| line.run())?;
        state.running = true;
    }
    state.clients.push(Arc::downgrade(runtime));
    drop(state);
    runtime.schedule.watched_by(line);
    Ok(())
}

/// See the module.
#[derive(Debug)]
pub(super) struct SecondLine {
    state: Mutex<LineState>,
    /// Wakes the thread while it has no tokio runtime.
    parked: Condvar,
    /// Wakes the thread while it has one.
    changed: Notify,
}

#[derive(Debug)]
struct LineState {
    running: bool,
    clients: Vec<Weak<ClientRuntime>>,
    /// When the thread looks next.
    look_at: Option<Timestamp>,
}

impl SecondLine {
    fn of_this_process() -> &'static Self {
        static LINE: OnceLock<(OwnerProcess, SecondLine)> = OnceLock::new();
        let (owner, line) = LINE.get_or_init(|| (OwnerProcess::current(), Self::new()));
        match owner.is_ours() {
            true => line,
            // After a fork the thread does not exist here, and the mutex may be locked for ever. So
            // each client of such a process has a thread of its own.
            false => Box::leak(Box::new(Self::new())),
        }
    }

    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(LineState {
                running: false,
                clients: Vec::new(),
                look_at: None,
            }),
            parked: Condvar::new(),
            changed: Notify::new(),
        }
    }

    /// Has the thread look at `at` or earlier.
    pub(super) fn look_by(&self, at: Timestamp) {
        let mut state = lock(&self.state);
        let early = state.look_at.is_none_or(|planned| at < planned);
        if early {
            state.look_at = Some(at);
            drop(state);
            self.wake();
        }
    }

    /// A client was dropped.
    pub(super) fn forget_dropped(&self) {
        let mut state = lock(&self.state);
        state.clients.retain(|client| client.strong_count() > 0);
        let none_left = state.clients.is_empty();
        drop(state);
        if none_left {
            self.wake();
        }
    }

    /// Whether the thread was woken since the last call.
    #[cfg(test)]
    pub(super) fn was_woken(&self) -> bool {
        use std::pin::pin;
        use std::task::{Context, Waker};
        let changed = pin!(self.changed.notified());
        changed
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    fn wake(&self) {
        self.parked.notify_one();
        self.changed.notify_one();
    }

    fn run(&self) {
        while self.park() {
            let clients = self.clients();
            let is_needed = clients.iter().any(|client| client.needs_second());
            drop(clients);
            if is_needed {
                self.help();
            }
            self.plan();
        }
    }

    /// Waits until it is time to look. Returns false if the thread ends.
    fn park(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.clients.is_empty() {
                // Planned for clients that are gone. A later time of the next client would not wake
                // this thread.
                state.look_at = None;
                let waited = self.parked.wait_timeout(state, IDLE);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() && state.clients.is_empty() {
                    state.running = false;
                    return false;
                }
                continue;
            }
            let Some(at) = state.look_at else {
                let woken = self.parked.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = at.since(Clock::System.now());
            if left.is_zero() {
                state.look_at = None;
                return true;
            }
            let waited = self.parked.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn clients(&self) -> Vec<Arc<ClientRuntime>> {
        let state = lock(&self.state);
        state.clients.iter().filter_map(Weak::upgrade).collect()
    }

    /// Plans the next look at all clients.
    fn plan(&self) {
        for client in self.clients() {
            let waiting = client.renewals.waiting_since();
            if let Some(at) = client.schedule.plan_look(waiting) {
                self.look_by(at);
            }
        }
    }

    /// Does the work of late keepers, until none has been late for a while.
    fn help(&self) {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let tokio = match tokio {
            Ok(tokio) => tokio,
            Err(error) => {
                tracing::warn!(target: "ringfence", %error, "locks cannot be renewed while the tokio runtime is blocked");
                return thread::sleep(PAUSE);
            }
        };
        tokio.block_on(async {
            loop {
                let mut open = None;
                for client in self.clients() {
                    let until = help(&client);
                    open = open.max(until);
                    if let Some(until) = until {
                        self.look_by(until);
                    }
                }
                if open.is_none() {
                    return;
                }
                self.plan();
                self.wait().await;
            }
        });
    }

    /// Waits until it is time to look, while connections are open.
    async fn wait(&self) {
        loop {
            let changed = self.changed.notified();
            let at = lock(&self.state).look_at;
            let at = at.unwrap_or_else(|| Clock::System.now() + IDLE);
            if at <= Clock::System.now() {
                lock(&self.state).look_at = None;
                // The connections get their turn, however much there is to do.
                return tokio::task::yield_now().await;
            }
            tokio::select! {
                () = changed => {}
                () = Clock::System.sleep_until(at) => {}
            }
        }
    }
}

/// Does what the keeper of `client` is late with. Returns until when the second line's connections of
/// this client are kept.
fn help(client: &ClientRuntime) -> Option<Timestamp> {
    // A custom node may panic. Other clients depend on this thread, too.
    let helped = catch_unwind(AssertUnwindSafe(|| client.help_by_second()));
    helped.unwrap_or_else(|_| {
        tracing::error!(target: "ringfence", "a node panicked while a lock was renewed");
        // The connections must not outlive the tokio runtime.
        client.sender.second.close();
        None
    })
}

/// Other instances of a client's nodes, for the second line.
#[derive(Debug, Default)]
pub(crate) struct SecondNodes {
    open: Mutex<Option<OpenNodes>>,
    /// The same as whether `open` is set; read for each renewal.
    is_open: AtomicBool,
}

#[derive(Debug)]
struct OpenNodes {
    nodes: Arc<[Arc<dyn Node>]>,
    used: Timestamp,
}

impl SecondNodes {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// The nodes, which are used at `now`.
    pub(super) fn used(&self, now: Timestamp) -> Option<Arc<[Arc<dyn Node>]>> {
        let mut open = lock(&self.open);
        let open = open.as_mut()?;
        open.used = open.used.max(now);
        Some(Arc::clone(&open.nodes))
    }

    /// Makes the nodes in the current tokio runtime, unless there are any. Returns whether it did.
    fn make(&self, sender: &Sender, now: Timestamp) -> bool {
        if self.used(now).is_some() {
            return false;
        }
        let group = *sender.cluster().group();
        let second = |node: &Arc<dyn Node>| node.second(group).unwrap_or_else(|| Arc::clone(node));
        let nodes = sender.nodes.iter().map(second).collect();
        *lock(&self.open) = Some(OpenNodes { nodes, used: now });
        self.is_open.store(true, Ordering::Relaxed);
        true
    }

    /// Drops the nodes if they were not used for long. Returns until when they are kept.
    fn drop_unused(&self, now: Timestamp) -> Option<Timestamp> {
        let open = lock(&self.open);
        let until = open.as_ref()?.used + IDLE;
        if now < until {
            return Some(until);
        }
        drop(open);
        self.close();
        None
    }

    fn close(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        // Dropped after unlocking: a node may answer its calls then.
        let closed = lock(&self.open).take();
        drop(closed);
    }
}

impl ClientRuntime {
    /// Whether the keeper is late, or its connections are silent.
    fn needs_second(&self) -> bool {
        let now = self.sender.clock.now();
        let due = [self.schedule.first_hold(), self.renewals.waiting_since()];
        let mut due = due.into_iter().flatten();
        due.any(|at| self.schedule.is_overdue(at, now)) || self.schedule.is_second_wanted()
    }

    /// See [`help`].
    fn help_by_second(&self) -> Option<Timestamp> {
        if self.needs_second() {
            self.open_second();
        }
        let now = self.sender.clock.now();
        for _ in 0..AT_ONCE {
            let Some(hold) = self.schedule.pop_hold(now) else {
                break;
            };
            hold.time_out();
        }
        while self.schedule.is_taken_over()
            && let Some(hold) = self.renewals.next(now)
        {
            hold.renew(Line::Second);
        }
        self.sender.second.drop_unused(now)
    }

    fn open_second(&self) {
        self.schedule.second_is_there();
        if !self
            .sender
            .second
            .make(&self.sender, self.sender.clock.now())
        {
            return;
        }
        match self.schedule.is_taken_over() {
            true => tracing::warn!(
                target: "ringfence",
                "a lock was not renewed in time: blocking code stops its tokio runtime, or the \
                 process was paused; a thread renews it over connections of its own (move blocking \
                 code to `spawn_blocking`)"
            ),
            false => tracing::debug!(
                target: "ringfence",
                "nodes did not answer a renewal; retrying over other connections, too"
            ),
        }
    }
}
