//! The lock that a command runs under, of any kind.

use ringfence::{Guard, Lost, ReadGuard, ReleaseError, SemaphoreGuard};
use ringfence_core::time::Timestamp;

/// A lock that is held.
pub(crate) enum Lease {
    Alone(Guard),
    Shared(ReadGuard),
    Permit(SemaphoreGuard),
}

/// Does the same with a guard of any kind: the kinds have no trait in common.
macro_rules! with {
    ($guard:ident of $lease:ident => $does:expr) => {
        match $lease {
            Lease::Alone($guard) => $does,
            Lease::Shared($guard) => $does,
            Lease::Permit($guard) => $does,
        }
    };
}

impl Lease {
    pub(crate) fn fence(&self) -> u64 {
        with!(guard of self => guard.fence())
    }

    /// What `extend` and `release` take.
    pub(crate) fn token(&self) -> String {
        with!(guard of self => format!("{}.{}", guard.token().expose(), guard.fence()))
    }

    /// Which slot of a semaphore it is.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            Self::Alone(_) | Self::Shared(_) => None,
        }
    }

    /// Until when the lock is ours if nothing more is heard from the nodes. Moves on when renewed.
    pub(crate) fn deadline(&self) -> Timestamp {
        with!(guard of self => guard.deadline())
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        with!(guard of self => guard.check())
    }

    /// Completes with the reason once it is certain that the lock is no longer ours.
    pub(crate) async fn lost(&self) -> Lost {
        with!(guard of self => guard.lost().await)
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        with!(guard of self => guard.release().await)
    }
}
