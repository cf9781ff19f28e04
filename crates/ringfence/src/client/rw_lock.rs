//! Many readers, or one writer.

use std::fmt;
use std::time::Duration;

use crate::observation::LockKind;
use crate::token::Token;

use super::error::{AcquireError, ExtendError};
use super::guard::Guard;
use super::held::{held, impl_held};
use super::lock::Lock;
use super::receipt::{Receipt, ReleaseReceiptError};
use super::terms::terms;

/// A lock for many readers or one writer, not yet taken. Made by
/// [`Locks::rw_lock`](super::Locks::rw_lock).
///
/// First come, first served: readers that come later wait behind a writer in the queue.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::Locks::connect("memory:").await?;
/// let config = locks.rw_lock("config");
/// let (one, other) = (config.read().await?, config.read().await?);
/// one.release().await?;
/// other.release().await?;
/// let writer = config.write().await?;
/// let reader = writer.downgrade().await?; // no writer came in between
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until `read` or `write` is awaited"]
pub struct RwLock(Lock);

/// A share of a lock: other readers may hold it at the same time, and no writer does.
///
/// It renews itself unless [`RwLock::renew`] is off; dropping it releases in the background, like a
/// [`Guard`].
#[must_use = "dropping the guard releases the lock"]
pub struct ReadGuard(Guard);

impl RwLock {
    pub(super) fn new(mut lock: Lock) -> Self {
        lock.taken_as = Some(LockKind::Write);
        Self(lock)
    }

    terms! {
        0:
        label,
        renew,
        max_hold,
        owner,
        lock_delay,
    }

    /// Takes a share. Waits while a writer holds the lock or is ahead in the queue. See
    /// [`Lock::lock`].
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.0.shared().lock().await.map(ReadGuard)
    }

    /// Takes a share if no writer holds the lock or waits for it. See [`Lock::try_lock`].
    pub async fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.0.shared().try_lock().await.map(ReadGuard)
    }

    /// Takes the lock alone, waiting for readers and writers. See [`Lock::lock`].
    pub async fn write(&self) -> Result<Guard, AcquireError> {
        self.0.lock().await
    }

    /// Takes the lock alone if no client holds it or waits for it. See [`Lock::try_lock`].
    pub async fn try_write(&self) -> Result<Guard, AcquireError> {
        self.0.try_lock().await
    }

    /// Extends what [`ReadGuard::leave`] or [`Guard::leave`] left behind. See
    /// [`Lock::extend_receipt`].
    ///
    /// # Errors
    /// If the lock is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    pub async fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.0.extend_receipt(receipt, ttl).await
    }

    /// Releases what [`ReadGuard::leave`] or [`Guard::leave`] left behind. See
    /// [`Lock::release_receipt`].
    ///
    /// # Errors
    /// If the lock was not held any more, or if no majority of the nodes confirmed.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.0.release_receipt(receipt).await
    }
}

impl ReadGuard {
    pub(super) fn new(guard: Guard) -> Self {
        Self(guard)
    }

    /// The fence: higher than that of every earlier writer, and lower than that of every later one.
    /// Readers of one time may have any order among themselves.
    pub fn fence(&self) -> u64 {
        self.0.fence()
    }

    /// See [`Guard::token`].
    pub fn token(&self) -> &Token {
        self.0.token()
    }

    /// See [`Guard::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// What another process needs to extend or release this share.
    pub fn receipt(&self) -> Receipt {
        self.0.receipt()
    }

    /// Leaves the share behind: stops renewing it and does not release it. See [`Guard::leave`].
    pub fn leave(self) -> Receipt {
        self.0.leave()
    }

    held!(0);
}

impl_held!(ReadGuard, guard => Some(guard.fence()));

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard")
            .field("name", &self.0.name())
            .field("fence", &self.fence())
            .field("token", self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
