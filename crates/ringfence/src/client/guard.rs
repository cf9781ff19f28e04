//! A lock that is held, for as long as the guard lives and the nodes agree.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node::Tier;
use crate::protocol::{ExtensionVerdict, Lost, ReleaseVerdict};
use crate::runtime::hold::HeldLock;
use crate::time::Timestamp;
use crate::token::Token;

use super::Locks;
use super::error::{ExtendError, ReleaseError};
use super::held::{impl_held, until_lost};
use super::hold_work::under;
use super::lease::whole_millis;
use super::owner::{Parting, Share};
use super::receipt::Receipt;
use super::rw_lock::ReadGuard;
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
#[must_use = "dropping the guard releases the lock"]
pub struct Guard {
    pub(super) hold: Arc<HeldLock>,
    pub(super) locks: Locks,
    pub(super) name: Arc<str>,
    /// Its part in the hold, if an owner has several guards.
    pub(super) share: Option<Share>,
    /// It was downgraded while other guards of its owner held on.
    pub(super) reads: bool,
    /// Released or left behind: dropping it has nothing to do any more.
    pub(super) done: bool,
}

impl Guard {
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

    /// What it holds, for work under it.
    pub(crate) fn held_lock(&self) -> &Arc<HeldLock> {
        self.hold()
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

    /// The fence: higher than that of every earlier grant of this name. Send it with every write,
    /// so that the resource can refuse a lower one.
    pub fn fence(&self) -> u64 {
        self.hold.id().ballot.get()
    }

    /// The token that identifies this hold. A client that has it can release the lock.
    pub fn token(&self) -> &Token {
        &self.hold.id().token
    }

    /// The name, or the names separated by commas.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is still held, by the local clock. An error once the deadline has passed or loss
    /// was proved. (A pause right after this call is what the fence is for.)
    pub fn check(&self) -> Result<(), Lost> {
        if !self.locks.is_ours() {
            return Err(Lost::ForkedProcess);
        }
        loop {
            let hold = self.hold();
            let held = hold.check();
            // It may have become a share meanwhile.
            if held.is_ok() || Arc::ptr_eq(hold, self.hold()) {
                return held;
            }
        }
    }

    /// How long until the deadline; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        match self.locks.is_ours() {
            true => self.hold().remaining(),
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
        let clock = &self.locks.shared.runtime.sender.clock;
        clock.instant(self.exact_deadline())
    }

    /// The deadline on the client's own clock, which counts suspend: a value to compare with
    /// [`Clock::now`](crate::clock::Clock::now) and to hand to
    /// [`Clock::sleep_until`](crate::clock::Clock::sleep_until). Never moves back.
    pub fn exact_deadline(&self) -> Timestamp {
        match self.locks.is_ours() {
            true => self.hold().deadline(),
            false => Timestamp::ZERO,
        }
    }

    /// Extends it to at least `ttl` from now. A failed extend never releases.
    pub async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.locks.own(self.extend_here(ttl)).await
    }

    async fn extend_here(&self, ttl: Duration) -> Result<(), ExtendError> {
        self.locks.check_runtime()?;
        let most = self.locks.longest_ttl();
        let ttl = whole_millis(ttl);
        let delay = self.hold.policy().lock_delay;
        self.locks.shared.settings.check_lease(ttl, delay, most)?;
        loop {
            let hold = self.hold();
            let extended = Self::extend_hold(hold, ttl, self.locks.node_names()).await;
            // It may have become a share meanwhile.
            if extended.is_ok() || Arc::ptr_eq(hold, self.hold()) {
                return extended.map(|_| ());
            }
        }
    }

    /// Says until when that round alone is good for.
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

    /// Completes once the lock is lost: at its deadline, or at the first proof. Cancel-safe.
    pub async fn lost(&self) -> Lost {
        let waiting = async {
            loop {
                let hold = self.hold();
                let why = hold.lost().await;
                // It may have become a share meanwhile.
                if Arc::ptr_eq(hold, self.hold()) {
                    return why;
                }
            }
        };
        let process = self.locks.runtime().process;
        process.call(waiting, || Lost::ForkedProcess).await
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
        until_lost(self.lost(), under(self.hold(), work)).await
    }

    /// Every node's vote in the latest round, in node order.
    pub fn votes(&self) -> Votes {
        if !self.locks.is_ours() {
            return Votes::new(&[], []);
        }
        let nodes = &self.locks.shared.runtime.sender.nodes;
        Votes::new(self.locks.node_names(), self.hold().votes())
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
        let process = self.locks.runtime().process;
        let forked = || Err(ReleaseError::ForkedProcess);
        process.call(self.release_here(), forked).await
    }

    async fn release_here(mut self) -> Result<(), ReleaseError> {
        // Asked while it is counted: once it is not, the others may downgrade what they hold.
        let held = self.share.is_some().then(|| self.check());
        match self.part(false) {
            Parting::Last => {}
            Parting::OthersHold => {
                self.done = true;
                return held.unwrap_or(Ok(())).map_err(|_| ReleaseError::Expired);
            }
            Parting::LastLeaves => {
                self.done = true;
                self.hold.stop();
                return Ok(());
            }
        }
        // The renewal is stopped, and joined if one is under way.
        if let Some(renewal) = self.hold.stop_renewing() {
            renewal.verdict().await;
        }
        self.done = true;
        let Some(withdrawing) = self.hold.release() else {
            return Err(ReleaseError::Expired);
        };
        let in_time = self.hold.was_released_in_time();
        match release_result(withdrawing.verdict().await) {
            // The nodes still had it, but the holder could not count on that any more.
            Ok(()) if !in_time => Err(ReleaseError::Expired),
            released => released,
        }
    }

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
        let process = self.locks.runtime().process;
        let forked = || Err(Lost::ForkedProcess);
        process.call(self.downgrade_here(), forked).await
    }

    async fn downgrade_here(mut self) -> Result<ReadGuard, Lost> {
        if self.share.is_some() {
            return self.downgrade_share().await;
        }
        // As with a release: what is under way would count as exclusive.
        if let Some(renewal) = self.hold.stop_renewing() {
            renewal.verdict().await;
        }
        self.hold.check()?;
        self.done = true;
        let (hold, round) = self.hold.downgrade(|_| {});
        let guard = ReadGuard::new(self.locks.guard(hold, Arc::clone(&self.name)));
        // Too few answers are no loss: whichever way a node holds it, no writer is there.
        round.verdict().await;
        guard.check()?;
        Ok(guard)
    }

    /// The same of one of several guards. A renewal that is under way is not joined, since it may
    /// be that of others: a node that has heard of the downgrade before refuses it.
    async fn downgrade_share(mut self) -> Result<ReadGuard, Lost> {
        self.check()?;
        self.reads = true;
        let round = self.share.as_ref().and_then(Share::read);
        let guard = ReadGuard::new(self);
        if let Some(round) = round {
            round.verdict().await;
        }
        guard.check()?;
        Ok(guard)
    }

    /// In a forked child: keeps everything that it has, since to drop that may lock a mutex.
    fn leak(&mut self) {
        std::mem::forget((
            Arc::clone(&self.hold),
            self.locks.clone(),
            self.share.take(),
        ));
    }

    /// What another process needs to extend or release this lock.
    pub fn receipt(&self) -> Receipt {
        Receipt::new(self.hold())
    }

    /// Leaves the lock behind: stops renewing it and does not release it. It ends with its TTL
    /// unless a client that has the receipt extends or releases it.
    ///
    /// Where an owner has other guards of it, it is left behind when the last of them has gone.
    pub fn leave(mut self) -> Receipt {
        self.done = true;
        if !self.locks.is_ours() {
            self.leak();
        } else if self.part(true) != Parting::OthersHold {
            self.hold.stop();
        }
        self.receipt()
    }
}

impl_held!(Guard, guard => Some(guard.fence()));

impl Drop for Guard {
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

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("fence", &self.fence())
            .field("token", self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
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
