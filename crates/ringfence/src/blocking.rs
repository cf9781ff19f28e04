//! The same API without async: each call blocks its thread. Must not be used inside an async task.
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

mod election;
mod held;
mod latch;
mod lock;
mod plain;
mod rw_lock;
mod semaphore;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

use crate::client::{self, Builder, ConnectError, InspectError, Inspection, NodeStatus};

use held::Blocking;

pub use election::{Election, Leadership, Observer};
pub use latch::Latch;
pub use lock::{Guard, Lock};
pub use plain::{PlainGuard, PlainLock};
pub use rw_lock::{ReadGuard, RwLock};
pub use semaphore::{Semaphore, SemaphoreGuard};

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
}

impl Engine {
    /// Runs `future` on the calling thread.
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        match &self.runtime {
            Some(runtime) => runtime.block_on(future),
            None => unreachable!("the runtime is there until the engine is dropped"),
        }
    }
}

impl Engine {
    /// Runs `taking`, and wraps the guard that it brings.
    fn take<G: Blocking, E>(
        self: &Arc<Self>,
        taking: impl Future<Output = Result<G::Twin, E>>,
    ) -> Result<G, E> {
        let guard = self.run(taking)?;
        Ok(G::new(guard, Arc::clone(self)))
    }
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
    /// See [`crate::Locks::connect`].
    pub fn connect(urls: &str) -> Result<Self, ConnectError> {
        Self::build(client::Locks::builder().nodes(urls))
    }

    /// See [`crate::Locks::builder`]; hand the builder to [`build`](Self::build).
    pub fn builder() -> Builder {
        client::Locks::builder()
    }

    /// Connects with the settings of `builder`.
    pub fn build(builder: Builder) -> Result<Self, ConnectError> {
        let runtime = RuntimeBuilder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ringfence")
            .enable_all()
            .build()
            .map_err(|error| ConnectError::Open(Box::new(error)))?;
        let locks = runtime.block_on(builder.connect())?;
        Ok(Self {
            engine: Arc::new(Engine {
                locks,
                runtime: Some(runtime),
            }),
        })
    }

    /// See [`crate::Locks::inspect`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection, InspectError> {
        self.engine.run(self.engine.locks.inspect(name))
    }

    /// See [`crate::Locks::nodes`].
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.run(self.engine.locks.nodes())
    }

    /// See [`crate::Locks::close`].
    pub fn close(self) {
        self.engine.run(self.engine.locks.clone().close());
    }
}
