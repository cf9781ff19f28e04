//! The same API without async: each call blocks its thread.
//!
//! A call from inside a tokio task panics, because it would block the thread that runs the task:
//! use the async API there, or `tokio::task::spawn_blocking`.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = ringfence::blocking::Locks::connect("memory:")?;
//! let guard = locks.mutex("orders:42").lock()?;
//! println!("fence {}", guard.fence());
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

mod guard;
mod lock;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use tokio::task::coop::poll_proceed;

use crate::client::kind::Kind;
use crate::client::{
    self, Builder, ConnectError, InitError, Initialised, InspectError, Inspection, NameInspection,
    NodeStatus,
};
use crate::environment::OwnerProcess;

pub use guard::{Guard, Leadership, Loss, PlainGuard, ReadGuard, SemaphoreGuard};
pub use lock::{Election, Latch, Lock, Observer, PlainLock, RwLock, Semaphore};

/// How long the last handle waits, when it is dropped, for releases that are still under way.
const LINGER: Duration = Duration::from_millis(200);

/// A client of one set of nodes, with a thread of its own for connections, renewal and timers. See
/// [`crate::Locks`].
#[derive(Clone)]
pub struct Locks {
    engine: Arc<Engine>,
}

struct Engine {
    locks: client::Locks,
    /// Taken when the engine is dropped.
    runtime: Option<Runtime>,
    process: OwnerProcess,
}

impl Engine {
    /// Runs `future` on the calling thread.
    ///
    /// # Panics
    /// Inside a tokio task.
    #[track_caller]
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        if !self.process.is_ours() {
            return refused(future);
        }
        refuse_inside_a_task();
        match &self.runtime {
            Some(runtime) => runtime.block_on(future),
            None => unreachable!("the runtime is there until the engine is dropped"),
        }
    }

    /// Runs `taking`, and wraps the guard that it returns.
    #[track_caller]
    fn take<K: Kind, E>(
        self: &Arc<Self>,
        taking: impl Future<Output = Result<client::Guard<K>, E>>,
    ) -> Result<Guard<K>, E> {
        let guard = self.run(taking)?;
        let engine = Arc::clone(self);
        Ok(Guard { guard, engine })
    }
}

/// Runs a call that needs no client, on the calling thread.
#[track_caller]
fn run_alone<T>(call: impl Future<Output = Result<T, InitError>>) -> Result<T, InitError> {
    refuse_inside_a_task();
    let runtime = RuntimeBuilder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ConnectError::Thread(Arc::new(error)))?;
    runtime.block_on(call)
}

/// The result of a call in a forked child, which has not the thread that the call would wait for. The
/// client refuses it at once.
fn refused<T>(call: impl Future<Output = T>) -> T {
    match std::pin::pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a call in a forked child does not wait"),
    }
}

/// A call that blocks inside of a tokio task would stop the other tasks of its thread, and those
/// that renew locks may be among them. tokio refuses that as well, but with a text that does not
/// help users of this crate.
#[track_caller]
fn refuse_inside_a_task() {
    assert!(
        !is_inside_a_task(),
        "`ringfence::blocking` was called inside a tokio task, which must not block; use the async API \
         (`ringfence::Locks`) there, or `tokio::task::spawn_blocking`"
    );
}

/// Whether a tokio runtime polls a future on this thread now. Threads of `spawn_blocking` have a
/// current runtime, too, but may block. Only a future that is polled has a budget that can be used
/// up.
fn is_inside_a_task() -> bool {
    const MORE_THAN_A_BUDGET: usize = 256;
    if tokio::runtime::Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut used = Vec::new();
    let is_used_up = (0..MORE_THAN_A_BUDGET).any(|_| match poll_proceed(&mut cx) {
        Poll::Ready(unit) => {
            used.push(unit);
            false
        }
        Poll::Pending => true,
    });
    // Each unit restores the budget from before it was taken, so the first one goes last.
    while used.pop().is_some() {}
    is_used_up
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.locks.fmt(f)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        // Its thread is not in a forked child, which would wait for it.
        if !self.process.is_ours() {
            return std::mem::forget((runtime, self.locks.clone()));
        }
        // A guard may just have begun its release.
        let locks = self.locks.clone();
        let end = move || {
            runtime.block_on(async move {
                // Whatever is not confirmed by then was sent, or ends with its TTL.
                let _ = tokio::time::timeout(LINGER, locks.close()).await;
            });
            runtime.shutdown_background();
        };
        // Inside an async task dropping must not block, and a runtime must not be dropped; and a
        // thread that is ending can run none.
        let outside = tokio::runtime::Handle::try_current()
            .is_err_and(|error| !error.is_thread_local_destroyed());
        if outside {
            return end();
        }
        let linger = std::thread::Builder::new().name("ringfence-close".into());
        drop(linger.spawn(end));
    }
}

impl Locks {
    /// Connects to the node or nodes at `urls`, several separated by commas. See
    /// [`crate::Locks::connect`].
    ///
    /// # Errors
    /// If a setting is not allowed, or if a majority of the nodes is not fit to hold locks.
    #[track_caller]
    pub fn connect(urls: &str) -> Result<Self, ConnectError> {
        Self::build(client::Locks::builder().nodes(urls))
    }

    /// See [`crate::Locks::builder`]; hand the builder to [`build`](Self::build).
    pub fn builder() -> Builder {
        client::Locks::builder()
    }

    /// Connects with the settings of `builder`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[track_caller]
    pub fn build(builder: Builder) -> Result<Self, ConnectError> {
        refuse_inside_a_task();
        let runtime = RuntimeBuilder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringfence")
            .enable_all()
            .build()
            .map_err(|error| ConnectError::Thread(Arc::new(error)))?;
        let locks = runtime.block_on(builder.connect())?;
        Ok(Self {
            engine: Arc::new(Engine {
                locks,
                runtime: Some(runtime),
                process: OwnerProcess::current(),
            }),
        })
    }

    /// Declares the cluster of `builder` new. See [`crate::Builder::init`].
    ///
    /// # Errors
    /// As [`crate::Builder::init`].
    #[track_caller]
    pub fn init(builder: Builder) -> Result<Initialised, InitError> {
        run_alone(builder.init())
    }

    /// Declares the cluster of `builder` new, whatever it holds. See
    /// [`crate::Builder::init_by_force`].
    ///
    /// # Errors
    /// As [`crate::Builder::init_by_force`].
    #[track_caller]
    pub fn init_by_force(builder: Builder) -> Result<Initialised, InitError> {
        run_alone(builder.init_by_force())
    }

    /// Waits until a majority of the nodes answers and votes, for at most 15 s. See
    /// [`crate::Locks::ready`].
    ///
    /// # Errors
    /// As [`crate::Locks::ready_within`].
    #[track_caller]
    pub fn ready(&self) -> Result<(), ConnectError> {
        self.engine.run(self.engine.locks.ready())
    }

    /// The same, for at most `span`. See [`crate::Locks::ready_within`].
    ///
    /// # Errors
    /// As [`crate::Locks::ready_within`].
    #[track_caller]
    pub fn ready_within(&self, span: Duration) -> Result<(), ConnectError> {
        self.engine.run(self.engine.locks.ready_within(span))
    }

    /// Who holds `name`, as a majority of the nodes sees it. See [`crate::Locks::inspect`].
    ///
    /// # Errors
    /// If no majority of the nodes answers, or if the name is not allowed.
    #[track_caller]
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection, InspectError> {
        self.engine.run(self.engine.locks.inspect(name))
    }

    /// Everything with this name: lock, semaphore and latch. See [`crate::Locks::inspect_all`].
    ///
    /// # Errors
    /// If no majority of the nodes answers, or if the name is not allowed.
    #[track_caller]
    pub fn inspect_all(&self, name: impl AsRef<str>) -> Result<NameInspection, InspectError> {
        self.engine.run(self.engine.locks.inspect_all(name))
    }

    /// Breaks a lock. Make it with [`breaking`](Self::breaking).
    ///
    /// # Errors
    /// As [`crate::admin::BreakRequest::run`].
    #[track_caller]
    pub fn break_lock(
        &self,
        hold: client::BreakRequest,
    ) -> Result<client::Broken, client::BreakError> {
        self.engine.run(hold.run())
    }

    /// A hold that is to be broken by [`break_lock`](Self::break_lock). See
    /// [`crate::Locks::break_lock`].
    pub fn breaking(&self, name: impl AsRef<str>) -> client::BreakRequest {
        self.engine.locks.break_lock(name)
    }

    /// The state of every node, in node order. See [`crate::Locks::nodes`].
    #[track_caller]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.run(self.engine.locks.nodes())
    }

    /// The names of the nodes, in node order.
    pub fn node_names(&self) -> &[String] {
        self.engine.locks.node_names()
    }

    /// The longest TTL that these nodes allow now. See [`crate::Locks::longest_ttl`].
    pub fn longest_ttl(&self) -> Duration {
        self.engine.locks.longest_ttl()
    }

    /// Ends all waiting calls and waits until a majority of the nodes has confirmed every release.
    /// See [`crate::Locks::close`].
    #[track_caller]
    pub fn close(&self) {
        self.engine.run(self.engine.locks.close());
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.engine.locks.is_closed()
    }
}
