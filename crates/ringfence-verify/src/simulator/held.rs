//! A guard of any kind that a client holds, or what is left of one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence::receipt::Receipt;
use ringfence::{Guard, Leadership, PlainGuard, ReadGuard, SemaphoreGuard};
use ringfence_core::time::Timestamp;

/// A guard of any kind.
pub(super) enum Held {
    Lock(Guard),
    Share(ReadGuard),
    Permit(SemaphoreGuard),
    Lead(Leadership),
    Plain(PlainGuard),
    Left(LeftLock),
}

/// A lock that was left behind, and until when its client relies on it.
pub(super) struct LeftLock {
    pub(super) receipt: Receipt,
    deadline: AtomicU64,
}

impl LeftLock {
    /// What `guard` leaves behind. Its deadline is as late as that of the guard.
    pub(super) fn of(guard: Guard) -> Self {
        let deadline = AtomicU64::new(guard.exact_deadline().as_nanos());
        let receipt = guard.leave();
        Self { receipt, deadline }
    }

    /// An extension has moved the deadline.
    pub(super) fn extended_until(&self, deadline: Timestamp) {
        self.deadline
            .fetch_max(deadline.as_nanos(), Ordering::SeqCst);
    }
}

impl Held {
    pub(super) fn deadline(&self) -> Timestamp {
        match self {
            Self::Lock(guard) => guard.exact_deadline(),
            Self::Share(guard) => guard.exact_deadline(),
            Self::Permit(guard) => guard.exact_deadline(),
            Self::Lead(lead) => lead.exact_deadline(),
            Self::Plain(guard) => guard.exact_deadline(),
            Self::Left(left) => Timestamp::from_nanos(left.deadline.load(Ordering::SeqCst)),
        }
    }

    pub(super) fn fence(&self) -> Option<u64> {
        match self {
            Self::Lock(guard) => Some(guard.fence()),
            Self::Share(guard) => Some(guard.fence()),
            Self::Permit(guard) => Some(guard.fence()),
            Self::Lead(lead) => Some(lead.fence()),
            Self::Left(left) => Some(left.receipt.fence()),
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
            // Nothing watches it.
            Self::Left(_) => std::future::pending().await,
        };
    }

    /// Extends the lock and continues with any result: a failed extend never releases.
    pub(super) async fn extend(&self, ttl: Duration) {
        let _ = match self {
            Self::Lock(guard) => guard.extend(ttl).await,
            Self::Share(guard) => guard.extend(ttl).await,
            Self::Permit(guard) => guard.extend(ttl).await,
            Self::Plain(guard) => guard.extend(ttl).await,
            Self::Lead(_) | Self::Left(_) => return,
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
            Self::Left(_) => return false,
        };
        released.is_ok()
    }
}
