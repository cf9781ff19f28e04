//! What `run` holds while its command runs: a lock, or one permit of a semaphore.

use ringfence::time::Timestamp;
use ringfence::{Guard, Lost, ReleaseError, SemaphoreGuard};

use crate::supervise::Lease;

#[must_use = "dropping it releases the lock"]
pub(super) enum Held {
    Lock(Guard),
    Permit(SemaphoreGuard),
}

impl Held {
    pub(super) fn fence(&self) -> u64 {
        match self {
            Self::Lock(guard) => guard.fence(),
            Self::Permit(guard) => guard.fence(),
        }
    }

    /// What the command may show as proof. A permit's is good for nothing else: `release` knows
    /// locks only.
    pub(super) fn token(&self) -> String {
        match self {
            Self::Lock(guard) => guard.receipt().expose(),
            Self::Permit(guard) => format!("{}.{}", guard.token().expose(), guard.fence()),
        }
    }

    /// Which slot of a semaphore it is.
    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Lock(_) => None,
            Self::Permit(guard) => Some(guard.slot()),
        }
    }

    pub(super) fn check(&self) -> Result<(), Lost> {
        match self {
            Self::Lock(guard) => guard.check(),
            Self::Permit(guard) => guard.check(),
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
        }
    }
}

impl Lease for Held {
    fn deadline(&self) -> Timestamp {
        match self {
            Self::Lock(guard) => guard.deadline(),
            Self::Permit(guard) => guard.deadline(),
        }
    }

    async fn lost(&self) -> String {
        let why = match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Permit(guard) => guard.lost().await,
        };
        why.to_string()
    }
}
