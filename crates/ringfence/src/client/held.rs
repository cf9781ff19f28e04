//! What all guards have in common, for functions that do not depend on the kind.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::clock::Timestamp;
use crate::node::Tier;
use crate::protocol::Lost;

use super::error::{ExtendError, ReleaseError};
use super::loss::Loss;
use super::votes::Votes;

/// A future of a [`Held`] guard. It can be awaited in a task of any runtime thread.
pub type HeldFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A lock of any kind that is held: what [`Guard`](crate::Guard), [`ReadGuard`](crate::ReadGuard),
/// [`PlainGuard`](crate::PlainGuard), [`SemaphoreGuard`](crate::SemaphoreGuard) and
/// [`Leadership`](crate::Leadership) have in common.
///
/// Use it for functions that do not depend on the kind: `&dyn Held`, `Box<dyn Held>` or a generic
/// `H: Held`. Every guard has the same methods as its own, without the boxes. Only this crate
/// implements the trait, so later versions can add methods to it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::Locks::connect("memory:").await?;
/// use ringfence::Held;
///
/// fn describe(guard: &dyn Held) -> String {
///     format!("{}, fence {:?}, {:?} left", guard.name(), guard.fence(), guard.remaining())
/// }
///
/// let lock = locks.mutex("orders:42").lock().await?;
/// let permit = locks.semaphore("downloads", 3).acquire().await?;
/// println!("{}\n{}", describe(&lock), describe(&permit));
///
/// let all: Vec<Box<dyn Held>> = vec![Box::new(lock), Box::new(permit)];
/// for guard in all {
///     guard.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub trait Held: sealed::Sealed + fmt::Debug + Send + Sync + 'static {
    /// The name, or the names separated by commas.
    fn name(&self) -> &str;

    /// The fence. `None` for a [`PlainGuard`](crate::PlainGuard), which has none.
    fn fence(&self) -> Option<u64>;

    /// The moment until which the lock is certainly held, unless it is extended. See
    /// [`Guard::deadline`](crate::Guard::deadline) for what a suspend does to this value.
    fn deadline(&self) -> Instant;

    /// The deadline on the client's own clock, which counts suspend. See
    /// [`Guard::exact_deadline`](crate::Guard::exact_deadline).
    fn exact_deadline(&self) -> Timestamp;

    /// The time until the deadline; zero once the lock is lost. Exact across a suspend.
    fn remaining(&self) -> Duration;

    /// Checks on the local clock that the lock is still held. Exact across a suspend.
    ///
    /// # Errors
    /// Why the lock is lost.
    fn check(&self) -> Result<(), Lost>;

    /// The signal that the lock is lost, for tasks and threads that do not have this guard.
    fn loss(&self) -> Loss;

    /// Every node's vote in the latest round, in node order.
    fn votes(&self) -> Votes;

    /// What crashes of nodes may cost this grant.
    fn durability(&self) -> Tier;

    /// Completes once the lock is lost: at its deadline, or at the first proof. Cancel-safe.
    fn lost(&self) -> HeldFuture<'_, Lost>;

    /// Extends the lock to at least `ttl` from now. A failed extend never releases.
    ///
    /// # Errors
    /// If the lock is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    fn extend(&self, ttl: Duration) -> HeldFuture<'_, Result<(), ExtendError>>;

    /// Releases the lock and waits for a majority of the nodes to confirm.
    ///
    /// # Errors
    /// If the lock had been lost before, or if no majority confirmed.
    fn release(self: Box<Self>) -> HeldFuture<'static, Result<(), ReleaseError>>;
}

/// What follows from [`Held`], for every guard and for `dyn Held`.
pub trait HeldExt: Held {
    /// Runs `work` and drops it when the lock is lost. The future that it returns is `Send`, so
    /// that a function generic over `H: Held` can be spawned.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// use ringfence::{Held, HeldExt, Lost};
    ///
    /// async fn under<H: Held>(guard: H) -> Result<u32, Lost> {
    ///     guard.run(async { 42 }).await
    /// }
    ///
    /// let guard = locks.rw_lock("config").read().await?;
    /// assert_eq!(tokio::spawn(under(guard)).await?, Ok(42));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the lock is lost. The work was stopped at its latest await.
    fn run<F>(&self, work: F) -> impl Future<Output = Result<F::Output, Lost>> + Send
    where
        F: Future + Send,
        F::Output: Send,
    {
        until_lost(self.lost(), work)
    }
}

impl<H: Held + ?Sized> HeldExt for H {}

/// Only the guards of this crate are `Held`.
pub(super) mod sealed {
    pub trait Sealed {}
}

/// Polls `work` until it is done or `lost` completes. A loss that is known goes first, so that no
/// work goes on after it.
pub(super) async fn until_lost<T>(
    lost: impl Future<Output = Lost>,
    work: impl Future<Output = T>,
) -> Result<T, Lost> {
    tokio::select! {
        biased;
        why = lost => Err(why),
        done = work => Ok(done),
    }
}
