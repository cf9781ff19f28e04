//! A lock that is held, for as long as the guard lives and the nodes agree.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node::Tier;
use crate::protocol::{ExtensionVerdict, Lost, ReleaseVerdict};
use crate::runtime::hold::HeldLock;
use crate::time::Timestamp;
use crate::token::Token;

use super::Locks;
use super::error::{ExtendError, ReleaseError};
use super::held::{Held, HeldFuture, sealed, until_lost};
use super::hold_work::under;
use super::kind::{Exclusive, Fenced, Kind, Lead, Permit, Plain, Shared};
use super::lock::whole_millis;
use super::loss::Loss;
use super::owner::{Parting, Share};
use super::receipt::Receipt;
use super::votes::Votes;

/// A lock that is held. It renews itself unless [`Lock::renew`](crate::Lock::renew) is off;
/// dropping it releases the lock without blocking and without needing a tokio runtime.
///
/// The lock is also kept while code blocks the tokio runtime, if a majority of the nodes answers: a
/// thread of the process renews it then, over connections of its own. Call [`check`](Self::check)
/// between the steps of such code, since [`lost`](Self::lost) cannot stop it, and prefer
/// `tokio::task::spawn_blocking`.
///
/// The release is written to the nodes' connections before the drop returns, as far as that goes
/// without waiting, so a guard dropped at the end of `main` does not stay locked until its TTL.
/// What cannot be written then (a node that is being reconnected, a full socket, a connection made
/// from a [`redis::Client`](https://docs.rs/redis) that only the client library can make) is sent
/// in the background, if the process lives on. [`release`](Self::release) and [`Locks::close`] wait
/// for the nodes' answers.
///
/// The kind `K` says what is held: see [`ReadGuard`], [`SemaphoreGuard`], [`Leadership`] and
/// [`PlainGuard`]. A function that takes any of them uses [`Held`], or is generic over
/// [`Kind`](crate::kind::Kind).
#[must_use = "dropping the guard releases the lock"]
pub struct Guard<K: Kind = Exclusive> {
    state: GuardState,
    kind: PhantomData<K>,
}

/// A share of a lock: other readers may hold it at the same time, and no writer does.
///
/// Its fence is higher than that of every earlier writer, and lower than that of every later one.
/// Readers of one time may have any order among themselves.
pub type ReadGuard = Guard<Shared>;

/// A permit of a semaphore that is held. Its fence is higher than that of every earlier grant of
/// its [slot](Guard::slot). It says nothing about the other slots.
pub type SemaphoreGuard = Guard<Permit>;

/// The lead of an election. It renews itself until it is lost or resigned; dropping it resigns in
/// the background. Its fence is the [term](Guard::term).
pub type Leadership = Guard<Lead>;

/// A plain Redlock that is held. It has no fence: nothing can refuse the late write of a holder
/// that paused for too long. So it has none of the methods under `impl<K: Fenced>` below, which this
/// page lists with the others:
///
/// ```compile_fail
/// fn fence(guard: &ringfence::PlainGuard) -> u64 {
///     guard.fence()
/// }
/// ```
pub type PlainGuard = Guard<Plain>;

/// What a guard of any kind has.
pub(super) struct GuardState {
    pub(super) hold: Arc<HeldLock>,
    pub(super) locks: Locks,
    pub(super) name: Arc<str>,
    /// Its part in the hold, if an owner has several guards.
    pub(super) share: Option<Share>,
    /// Which permit of a semaphore it is.
    pub(super) slot: u32,
    /// It was downgraded while other guards of its owner held on.
    pub(super) reads: bool,
    /// Released or left behind: dropping it has nothing to do any more.
    pub(super) done: bool,
}

impl GuardState {
    pub(super) fn new(locks: &Locks, hold: Arc<HeldLock>, name: Arc<str>) -> Self {
        Self {
            hold,
            locks: locks.clone(),
            name,
            share: None,
            slot: 0,
            reads: false,
            done: false,
        }
    }

    /// The same, as one of several guards.
    pub(super) fn shared(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    /// What it holds: after a downgrade of its owner's guards, their share.
    pub(super) fn hold(&self) -> &Arc<HeldLock> {
        let shared = self.share.as_ref().filter(|_| self.reads);
        shared.and_then(Share::shared).unwrap_or(&self.hold)
    }

    /// Takes this guard out of those that share its hold. What is left to do is this guard's.
    fn part(&mut self, leave: bool) -> Parting {
        match self.share.take() {
            Some(share) => {
                let parting = share.part(self.reads, leave);
                if let Some(shared) = share.shared() {
                    self.hold = Arc::clone(shared);
                }
                parting
            }
            None if leave => Parting::LastLeaves,
            None => Parting::Last,
        }
    }

    /// In a forked child: keeps everything that it has, since to drop that may lock a mutex.
    fn leak(&mut self) {
        std::mem::forget((
            Arc::clone(&self.hold),
            self.locks.clone(),
            self.share.take(),
        ));
    }
}

impl Drop for GuardState {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        if !self.locks.is_ours() {
            return self.leak();
        }
        match self.part(false) {
            Parting::Last => {
                self.hold.release();
                // Perhaps nothing else of this process runs any more.
                self.locks.shared.runtime.sender.flush();
            }
            Parting::LastLeaves => {
                self.hold.stop();
            }
            Parting::OthersHold => {}
        }
    }
}

impl<K: Kind> Guard<K> {
    pub(super) fn new(state: GuardState) -> Self {
        let kind = PhantomData;
        Self { state, kind }
    }

    /// What it holds, for work under it.
    pub(crate) fn held_lock(&self) -> &Arc<HeldLock> {
        self.state.hold()
    }

    /// The name, or the names separated by commas.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Whether it is still held, by the local clock. An error once the deadline has passed or loss
    /// was proved. (A pause right after this call is what the fence is for.)
    ///
    /// # Errors
    /// Why it is lost.
    pub fn check(&self) -> Result<(), Lost> {
        if !self.state.locks.is_ours() {
            return Err(Lost::ForkedProcess);
        }
        loop {
            let hold = self.state.hold();
            let held = hold.check();
            // It may have become a share meanwhile.
            if held.is_ok() || Arc::ptr_eq(hold, self.state.hold()) {
                return held;
            }
        }
    }

    /// The signal that the lock is lost, for tasks and threads that do not have this guard.
    pub fn loss(&self) -> Loss {
        let share = self.state.share.clone().filter(|_| self.state.reads);
        let process = self.state.locks.runtime().process;
        Loss::new(&self.state.hold, share, process)
    }

    /// How long until the deadline; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        match self.state.locks.is_ours() {
            true => self.state.hold().remaining(),
            false => Duration::ZERO,
        }
    }

    /// The moment until which it is certainly held, unless it is extended. Never moves back while
    /// the machine is awake. Compare it with [`Instant::now`], or hand it to
    /// `tokio::time::timeout_at`.
    ///
    /// The clock of [`Instant`] stands still while the machine is suspended, and leases do not: a
    /// value that was read before a suspend is too late afterwards. [`remaining`](Self::remaining),
    /// [`check`](Self::check) and [`lost`](Self::lost) are exact across a suspend.
    pub fn deadline(&self) -> Instant {
        let clock = &self.state.locks.shared.runtime.sender.clock;
        clock.instant(self.exact_deadline())
    }

    /// The deadline on the client's own clock, which counts suspend: a value to compare with
    /// [`Clock::now`](crate::clock::Clock::now) and to hand to
    /// [`Clock::sleep_until`](crate::clock::Clock::sleep_until). Never moves back.
    pub fn exact_deadline(&self) -> Timestamp {
        match self.state.locks.is_ours() {
            true => self.state.hold().deadline(),
            false => Timestamp::ZERO,
        }
    }

    /// Extends it to at least `ttl` from now. A failed extend never releases.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.state.locks.own(self.extend_here(ttl)).await
    }

    async fn extend_here(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.state.locks.check_runtime()?;
        let most = self.state.locks.longest_ttl();
        let ttl = whole_millis(ttl);
        let delay = self.state.hold.policy().lock_delay;
        let settings = &self.state.locks.shared.settings;
        settings.check_lease(ttl, delay, most)?;
        loop {
            let hold = self.state.hold();
            let extended = extend_hold(hold, ttl, self.state.locks.node_names()).await;
            // It may have become a share meanwhile.
            if extended.is_ok() || Arc::ptr_eq(hold, self.state.hold()) {
                return extended.map(|_| ());
            }
        }
    }

    /// Completes once the lock is lost: at its deadline, or at the first proof. Cancel-safe.
    pub async fn lost(&self) -> Lost {
        self.loss().lost().await
    }

    /// Runs `work` and drops it when the lock is lost, at its deadline or at the first proof.
    ///
    /// The work is stopped at an await: code that does not await goes on until it does. The result
    /// of work that ends in time is returned; the lock stays held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// # async fn charge(_fence: u64) -> u32 { 7 }
    /// let guard = locks.mutex("orders:42").lock().await?;
    /// let receipt = guard.run(charge(guard.fence())).await?;
    /// # assert_eq!(receipt, 7);
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why the lock is lost. The work was stopped at its latest await.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        until_lost(self.lost(), under(self.state.hold(), work)).await
    }

    /// Every node's vote in the latest round, in node order.
    pub fn votes(&self) -> Votes {
        if !self.state.locks.is_ours() {
            return Votes::new(&[], []);
        }
        let nodes = &self.state.locks.shared.runtime.sender.nodes;
        Votes::new(self.state.locks.node_names(), self.state.hold().votes())
            .with_tiers(nodes.iter().map(|node| node.tier()))
    }

    /// What crashes of nodes may cost this grant: the tier of the best majority that holds it, as
    /// far as the nodes have answered. A round that brought no majority leaves
    /// [`Tier::BestEffort`].
    pub fn durability(&self) -> Tier {
        self.votes().durability().unwrap_or(Tier::BestEffort)
    }

    /// Releases the lock and waits for a majority of the nodes to confirm.
    ///
    /// # Errors
    /// If the lock had been lost before, so that another client may have held it during the work,
    /// or if no majority confirmed. An error never means that the work failed.
    ///
    /// While other guards of its owner hold on, only the count goes down.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let process = self.state.locks.runtime().process;
        let forked = || Err(ReleaseError::ForkedProcess);
        process.call(self.release_here(), forked).await
    }

    async fn release_here(mut self) -> Result<(), ReleaseError> {
        // Asked while it is counted: once it is not, the others may downgrade what they hold.
        let held = self.state.share.is_some().then(|| self.check());
        match self.state.part(false) {
            Parting::Last => {}
            Parting::OthersHold => {
                self.state.done = true;
                return held.unwrap_or(Ok(())).map_err(|_| ReleaseError::Expired);
            }
            Parting::LastLeaves => {
                self.state.done = true;
                self.state.hold.stop();
                return Ok(());
            }
        }
        // The renewal is stopped, and joined if one is under way.
        if let Some(renewal) = self.state.hold.stop_renewing() {
            renewal.verdict().await;
        }
        self.state.done = true;
        let Some(withdrawing) = self.state.hold.release() else {
            return Err(ReleaseError::Expired);
        };
        let in_time = self.state.hold.was_released_in_time();
        match release_result(withdrawing.verdict().await) {
            // The nodes still had it, but the holder could not count on that any more.
            Ok(()) if !in_time => Err(ReleaseError::Expired),
            released => released,
        }
    }
}

impl Guard {
    /// Shares the lock with readers from now on, without giving it up in between: the same token
    /// and fence, and readers may enter. There is no way back but to release and to lock again.
    ///
    /// From the moment it is called this is no exclusive lock any more, whatever the nodes answer
    /// or do not. `Err` if the lock is lost.
    ///
    /// While other guards of its [`Owner`](crate::Owner) hold the lock exclusively it stays
    /// exclusive, so that what they were promised holds. Readers enter when the last of those
    /// guards is released, dropped or downgraded.
    pub async fn downgrade(self) -> Result<ReadGuard, Lost> {
        let process = self.state.locks.runtime().process;
        let forked = || Err(Lost::ForkedProcess);
        process.call(self.downgrade_here(), forked).await
    }

    async fn downgrade_here(mut self) -> Result<ReadGuard, Lost> {
        if self.state.share.is_some() {
            return self.downgrade_share().await;
        }
        // As with a release: what is under way would count as exclusive.
        if let Some(renewal) = self.state.hold.stop_renewing() {
            renewal.verdict().await;
        }
        self.state.hold.check()?;
        self.state.done = true;
        let (hold, round) = self.state.hold.downgrade(|_| {});
        let name = Arc::clone(&self.state.name);
        let guard = ReadGuard::new(GuardState::new(&self.state.locks, hold, name));
        // Too few answers are no loss: whichever way a node holds it, no writer is there.
        round.verdict().await;
        guard.check()?;
        Ok(guard)
    }

    /// The same of one of several guards. A renewal that is under way is not joined, since it may
    /// be that of others: a node that has heard of the downgrade before refuses it.
    async fn downgrade_share(mut self) -> Result<ReadGuard, Lost> {
        self.check()?;
        self.state.reads = true;
        let round = self.state.share.as_ref().and_then(Share::read);
        let guard = ReadGuard::new(self.state);
        if let Some(round) = round {
            round.verdict().await;
        }
        guard.check()?;
        Ok(guard)
    }
}

impl<K: Fenced> Guard<K> {
    /// The fence: higher than that of every earlier grant of this name. Send it with every write,
    /// so that the resource can refuse a lower one.
    pub fn fence(&self) -> u64 {
        self.state.hold.id().ballot.get()
    }

    /// The token that identifies this hold. A client that has it can release the lock.
    pub fn token(&self) -> &Token {
        &self.state.hold.id().token
    }

    /// What another process needs to extend or release this lock.
    pub fn receipt(&self) -> Receipt {
        Receipt::new(self.state.hold())
    }

    /// Leaves the lock behind: stops renewing it and does not release it. It ends with its TTL
    /// unless a client that has the receipt extends or releases it.
    ///
    /// Where an owner has other guards of it, it is left behind when the last of them has gone.
    pub fn leave(mut self) -> Receipt {
        self.state.done = true;
        if !self.state.locks.is_ours() {
            self.state.leak();
        } else if self.state.part(true) != Parting::OthersHold {
            self.state.hold.stop();
        }
        self.receipt()
    }
}

impl Guard<Permit> {
    /// The number of the slot, from 0 on. No two holders have the same slot at once: use it to pick
    /// one of as many resources.
    pub fn slot(&self) -> u32 {
        self.state.slot
    }
}

impl Guard<Lead> {
    /// The term: higher than that of every earlier leader. It is the [fence](Self::fence): send it
    /// with every write, so that the resource can refuse a lower one.
    pub fn term(&self) -> u64 {
        self.fence()
    }

    /// Resigns: the next candidate in the wait queue is elected at once. The same as
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// If the lead had been lost before, or if no majority of the nodes confirmed.
    pub async fn resign(self) -> Result<(), ReleaseError> {
        self.release().await
    }
}

impl<K: Kind> sealed::Sealed for Guard<K> {}

impl<K: Kind> Held for Guard<K> {
    fn name(&self) -> &str {
        self.name()
    }

    fn fence(&self) -> Option<u64> {
        K::FENCED.then(|| self.state.hold.id().ballot.get())
    }

    fn deadline(&self) -> Instant {
        self.deadline()
    }

    fn exact_deadline(&self) -> Timestamp {
        self.exact_deadline()
    }

    fn remaining(&self) -> Duration {
        self.remaining()
    }

    fn check(&self) -> Result<(), Lost> {
        self.check()
    }

    fn loss(&self) -> Loss {
        self.loss()
    }

    fn votes(&self) -> Votes {
        self.votes()
    }

    fn durability(&self) -> Tier {
        self.durability()
    }

    fn lost(&self) -> HeldFuture<'_, Lost> {
        Box::pin(self.lost())
    }

    fn extend(&self, ttl: Duration) -> HeldFuture<'_, Result<(), ExtendError>> {
        Box::pin(self.extend(ttl))
    }

    fn release(self: Box<Self>) -> HeldFuture<'static, Result<(), ReleaseError>> {
        Box::pin((*self).release())
    }
}

// A panic in the work under a lock leaves the guard intact: its state is behind mutexes that no
// code of the caller runs under, and dropping it releases the lock.
impl<K: Kind> UnwindSafe for Guard<K> {}
impl<K: Kind> RefUnwindSafe for Guard<K> {}

impl<K: Kind> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(K::GUARD);
        shown.field("name", &self.name());
        if let Some(fence) = Held::fence(self) {
            shown.field("fence", &fence);
        }
        shown
            .field("token", &self.state.hold.id().token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// Extends `hold` by one round. Returns the deadline that this round alone gives.
pub(super) async fn extend_hold(
    hold: &Arc<HeldLock>,
    ttl: Duration,
    names: &[String],
) -> Result<Timestamp, ExtendError> {
    if let Err(why) = hold.check() {
        let votes = Votes::new(names, hold.votes());
        return Err(ExtendError::Lost { why, votes });
    }
    let extending = hold.extend(ttl);
    let verdict = extending.verdict().await;
    let votes = Votes::worded("extended", names, extending.votes());
    match verdict {
        // The deadline may have passed before the nodes had answered.
        ExtensionVerdict::Extended { deadline } => match hold.check() {
            Ok(()) => Ok(deadline),
            Err(why) => Err(ExtendError::Lost { why, votes }),
        },
        ExtensionVerdict::Lost => Err(ExtendError::Lost {
            why: hold.check().err().unwrap_or(Lost::Gone),
            votes,
        }),
        ExtensionVerdict::Unsure => Err(match hold.check() {
            // Trying again cannot help.
            Err(why @ Lost::ClockFroze) => ExtendError::Lost { why, votes },
            _ => ExtendError::Unconfirmed { votes },
        }),
    }
}

pub(super) fn release_result(verdict: ReleaseVerdict) -> Result<(), ReleaseError> {
    match verdict {
        ReleaseVerdict::Released => Ok(()),
        ReleaseVerdict::Expired => Err(ReleaseError::Expired),
        ReleaseVerdict::Taken => Err(ReleaseError::Taken),
        ReleaseVerdict::Unconfirmed => Err(ReleaseError::Unconfirmed),
    }
}
