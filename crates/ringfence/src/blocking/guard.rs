//! A lock that is held, without async. It hands on to the async guard, and blocks where that waits.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::hold_work::WorkUnder;
use crate::client::kind::{Exclusive, Fenced, Kind, Lead, Permit, Plain, Shared};
use crate::client::{self, ExtendError, Receipt, ReleaseError, Votes, WorkDone};
use crate::clock::Timestamp;
use crate::node::Tier;
use crate::protocol::Lost;
use crate::token::Token;

use super::Engine;

/// A lock that is held. See [`crate::Guard`], which has the same methods.
#[must_use = "dropping the guard releases the lock"]
// The order matters: the guard is dropped, and its release begun, before the engine goes.
pub struct Guard<K: Kind = Exclusive> {
    pub(super) guard: client::Guard<K>,
    pub(super) engine: Arc<Engine>,
}

/// A share of a lock. See [`crate::ReadGuard`].
pub type ReadGuard = Guard<Shared>;
/// A permit that is held. See [`crate::SemaphoreGuard`].
pub type SemaphoreGuard = Guard<Permit>;
/// The lead of an election. See [`crate::Leadership`].
pub type Leadership = Guard<Lead>;
/// A plain Redlock that is held. See [`crate::PlainGuard`].
pub type PlainGuard = Guard<Plain>;

impl<K: Kind> Guard<K> {
    /// The name, or the names separated by commas.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// Checks on the local clock that this is still held. See [`crate::Guard::check`].
    ///
    /// # Errors
    /// Why it is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.guard.check()
    }

    /// The time until the deadline; zero once it is lost. Exact across a suspend.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// The moment until which this is certainly held, unless it is extended. See
    /// [`crate::Guard::deadline`].
    pub fn deadline(&self) -> Instant {
        self.guard.deadline()
    }

    /// The deadline on the client's own clock, which counts suspend. See
    /// [`crate::Guard::exact_deadline`].
    pub fn exact_deadline(&self) -> Timestamp {
        self.guard.exact_deadline()
    }

    /// The signal that the lock is lost, for threads that do not have this guard. See
    /// [`crate::Guard::loss`].
    pub fn loss(&self) -> Loss {
        Loss {
            loss: self.guard.loss(),
            engine: Arc::clone(&self.engine),
        }
    }

    /// Every node's vote in the latest round, in node order.
    pub fn votes(&self) -> Votes {
        self.guard.votes()
    }

    /// What crashes of nodes may cost this grant. See [`crate::Guard::durability`].
    pub fn durability(&self) -> Tier {
        self.guard.durability()
    }

    /// Extends it to at least `ttl` from now. See [`crate::Guard::extend`].
    ///
    /// # Errors
    /// If it is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    #[track_caller]
    pub fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.engine.run(self.guard.extend(ttl))
    }

    /// Blocks until it is lost. See [`crate::Guard::lost`].
    #[track_caller]
    pub fn lost(&self) -> Lost {
        self.engine.run(self.guard.lost())
    }

    /// Releases it and waits for a majority of the nodes to confirm. See
    /// [`crate::Guard::release`].
    ///
    /// # Errors
    /// If it had been lost before, or if no majority confirmed.
    #[track_caller]
    pub fn release(self) -> Result<(), ReleaseError> {
        self.engine.run(self.guard.release())
    }

    /// Does `work` under this guard and releases it.
    #[track_caller]
    pub(super) fn hold<T>(self, work: impl FnOnce(&Self) -> T) -> WorkDone<T> {
        let under = WorkUnder::begin(self.guard.held_lock());
        let done = work(&self);
        drop(under);
        let held = self.check();
        WorkDone::new(done, held, self.release())
    }
}

impl<K: Fenced> Guard<K> {
    /// The fence: send it with every write, so that the resource can refuse a lower one. See
    /// [`crate::Guard::fence`].
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// The token that identifies this hold. A client that has it can release the lock.
    pub fn token(&self) -> &Token {
        self.guard.token()
    }

    /// What another process needs to extend or release this lock. See [`crate::Guard::receipt`].
    pub fn receipt(&self) -> Receipt {
        self.guard.receipt()
    }

    /// Leaves the lock behind: stops renewing it and does not release it. See
    /// [`crate::Guard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }
}

impl Guard {
    /// Shares the lock with readers from now on. See [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// If the lock is lost.
    #[track_caller]
    pub fn downgrade(self) -> Result<ReadGuard, Lost> {
        self.engine.take(self.guard.downgrade())
    }
}

impl SemaphoreGuard {
    /// The number of the slot, from 0 on. See [`crate::SemaphoreGuard::slot`].
    pub fn slot(&self) -> u32 {
        self.guard.slot()
    }
}

impl Leadership {
    /// The term: higher than that of every earlier leader. See [`crate::Leadership::term`].
    pub fn term(&self) -> u64 {
        self.guard.term()
    }

    /// Resigns: the next candidate in the queue is elected at once. See
    /// [`crate::Leadership::resign`].
    ///
    /// # Errors
    /// If the lead had been lost before, or if no majority of the nodes confirmed.
    #[track_caller]
    pub fn resign(self) -> Result<(), ReleaseError> {
        self.release()
    }
}

/// Tells when a lock is lost. See [`crate::Loss`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = ringfence::blocking::Locks::connect("memory:")?;
/// let guard = locks.mutex("orders:42").lock()?;
/// let loss = guard.loss();
/// let worker = std::thread::spawn(move || {
///     let mut parts = 0;
///     while parts < 10 && !loss.is_lost() {
///         parts += 1; // one part of the work
///     }
///     parts
/// });
/// assert_eq!(worker.join().unwrap(), 10);
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a signal does nothing unless it is asked"]
pub struct Loss {
    loss: client::Loss,
    engine: Arc<Engine>,
}

impl Loss {
    /// Whether the lock is lost, by the local clock.
    pub fn is_lost(&self) -> bool {
        self.loss.is_lost()
    }

    /// Why the lock is lost; `None` while it is held.
    pub fn reason(&self) -> Option<Lost> {
        self.loss.reason()
    }

    /// Checks on the local clock that the lock is still held.
    ///
    /// # Errors
    /// Why the lock is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.loss.check()
    }

    /// Blocks until the lock is lost.
    #[track_caller]
    pub fn lost(&self) -> Lost {
        self.engine.run(self.loss.lost())
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.loss.fmt(f)
    }
}

// As the async guard: a panic in the work leaves it intact.
impl<K: Kind> UnwindSafe for Guard<K> {}
impl<K: Kind> RefUnwindSafe for Guard<K> {}

impl<K: Kind> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
