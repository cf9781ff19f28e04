//! A semaphore: so many holders at once, each in a slot of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Claim, Kind, Mode};
use crate::name::Name;
use crate::protocol::Attempt;
use crate::token::Token;

use super::Locks;
use super::error::{AcquireError, ConfigError, ExtendError, HoldError, InspectError};
use super::guard::Guard;
use super::held::{held, impl_held};
use super::hold_work::{WorkDone, while_held};
use super::inspection::SemaphoreInspection;
use super::lock::Lock;
use super::receipt::{Receipt, ReleaseReceiptError};
use super::terms::terms;

/// The most permits that a semaphore may have: a node looks at every slot at each acquire.
pub const PERMITS_MAX: u32 = 256;

/// A semaphore, of which no permit has been taken yet. Made by [`Locks::semaphore`].
///
/// A [`lock_delay`](Self::lock_delay) counts for the slot of the holder that is lost. There is no
/// `hold_at_least`: it is for what must not be done twice within a time, and another slot would let
/// that happen.
#[derive(Clone)]
#[must_use = "a semaphore does nothing until `acquire` or `try_acquire` is awaited"]
pub struct Semaphore {
    /// The lock of which one slot is taken.
    lock: Lock,
    name: Arc<str>,
    permits: u32,
}

/// A permit that is held. It renews itself unless [`Semaphore::renew`] is off; dropping it releases
/// the permit in the background, without blocking and without needing a tokio runtime.
#[must_use = "dropping the guard releases the permit"]
pub struct SemaphoreGuard {
    guard: Guard,
    slot: u32,
}

impl Semaphore {
    pub(super) fn new(locks: Locks, name: &str, permits: u32) -> Self {
        let name = Name::new(&locks.shared.settings.prefix, name);
        let shown = name.as_ref().map(Name::shown).unwrap_or_default();
        let claims = name.map(|name| {
            let slots = (0..permits.min(PERMITS_MAX)).map(|slot| name.slot(slot));
            let claims = std::iter::once(name.admission()).chain(slots);
            let claims = claims.map(|name| Claim {
                name,
                mode: Mode::Exclusive,
            });
            claims.collect::<Arc<[Claim]>>()
        });
        let mut lock = Lock::new(locks, claims);
        lock.kind = Kind::Slot;
        Self {
            lock,
            name: shown,
            permits,
        }
    }

    terms! {
        lock:
        label,
        renew,
        max_hold,
        lock_delay,
    }

    /// Takes a permit. Waits in the queue while none is free.
    ///
    /// Dropping the future at any point undoes the attempt in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let permit = locks.semaphore("downloads", 3).acquire().await?;
    /// println!("slot {}, fence {}", permit.slot(), permit.fence());
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.take(self.lock.wait).await
    }

    /// Takes a permit if one is free and no other client waits for it. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Held`] if no permit is free.
    pub async fn try_acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.take(Some(Duration::ZERO)).await
    }

    /// Takes a permit, does `work`, and releases it. The work is dropped at its next await when
    /// the permit is lost. See [`Lock::hold`].
    pub async fn hold<T>(
        &self,
        work: impl AsyncFnOnce(&SemaphoreGuard) -> T,
    ) -> Result<T, HoldError> {
        self.hold_to_end(work).await?.held()
    }

    /// As [`hold`](Self::hold), but returns the output also of work that was done after the permit was
    /// lost. See [`Lock::hold_to_end`].
    ///
    /// # Errors
    /// If the permit was not granted, or if it was lost and the work was stopped.
    pub async fn hold_to_end<T>(
        &self,
        work: impl AsyncFnOnce(&SemaphoreGuard) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        let guard = self.acquire().await?;
        while_held!(guard, work)
    }

    /// The holder of each slot and the number of waiters, as a majority of the nodes sees it.
    /// Changes nothing.
    pub async fn inspect(&self) -> Result<SemaphoreInspection, InspectError> {
        self.check_permits()?;
        let claims = self.lock.claims.clone().map_err(ConfigError::from)?;
        let locks = &self.lock.locks;
        locks.own(locks.inspect_slots(&self.name, claims)).await
    }

    /// Extends a permit that [`SemaphoreGuard::leave`] left behind. See [`Lock::extend_receipt`].
    ///
    /// # Errors
    /// If the permit is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    pub async fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        self.check_permits()?;
        self.lock.extend_receipt(receipt, ttl).await
    }

    /// Releases a permit that [`SemaphoreGuard::leave`] left behind. See
    /// [`Lock::release_receipt`].
    ///
    /// # Errors
    /// If the permit was not held any more, or if no majority of the nodes confirmed.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        self.check_permits()?;
        self.lock.release_receipt(receipt).await
    }

    /// How many permits it has, as this client says.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    fn check_permits(&self) -> Result<(), ConfigError> {
        if (1..=PERMITS_MAX).contains(&self.permits) {
            return Ok(());
        }
        Err(ConfigError::Permits {
            permits: self.permits,
            most: PERMITS_MAX,
        })
    }

    async fn take(&self, wait: Option<Duration>) -> Result<SemaphoreGuard, AcquireError> {
        self.check_permits()?;
        let mut warned = false;
        let note = |attempt: &Attempt| {
            if !warned {
                warned = self.warn_of_other_number(attempt);
            }
        };
        let name = Arc::clone(&self.name);
        let taking = self.lock.acquire_with_observer(wait, name, note);
        let (guard, slot) = self.lock.locks.own(taking).await?;
        Ok(SemaphoreGuard {
            guard,
            slot: slot.unwrap_or_default(),
        })
    }

    /// Clients that disagree on the number of permits are a deploy under way, or a mistake.
    fn warn_of_other_number(&self, attempt: &Attempt) -> bool {
        let most = attempt.most_permits().unwrap_or(0);
        if most <= u64::from(self.permits) {
            return false;
        }
        tracing::warn!(
            target: "ringfence",
            name = %self.name,
            permits = self.permits,
            others = most,
            "another client gives this semaphore more permits: as many may be inside"
        );
        true
    }
}

impl SemaphoreGuard {
    /// The number of the slot, from 0 on. No two holders have the same slot at once: use it to pick
    /// one of as many resources.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The fence: higher than that of every earlier grant of this slot. It says nothing about the
    /// other slots.
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// See [`Guard::token`].
    pub fn token(&self) -> &Token {
        self.guard.token()
    }

    /// The semaphore's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// What another process needs to extend or release this permit.
    pub fn receipt(&self) -> Receipt {
        self.guard.receipt()
    }

    /// Leaves the permit behind: stops renewing it and does not release it. See [`Guard::leave`].
    pub fn leave(self) -> Receipt {
        self.guard.leave()
    }

    held!(guard);
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("permits", &self.permits)
            .field("wait", &self.lock.wait)
            .finish_non_exhaustive()
    }
}

impl_held!(SemaphoreGuard, guard => Some(guard.fence()));

impl fmt::Debug for SemaphoreGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreGuard")
            .field("name", &self.name())
            .field("slot", &self.slot)
            .field("fence", &self.fence())
            .field("token", self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
