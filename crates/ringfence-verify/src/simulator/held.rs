//! A guard of any kind that a client holds.

use std::time::Duration;

use ringfence::{Guard, Leadership, PlainGuard, ReadGuard, SemaphoreGuard};
use ringfence_core::time::Timestamp;

/// A guard of any kind.
pub(super) enum Held {
    Lock(Guard),
    Share(ReadGuard),
    Permit(SemaphoreGuard),
    Lead(Leadership),
    Plain(PlainGuard),
}

impl Held {
    pub(super) fn deadline(&self) -> Timestamp {
        match self {
            Self::Lock(guard) => guard.exact_deadline(),
            Self::Share(guard) => guard.exact_deadline(),
            Self::Permit(guard) => guard.exact_deadline(),
            Self::Lead(lead) => lead.exact_deadline(),
            Self::Plain(guard) => guard.exact_deadline(),
        }
    }

    pub(super) fn fence(&self) -> Option<u64> {
        match self {
            Self::Lock(guard) => Some(guard.fence()),
            Self::Share(guard) => Some(guard.fence()),
            Self::Permit(guard) => Some(guard.fence()),
            Self::Lead(lead) => Some(lead.fence()),
            Self::Plain(_) => None,
        }
    }

    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            _ => None,
        }
    }

    pub(super) fn shares(&self) -> bool {
        matches!(self, Self::Share(_))
    }

    pub(super) async fn lost(&self) {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Share(guard) => guard.lost().await,
            Self::Permit(guard) => guard.lost().await,
            Self::Lead(lead) => lead.lost().await,
            Self::Plain(guard) => guard.lost().await,
        };
    }

    /// Extends the lock and continues with any result: a failed extend never releases.
    pub(super) async fn extend(&self, ttl: Duration) {
        let _ = match self {
            Self::Lock(guard) => guard.extend(ttl).await,
            Self::Share(guard) => guard.extend(ttl).await,
            Self::Permit(guard) => guard.extend(ttl).await,
            Self::Plain(guard) => guard.extend(ttl).await,
            Self::Lead(_) => return,
        };
    }

    /// Releases. Returns whether a majority has confirmed it.
    pub(super) async fn release(self) -> bool {
        let released = match self {
            Self::Lock(guard) => guard.release().await,
            Self::Share(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
            Self::Lead(lead) => lead.resign().await,
            Self::Plain(guard) => guard.release().await,
        };
        released.is_ok()
    }
}
