//! The lock that a command runs under, of any kind.

use ringfence::time::Timestamp;
use ringfence::{Guard, Lost, ReadGuard, ReleaseError, SemaphoreGuard};

/// A lock that is held.
pub(crate) enum Lease {
    Alone(Guard),
    Shared(ReadGuard),
    Permit(SemaphoreGuard),
}

/// Does the same with a guard of any kind.
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

    /// The token for `extend` and `release`.
    pub(crate) fn token(&self) -> String {
        with!(guard of self => format!("{}.{}", guard.token().expose(), guard.fence()))
    }

    /// The slot, if this is a permit of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            Self::Alone(_) | Self::Shared(_) => None,
        }
    }

    /// The time until which we hold the lock if no node answers any more. Renewal moves it.
    pub(crate) fn deadline(&self) -> Timestamp {
        with!(guard of self => guard.deadline())
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        with!(guard of self => guard.check())
    }

    /// Completes with the reason when the lock is lost.
    pub(crate) async fn lost(&self) -> Lost {
        with!(guard of self => guard.lost().await)
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        with!(guard of self => guard.release().await)
    }
}
