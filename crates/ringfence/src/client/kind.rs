//! The kinds of locks as types, and the terms on which each can be taken. The kind of a [`Lock`](crate::Lock) decides how it is taken, and
//! that of a [`Guard`](crate::Guard) what the guard can do. Programs rarely name them: there are
//! the aliases [`RwLock`], [`ReadGuard`](crate::ReadGuard) and so on.

use std::time::Duration;

use sealed::Sealed;

use crate::message::Kind as ClaimKind;
use crate::observation::LockKind;

use super::Locks;
use super::error::AcquireError;
use super::guard::{Guard, PlainGuard, ReadGuard};
pub use super::held::HeldFuture;
use super::lock::{Lock, LockTerms};
use super::owner::Owner;

/// A kind of lock. Only this crate implements it.
pub trait Kind: Sealed {}

/// A kind whose grants have a fence: all but [`Plain`].
pub trait Fenced: Kind {}

/// A kind that an [`Owner`](crate::Owner) can take again while it holds it.
pub trait Reentrant: Fenced {}

/// A kind that is taken in one way, and not as reader or writer: all but [`Shared`].
pub trait OneWay: Kind {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $($of:ident)+ = $lock:literal, $guard:literal, $fenced:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $kind {}

        impl Sealed for $kind {
            const LOCK: &'static str = $lock;
            const GUARD: &'static str = $guard;
            const FENCED: bool = $fenced;
        }

        $(impl $of for $kind {})+
    )*};
}

kinds! {
    /// One holder at a time: a mutex, several names at once, or the writer of a read-write lock.
    Exclusive: Kind OneWay Fenced Reentrant = "Lock", "Guard", true;
    /// Many readers: a lock for readers and writers, or the share of one reader.
    Shared: Kind Fenced Reentrant = "RwLock", "ReadGuard", true;
    /// A semaphore, or one of its permits.
    Permit: Kind OneWay Fenced = "Semaphore", "SemaphoreGuard", true;
    /// An election, or the lead in it.
    Lead: Kind OneWay Fenced = "Election", "Leadership", true;
    /// The original Redlock, which has no fence.
    Plain: Kind OneWay = "PlainLock", "PlainGuard", false;
}

/// A lock for many readers or one writer, not yet taken. Made by [`Locks::rw_lock`].
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
pub type RwLock = Lock<Shared>;

/// A plain Redlock, not yet taken: no fence, no queue, no side records. Made by
/// [`Locks::plain_mutex`].
///
/// While another client holds it, a caller that waits tries again with growing pauses.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::Locks::connect("memory:").await?;
/// let guard = locks.plain_mutex("orders:42").lock().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type PlainLock = Lock<Plain>;

impl Locks {
    /// The lock `name` for many readers or one writer. The writer excludes, and is excluded by,
    /// [`mutex`](Self::mutex) and [`multi`](Self::multi) of the same name.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        let mut terms = LockTerms::new(self, [name]);
        terms.taken_as = Some(LockKind::Write);
        Lock::new(terms)
    }

    /// The exclusive lock `name` as the original Redlock has it: no fence, no side records.
    ///
    /// It excludes and is excluded by [`mutex`](Self::mutex), but raises no fence: do not use one
    /// name both ways where the fence matters.
    pub fn plain_mutex(&self, name: impl AsRef<str>) -> PlainLock {
        let mut terms = LockTerms::new(self, [name]);
        terms.kind = ClaimKind::Plain;
        Lock::new(terms)
    }
}

impl PlainLock {
    /// Takes the lock, waiting while another client holds it. See [`Lock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.taken().await
    }

    /// Takes the lock if it is free. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    pub async fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.taken_at_once().await
    }
}

impl RwLock {
    /// Takes a share. Waits while a writer holds the lock or is ahead in the queue. See
    /// [`Lock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        let terms = self.terms.shared();
        terms.take(terms.wait).await.map(Guard::new)
    }

    /// Takes a share if no writer holds the lock or waits for it. See [`Lock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if a writer does.
    pub async fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        let terms = self.terms.shared();
        terms.take(Some(Duration::ZERO)).await.map(Guard::new)
    }

    /// Takes the lock alone, waiting for readers and writers. See [`Lock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn write(&self) -> Result<Guard, AcquireError> {
        self.terms.take(self.terms.wait).await.map(Guard::new)
    }

    /// Takes the lock alone if no client holds it or waits for it. See [`Lock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client does.
    pub async fn try_write(&self) -> Result<Guard, AcquireError> {
        self.terms.take(Some(Duration::ZERO)).await.map(Guard::new)
    }
}

impl<K: Kind> Lock<K> {
    /// How long the nodes keep the lock unless its holder renews it. Default: the client's, which
    /// is 10 s. See [`Locks::longest_ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.terms.ttl = ttl;
        self
    }

    /// How long to wait while another client holds the lock; `None` is without a limit. Default:
    /// the client's, which is without a limit. A wait without a limit also covers a quarantine (the nodes are new or were
    /// restarted: about 37 s), and a warning is traced that says for how long.
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.terms.wait = wait.into();
        self
    }

    /// Whether the lock renews itself while its guard lives. Default: the client's, which is yes.
    pub fn renew(mut self, renew: bool) -> Self {
        self.terms.renew = renew;
        self
    }

    /// A grant with less time left than this is undone and not returned. Default: a tenth of the
    /// TTL.
    pub fn min_validity(mut self, min_validity: Duration) -> Self {
        self.terms.min_validity = Some(min_validity);
        self
    }

    /// For how long it may be held in all, renewals included; `None` lifts the bound. Default: the
    /// client's, which is one hour, or the TTL if that is longer, because a holder that hangs would otherwise hold for
    /// ever; an election has no bound.
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.terms.max_hold = Some(max_hold.into());
        self
    }

    /// At most this many attempts. Default as many as fit into the wait.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.terms.attempts = Some(attempts);
        self
    }

    /// How long to go on while no majority of the nodes answers. Default: the client's, which is
    /// 15 s, or the wait if that is shorter.
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.terms.no_quorum_after = span;
        self
    }
}

impl<K: Fenced> Lock<K> {
    /// The holder's label, for people. Default: the client's label.
    pub fn label(mut self, label: &str) -> Self {
        self.terms.label = Some(label.to_owned());
        self
    }

    /// After a holder that was lost (crashed, cut off) no other client gets the lock for this much
    /// longer, so that requests of that holder can end. A release in time frees the lock at once.
    /// Default: zero. Together with the TTL it may be at most the longest TTL.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.terms.lock_delay = delay;
        self
    }
}

impl<K: Reentrant> Lock<K> {
    /// Takes it for `owner`, which can take it again while it holds it: all its guards share one
    /// fence and deadline, on the terms of the first, and the last guard releases the lock.
    /// Default: no owner, and a caller that takes the lock twice waits for itself. What an owner
    /// takes again must have the same names: see [`Owner`].
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.terms.owner = Some(owner.clone());
        self
    }
}

impl Lock {
    /// If it is released sooner than this after the grant, no other client gets the lock until
    /// then: for short jobs that machines with different clocks would start twice. Default: zero. A
    /// holder that is lost frees the lock with its TTL all the same.
    ///
    /// If no majority of the nodes receives the release, the client sends it again when they are
    /// back, also after the TTL, for as long as the client lives. A node that another client holds
    /// by then is left alone. [`Locks::close`] waits at most the TTL for that.
    pub fn hold_at_least(mut self, span: Duration) -> Self {
        self.terms.hold_at_least = span;
        self
    }
}

/// Only the kinds of this crate are kinds.
mod sealed {
    use std::fmt::Debug;

    pub trait Sealed: Debug + Clone + Send + Sync + Unpin + 'static {
        /// The name of the lock's type, for `Debug`.
        const LOCK: &'static str;
        /// The same for its guard.
        const GUARD: &'static str;
        /// Whether it is a [`Fenced`](super::Fenced) kind.
        const FENCED: bool;
    }
}
