//! A semaphore: so many holders at once, each in a slot of its own.

use crate::message::{Claim, Kind as ClaimKind, Mode};
use crate::name::Name;
use crate::protocol::Attempt;

use super::Locks;
use super::error::{AcquireError, ConfigError, InspectError};
use super::guard::SemaphoreGuard;
use super::inspection::SemaphoreInspection;
use super::kind::Permit;
use super::lock::{Lock, LockTerms};

/// [`Semaphore::PERMITS_MAX`].
pub(super) const PERMITS_MAX: u32 = 256;

/// A semaphore, of which no permit has been taken yet. Made by [`Locks::semaphore`].
///
/// A [`lock_delay`](Lock::lock_delay) counts for the slot of the holder that is lost. There is no
/// `hold_at_least`: it is for what must not be done twice within a time, and another slot would let
/// that happen.
pub type Semaphore = Lock<Permit>;

pub(super) fn new(locks: &Locks, name: &str, permits: u32) -> Semaphore {
    let mut terms = LockTerms::new(locks, [name]);
    let name = Name::new(&locks.shared.settings.prefix, name);
    terms.claims = name.map(|name| {
        let slots = (0..permits.min(PERMITS_MAX)).map(|slot| name.slot(slot));
        let claims = std::iter::once(name.admission()).chain(slots);
        let claims = claims.map(|name| Claim {
            name,
            mode: Mode::Exclusive,
        });
        claims.collect()
    });
    (terms.kind, terms.permits) = (ClaimKind::Slot, Some(permits));
    Lock::new(terms)
}

impl Semaphore {
    /// The most permits that a semaphore may have: a node looks at every slot at each acquire.
    pub const PERMITS_MAX: u32 = PERMITS_MAX;

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
        self.taken().await
    }

    /// Takes a permit if one is free and no other client waits for it. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Full`] if no permit is free.
    pub async fn try_acquire(&self) -> Result<SemaphoreGuard, AcquireError> {
        self.taken_at_once().await
    }

    /// The holder of each slot and the number of waiters, as a majority of the nodes sees it.
    /// Changes nothing.
    pub async fn inspect(&self) -> Result<SemaphoreInspection, InspectError> {
        check_permits(self.permits())?;
        let claims = self.terms.claims.clone().map_err(ConfigError::from)?;
        let locks = &self.terms.locks;
        locks
            .own(locks.inspect_slots(&self.terms.name, claims))
            .await
    }

    /// How many permits it has, as this client says.
    pub fn permits(&self) -> u32 {
        self.terms.permits.unwrap_or_default()
    }
}

impl LockTerms {
    /// Clients that disagree on the number of permits are a deploy under way, or a mistake.
    pub(super) fn warn_of_other_number(&self, attempt: &Attempt) -> bool {
        let most = attempt.most_permits().unwrap_or(0);
        let permits = self.permits.unwrap_or(u32::MAX);
        if most <= u64::from(permits) {
            return false;
        }
        tracing::warn!(
            target: "ringfence",
            name = %self.name,
            permits,
            others = most,
            "another client gives this semaphore more permits: as many may be inside"
        );
        true
    }
}

pub(super) fn check_permits(permits: u32) -> Result<(), ConfigError> {
    let most = PERMITS_MAX;
    match (1..=most).contains(&permits) {
        true => Ok(()),
        false => Err(ConfigError::Permits { permits, most }),
    }
}
