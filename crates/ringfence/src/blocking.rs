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
mod latch;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, Builder, ConnectError, ExtendError, HoldError, InspectError, Inspection,
    NodeStatus, Owner, Receipt, ReleaseError, ReleaseReceiptError, SemaphoreInspection, Votes,
};
use crate::driver::hold::Lost;
use crate::time::Timestamp;
use crate::token::Token;

pub use election::{Election, Leadership, Observer};
pub use latch::Latch;

/// How long the thread behind a client lives on to send releases that are still under way.
const LINGER: Duration = Duration::from_secs(1);

/// A client of one set of nodes, with a thread of its own for connections, renewal and timers. See
/// [`crate::Locks`].
#[derive(Debug, Clone)]
pub struct Locks {
    engine: Arc<Engine>,
}

#[derive(Debug)]
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

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        // Not here: dropping must not block, and a guard may just have begun its release.
        let locks = self.locks.clone();
        let linger = std::thread::Builder::new().name("ringfence-close".into());
        let spawned = linger.spawn(move || {
            runtime.block_on(async move {
                // Whatever is not sent by then ends with its TTL.
                let _ = tokio::time::timeout(LINGER, locks.close()).await;
            });
            runtime.shutdown_background();
        });
        drop(spawned);
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

    /// See [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(self.engine.locks.mutex(name))
    }

    /// See [`crate::Locks::multi`].
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Lock {
        self.lock(self.engine.locks.multi(names))
    }

    /// See [`crate::Locks::rw_lock`].
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock {
            engine: Arc::clone(&self.engine),
            lock: self.engine.locks.rw_lock(name),
        }
    }

    /// See [`crate::Locks::plain_mutex`].
    pub fn plain_mutex(&self, name: impl AsRef<str>) -> PlainLock {
        PlainLock {
            engine: Arc::clone(&self.engine),
            lock: self.engine.locks.plain_mutex(name),
        }
    }

    /// See [`crate::Locks::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore {
            engine: Arc::clone(&self.engine),
            lock: self.engine.locks.semaphore(name, permits),
        }
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

    fn lock(&self, lock: client::Lock) -> Lock {
        Lock {
            engine: Arc::clone(&self.engine),
            lock,
        }
    }
}

/// A lock, not yet taken. See [`crate::Lock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is called"]
pub struct Lock {
    engine: Arc<Engine>,
    lock: client::Lock,
}

impl Lock {
    terms! {
        lock:
        ttl(ttl: Duration),
        wait(wait: Duration),
        label(label: &str),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
        owner(owner: &Owner),
        lock_delay(delay: Duration),
        hold_at_least(span: Duration),
    }

    /// See [`crate::Lock::lock`].
    pub fn lock(&self) -> Result<Guard, AcquireError> {
        self.guard(self.engine.run(self.lock.lock()))
    }

    /// See [`crate::Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.guard(self.engine.run(self.lock.try_lock()))
    }

    /// Takes the lock, does `work`, and releases. Nothing can stop a thread from outside: where the
    /// work is long, have it look at [`Guard::check`]. An error if the lock was lost meanwhile.
    pub fn hold<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, HoldError> {
        let guard = self.lock()?;
        let done = work(&guard);
        let held = guard.check();
        if let Err(error) = guard.release() {
            tracing::warn!(%error, "released after the work was over");
        }
        match held {
            Ok(()) => Ok(done),
            Err(why) => Err(HoldError::Lost(why)),
        }
    }

    /// See [`crate::Lock::extend_receipt`].
    pub fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.engine.run(self.lock.extend_receipt(receipt, ttl))
    }

    /// See [`crate::Lock::release_receipt`].
    pub fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.engine.run(self.lock.release_receipt(receipt))
    }

    fn guard(&self, guard: Result<client::Guard, AcquireError>) -> Result<Guard, AcquireError> {
        guard.map(|guard| Guard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A lock that is held. See [`crate::Guard`].
// The guard stands first: it is dropped, and its release begun, before the engine goes.
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    guard: client::Guard,
    engine: Arc<Engine>,
}

/// What a guard tells without blocking.
macro_rules! getters {
    ($($name:ident -> $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("See [`crate::Guard::", stringify!($name), "`].")]
            pub fn $name(&self) -> $type {
                self.guard.$name()
            }
        )*
    };
}

impl Guard {
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
        check -> Result<(), Lost>,
        remaining -> Duration,
        deadline -> Timestamp,
        votes -> Votes,
        receipt -> Receipt,
    }

    /// See [`crate::Guard::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.engine.run(self.guard.extend(ttl))
    }

    /// Blocks until the lock is lost. See [`crate::Guard::lost`].
    pub fn lost(&self) -> Lost {
        self.engine.run(self.guard.lost())
    }

    /// See [`crate::Guard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.engine.run(self.guard.release())
    }

    /// See [`crate::Guard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }

    /// See [`crate::Guard::downgrade`].
    pub fn downgrade(self) -> Result<ReadGuard, Lost> {
        let guard = self.engine.run(self.guard.downgrade())?;
        Ok(ReadGuard {
            guard,
            engine: self.engine,
        })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// A plain Redlock, not yet taken. See [`crate::PlainLock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is called"]
pub struct PlainLock {
    engine: Arc<Engine>,
    lock: client::PlainLock,
}

impl PlainLock {
    terms! {
        lock:
        ttl(ttl: Duration),
        wait(wait: Duration),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
    }

    /// See [`crate::PlainLock::lock`].
    pub fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.guard(self.engine.run(self.lock.lock()))
    }

    /// See [`crate::PlainLock::try_lock`].
    pub fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.guard(self.engine.run(self.lock.try_lock()))
    }

    fn guard(
        &self,
        guard: Result<client::PlainGuard, AcquireError>,
    ) -> Result<PlainGuard, AcquireError> {
        guard.map(|guard| PlainGuard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A plain Redlock that is held. See [`crate::PlainGuard`].
#[must_use = "dropping the guard releases the lock"]
pub struct PlainGuard {
    guard: client::PlainGuard,
    engine: Arc<Engine>,
}

impl PlainGuard {
    getters! {
        check -> Result<(), Lost>,
        remaining -> Duration,
        deadline -> Timestamp,
        votes -> Votes,
    }

    /// See [`crate::PlainGuard::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.engine.run(self.guard.extend(ttl))
    }

    /// Blocks until the lock is lost. See [`crate::PlainGuard::lost`].
    pub fn lost(&self) -> Lost {
        self.engine.run(self.guard.lost())
    }

    /// See [`crate::PlainGuard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.engine.run(self.guard.release())
    }
}

impl fmt::Debug for PlainGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// A lock for many readers or one writer, not yet taken. See [`crate::RwLock`].
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `read` or `write` is called"]
pub struct RwLock {
    engine: Arc<Engine>,
    lock: client::RwLock,
}

impl RwLock {
    terms! {
        lock:
        ttl(ttl: Duration),
        wait(wait: Duration),
        label(label: &str),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
    }

    /// See [`crate::RwLock::read`].
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.reading(self.engine.run(self.lock.read()))
    }

    /// See [`crate::RwLock::try_read`].
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.reading(self.engine.run(self.lock.try_read()))
    }

    /// See [`crate::RwLock::write`].
    pub fn write(&self) -> Result<Guard, AcquireError> {
        self.writing(self.engine.run(self.lock.write()))
    }

    /// See [`crate::RwLock::try_write`].
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        self.writing(self.engine.run(self.lock.try_write()))
    }

    fn reading(
        &self,
        guard: Result<client::ReadGuard, AcquireError>,
    ) -> Result<ReadGuard, AcquireError> {
        guard.map(|guard| ReadGuard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }

    fn writing(&self, guard: Result<client::Guard, AcquireError>) -> Result<Guard, AcquireError> {
        guard.map(|guard| Guard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A share of a lock. See [`crate::ReadGuard`].
#[must_use = "dropping the guard releases the lock"]
pub struct ReadGuard {
    guard: client::ReadGuard,
    engine: Arc<Engine>,
}

impl ReadGuard {
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
        check -> Result<(), Lost>,
        remaining -> Duration,
        deadline -> Timestamp,
        votes -> Votes,
    }

    /// See [`crate::ReadGuard::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.engine.run(self.guard.extend(ttl))
    }

    /// Blocks until the lock is lost. See [`crate::ReadGuard::lost`].
    pub fn lost(&self) -> Lost {
        self.engine.run(self.guard.lost())
    }

    /// See [`crate::ReadGuard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.engine.run(self.guard.release())
    }
}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// A semaphore, of which no permit has been taken yet. See [`crate::Semaphore`].
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until `acquire` or `try_acquire` is called"]
pub struct Semaphore {
    engine: Arc<Engine>,
    lock: client::Semaphore,
}

impl Semaphore {
    terms! {
        lock:
        ttl(ttl: Duration),
        wait(wait: Duration),
        label(label: &str),
        renew(renew: bool),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
        lock_delay(delay: Duration),
    }

    /// See [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.guard(self.engine.run(self.lock.acquire()))
    }

    /// See [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.guard(self.engine.run(self.lock.try_acquire()))
    }

    /// See [`crate::Semaphore::inspect`].
    pub fn inspect(&self) -> Result<SemaphoreInspection, InspectError> {
        self.engine.run(self.lock.inspect())
    }

    fn guard(
        &self,
        guard: Result<client::SemaphoreGuard, AcquireError>,
    ) -> Result<SemaphoreGuard, AcquireError> {
        guard.map(|guard| SemaphoreGuard {
            guard,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// A permit that is held. See [`crate::SemaphoreGuard`].
#[must_use = "dropping the guard gives the permit back"]
pub struct SemaphoreGuard {
    guard: client::SemaphoreGuard,
    engine: Arc<Engine>,
}

impl SemaphoreGuard {
    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
        check -> Result<(), Lost>,
        remaining -> Duration,
        deadline -> Timestamp,
        votes -> Votes,
    }

    /// See [`crate::SemaphoreGuard::slot`].
    pub fn slot(&self) -> u32 {
        self.guard.slot()
    }

    /// See [`crate::SemaphoreGuard::extend`].
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.engine.run(self.guard.extend(ttl))
    }

    /// Blocks until the permit is lost. See [`crate::SemaphoreGuard::lost`].
    pub fn lost(&self) -> Lost {
        self.engine.run(self.guard.lost())
    }

    /// See [`crate::SemaphoreGuard::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        self.engine.run(self.guard.release())
    }
}

impl fmt::Debug for SemaphoreGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
