//! The locks of all kinds and latches, without async.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::kind::{
    Exclusive, Fenced, Kind, Lead, OneWay, Permit, Plain, Reentrant, Shared,
};
use crate::client::{
    self, AcquireError, Arrival, ConfigError, ExtendError, HoldError, InspectError, LatchError,
    Leader, LeaderChange, Owner, Receipt, ReleaseReceiptError, SemaphoreInspection, WorkDone,
};

use super::guard::{Guard, Leadership, PlainGuard, ReadGuard, SemaphoreGuard};
use super::{Engine, Locks};

/// A lock, not yet taken. See [`crate::Lock`].
#[derive(Clone)]
#[must_use = "a lock does nothing until it is taken"]
pub struct Lock<K: Kind = Exclusive> {
    engine: Arc<Engine>,
    lock: client::Lock<K>,
}

/// A lock for many readers or one writer, not yet taken. See [`crate::RwLock`].
pub type RwLock = Lock<Shared>;
/// A semaphore, of which no permit has been taken yet. See [`crate::Semaphore`].
pub type Semaphore = Lock<Permit>;
/// An election. See [`crate::Election`].
pub type Election = Lock<Lead>;
/// A plain Redlock, not yet taken. See [`crate::PlainLock`].
pub type PlainLock = Lock<Plain>;

impl Locks {
    /// The exclusive lock `name`, with a fence. See [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(self.engine.locks.mutex(name))
    }

    /// The exclusive locks `names`, all at once or none. See [`crate::Locks::multi`].
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Lock {
        self.lock(self.engine.locks.multi(names))
    }

    /// The lock `name` for many readers or one writer. See [`crate::Locks::rw_lock`].
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        self.lock(self.engine.locks.rw_lock(name))
    }

    /// The semaphore `name`, of which `permits` can be held at once. See
    /// [`crate::Locks::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        self.lock(self.engine.locks.semaphore(name, permits))
    }

    /// The election `name`: one leader at a time. See [`crate::Locks::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        self.lock(self.engine.locks.election(name))
    }

    /// The exclusive lock `name` without a fence. See [`crate::Locks::plain_mutex`].
    pub fn plain_mutex(&self, name: impl AsRef<str>) -> PlainLock {
        self.lock(self.engine.locks.plain_mutex(name))
    }

    /// The latch `name`, which opens once `count` parties have arrived. See
    /// [`crate::Locks::latch`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch {
            engine: Arc::clone(&self.engine),
            latch: self.engine.locks.latch(name, count),
        }
    }

    fn lock<K: Kind>(&self, lock: client::Lock<K>) -> Lock<K> {
        let engine = Arc::clone(&self.engine);
        Lock { engine, lock }
    }
}

impl<K: Kind> Lock<K> {
    fn with(mut self, set: impl FnOnce(client::Lock<K>) -> client::Lock<K>) -> Self {
        self.lock = set(self.lock);
        self
    }

    /// How long the nodes keep the lock unless it is renewed. See [`crate::Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|lock| lock.ttl(ttl))
    }

    /// How long to wait while other clients hold the lock. See [`crate::Lock::wait`].
    pub fn wait(self, wait: impl Into<Option<Duration>>) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// Whether it renews itself while its guard lives. See [`crate::Lock::renew`].
    pub fn renew(self, renew: bool) -> Self {
        self.with(|lock| lock.renew(renew))
    }

    /// A grant with less time left than this is undone. See [`crate::Lock::min_validity`].
    pub fn min_validity(self, min_validity: Duration) -> Self {
        self.with(|lock| lock.min_validity(min_validity))
    }

    /// How long it may be held in all. See [`crate::Lock::max_hold`].
    pub fn max_hold(self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.with(|lock| lock.max_hold(max_hold))
    }

    /// The largest number of attempts. See [`crate::Lock::attempts`].
    pub fn attempts(self, attempts: u32) -> Self {
        self.with(|lock| lock.attempts(attempts))
    }

    /// How long to go on while no majority of the nodes answers. See [`crate::Lock::no_quorum_after`].
    pub fn no_quorum_after(self, span: Duration) -> Self {
        self.with(|lock| lock.no_quorum_after(span))
    }
}

impl<K: Fenced> Lock<K> {
    /// The holder's label, for people. See [`crate::Lock::label`].
    pub fn label(self, label: &str) -> Self {
        self.with(|lock| lock.label(label))
    }

    /// How long the nodes keep it from others after a lost holder. See [`crate::Lock::lock_delay`].
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with(|lock| lock.lock_delay(delay))
    }

    /// Extends a lock that [`Guard::leave`] left behind. See [`crate::Lock::extend_receipt`].
    ///
    /// # Errors
    /// If the lock is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    #[track_caller]
    pub fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.engine.run(self.lock.extend_receipt(receipt, ttl))
    }

    /// Releases a lock that [`Guard::leave`] left behind. See [`crate::Lock::release_receipt`].
    ///
    /// # Errors
    /// If the lock was not held any more, or if no majority of the nodes confirmed.
    #[track_caller]
    pub fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.engine.run(self.lock.release_receipt(receipt))
    }
}

impl<K: Reentrant> Lock<K> {
    /// Takes it for `owner`, which can take it again. See [`crate::Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Self {
        self.with(|lock| lock.owner(owner))
    }
}

impl Lock {
    /// How long after the grant no other client gets it. See [`crate::Lock::hold_at_least`].
    pub fn hold_at_least(self, span: Duration) -> Self {
        self.with(|lock| lock.hold_at_least(span))
    }
}

impl Lock {
    /// Takes the lock, waiting while another client holds it. See [`crate::Lock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn lock(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.lock())
    }

    /// Takes the lock if it is free. See [`crate::Lock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.try_lock())
    }
}

impl PlainLock {
    /// Takes the lock, waiting while another client holds it. See [`crate::PlainLock::lock`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn lock(&self) -> Result<PlainGuard, AcquireError> {
        self.engine.take(self.lock.lock())
    }

    /// Takes the lock if it is free. See [`crate::PlainLock::try_lock`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    #[track_caller]
    pub fn try_lock(&self) -> Result<PlainGuard, AcquireError> {
        self.engine.take(self.lock.try_lock())
    }
}

impl<K: OneWay> Lock<K> {
    /// Takes the lock, does `work`, and releases. Nothing can stop a thread from outside: work that
    /// takes long should call [`Guard::check`] now and then.
    ///
    /// `Ok` only if the lock was held until the work was done, as with [`crate::Lock::hold`], whatever
    /// the release finds after that. [`hold_to_end`](Self::hold_to_end) returns the output all the
    /// same.
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold<T>(&self, work: impl FnOnce(&Guard<K>) -> T) -> Result<T, HoldError> {
        self.hold_to_end(work)?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also if the lock was lost before the work was done.
    ///
    /// # Errors
    /// If the lock was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_to_end<T>(
        &self,
        work: impl FnOnce(&Guard<K>) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        let guard: Guard<K> = self.engine.take(self.lock.taken())?;
        Ok(guard.hold(work))
    }
}

impl RwLock {
    /// Takes a share, waiting while a writer holds the lock or is ahead in the queue. See
    /// [`crate::RwLock::read`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.engine.take(self.lock.read())
    }

    /// Takes a share if no writer holds the lock or waits for it. See
    /// [`crate::RwLock::try_read`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if a writer does.
    #[track_caller]
    pub fn try_read(&self) -> Result<ReadGuard, AcquireError> {
        self.engine.take(self.lock.try_read())
    }

    /// Takes the lock alone, waiting for readers and writers. See
    /// [`crate::RwLock::write`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn write(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.write())
    }

    /// Takes the lock alone if no client holds it or waits for it. See
    /// [`crate::RwLock::try_write`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client does.
    #[track_caller]
    pub fn try_write(&self) -> Result<Guard, AcquireError> {
        self.engine.take(self.lock.try_write())
    }

    /// Takes a share, does `work`, and releases. See [`Lock::hold`].
    ///
    /// # Errors
    /// If the share was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold_read<T>(&self, work: impl FnOnce(&ReadGuard) -> T) -> Result<T, HoldError> {
        self.hold_read_to_end(work)?.held()
    }

    /// As [`hold_read`](Self::hold_read), but returns the output also if the share was lost before the work was done.
    ///
    /// # Errors
    /// If the share was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_read_to_end<T>(
        &self,
        work: impl FnOnce(&ReadGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        Ok(self.read()?.hold(work))
    }

    /// Takes the lock alone, does `work`, and releases. See [`Lock::hold`].
    ///
    /// # Errors
    /// If the lock was not granted, or if it was lost before the work was done.
    #[track_caller]
    pub fn hold_write<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, HoldError> {
        self.hold_write_to_end(work)?.held()
    }

    /// As [`hold_write`](Self::hold_write), but returns the output also if the lock was lost before the work was done.
    ///
    /// # Errors
    /// If the lock was not granted. The work did not begin.
    #[track_caller]
    pub fn hold_write_to_end<T>(
        &self,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        Ok(self.write()?.hold(work))
    }
}

impl Semaphore {
    /// Takes a permit, waiting in the queue while none is free. See [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.engine.take(self.lock.acquire())
    }

    /// Takes a permit if one is free. See [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// [`AcquireError::Full`] if none is free.
    #[track_caller]
    pub fn try_acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.engine.take(self.lock.try_acquire())
    }

    /// The holder of each slot and the number of waiters, as a majority of the nodes sees it. See
    /// [`crate::Semaphore::inspect`].
    ///
    /// # Errors
    /// If no majority of the nodes answers, or if the name is not allowed.
    #[track_caller]
    pub fn inspect(&self) -> Result<SemaphoreInspection, InspectError> {
        self.engine.run(self.lock.inspect())
    }
}

impl Election {
    /// Stands for election and blocks until elected. See [`crate::Election::campaign`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.engine.take(self.lock.campaign())
    }

    /// Leads if no other candidate leads or waits. See [`crate::Election::try_campaign`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another candidate leads.
    #[track_caller]
    pub fn try_campaign(&self) -> Result<Leadership, AcquireError> {
        self.engine.take(self.lock.try_campaign())
    }

    /// Blocks until elected, does `work`, and resigns. Nothing can stop a thread from outside: work
    /// that takes long should call [`Leadership::check`] now and then. See
    /// [`crate::Election::lead`].
    ///
    /// # Errors
    /// If this candidate was not elected, or if it was lost before the work was done.
    #[track_caller]
    pub fn lead<T>(&self, work: impl FnOnce(&Leadership) -> T) -> Result<T, HoldError> {
        self.hold(work)
    }

    /// As [`lead`](Self::lead), but returns the output also if the lead was lost before the work was done.
    ///
    /// # Errors
    /// If the lead was not granted. The work did not begin.
    #[track_caller]
    pub fn lead_to_end<T>(
        &self,
        work: impl FnOnce(&Leadership) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        self.hold_to_end(work)
    }

    /// The present leader, as a majority of the nodes sees it. See [`crate::Election::leader`].
    ///
    /// # Errors
    /// If too few nodes answer to decide, or if the name is not allowed.
    #[track_caller]
    pub fn leader(&self) -> Result<Option<Leader>, InspectError> {
        self.engine.run(self.lock.leader())
    }

    /// Watches who leads, without standing. See [`crate::Election::observe`].
    ///
    /// # Errors
    /// If the name is not allowed. Nothing was sent.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        Ok(Observer {
            observer: self.lock.observe()?,
            engine: Arc::clone(&self.engine),
        })
    }
}

impl<K: Kind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

/// Watches an election. See [`crate::observe::Observer`].
#[derive(Debug)]
pub struct Observer {
    observer: client::Observer,
    engine: Arc<Engine>,
}

impl Observer {
    /// Blocks until something changes: the present state at first, then each leader, and when there
    /// is none. `None` once the client is closed. See [`crate::observe::Observer::next`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's adapters would hide that each step blocks"
    )]
    #[track_caller]
    pub fn next(&mut self) -> Option<LeaderChange> {
        self.engine.run(self.observer.next())
    }

    /// Blocks until there is a leader that was not reported yet. See
    /// [`crate::observe::Observer::next_leader`].
    #[track_caller]
    pub fn next_leader(&mut self) -> Option<Leader> {
        self.engine.run(self.observer.next_leader())
    }
}

/// A latch. See [`crate::Latch`].
#[derive(Debug, Clone)]
#[must_use = "a latch does nothing until `arrive` or `opened` is called"]
pub struct Latch {
    engine: Arc<Engine>,
    latch: client::Latch,
}

impl Latch {
    /// The name of the party that arrives. Default: a party of its own. See
    /// [`crate::Latch::party`].
    pub fn party(mut self, party: &str) -> Self {
        self.latch = self.latch.party(party);
        self
    }

    /// How long the nodes keep the latch after the last arrival. Default: one hour. See
    /// [`crate::Latch::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.latch = self.latch.ttl(ttl);
        self
    }

    /// How long [`opened`](Self::opened) waits; `None` is without a limit. See
    /// [`crate::Latch::wait`].
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.latch = self.latch.wait(wait);
        self
    }

    /// How long to go on while no majority of the nodes answers. Default: 15 s. See
    /// [`crate::Latch::no_quorum_after`].
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.latch = self.latch.no_quorum_after(span);
        self
    }

    /// Arrives, without waiting for other parties. See [`crate::Latch::arrive`].
    ///
    /// # Errors
    /// If no majority of the nodes has recorded the arrival.
    #[track_caller]
    pub fn arrive(&self) -> Result<Arrival, LatchError> {
        self.engine.run(self.latch.arrive())
    }

    /// Blocks until the latch is open. See [`crate::Latch::opened`].
    ///
    /// # Errors
    /// If the latch is still shut when the wait is over, or if no majority of the nodes answers.
    #[track_caller]
    pub fn opened(&self) -> Result<(), LatchError> {
        self.engine.run(self.latch.opened())
    }
}
