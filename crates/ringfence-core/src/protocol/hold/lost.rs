//! Why a lock is no longer held.

/// Why a lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// Its deadline passed before it could be extended.
    #[error("the lock expired: it could not be extended in time")]
    Expired,
    /// So many nodes no longer have it that no majority can.
    #[error("the lock is gone: a majority of the nodes cannot hold it any more")]
    Gone,
    /// It was held for as long as `max_hold` allows.
    #[error("the lock was held for as long as max_hold allows")]
    MaxHold,
    /// It was released.
    #[error("the lock was released")]
    Released,
    /// A majority of the nodes' clocks leapt ahead of ours alike: this machine stood still without
    /// its clock noticing, as a paused virtual machine does, or theirs were set forward. Either
    /// way the lock may have expired meanwhile.
    #[error(
        "this machine was paused, or the nodes' clocks were set forward, and the lock may have \
         expired meanwhile"
    )]
    ClockStoodStill,
}
