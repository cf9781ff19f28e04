//! The reasons why a lock is no longer held.

/// Why a lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The deadline passed before the lock could be extended.
    #[error("the lock expired: it was not extended in time")]
    Expired,
    /// So many nodes lost the lock that no majority can hold it.
    #[error("the lock is gone: a majority of the nodes cannot hold it any more")]
    Gone,
    /// An operator broke the lock. The votes name the operator and the reason.
    #[error("the lock was broken by an operator")]
    Broken,
    /// The lock was held for the whole `max_hold`.
    #[error("the lock was held for as long as max_hold allows")]
    MaxHold,
    /// The lock was released.
    #[error("the lock was released")]
    Released,
    /// The clocks of a majority of the nodes jumped forward alike. Either this machine was paused
    /// and its clock froze, as in a paused virtual machine, or the nodes' clocks were set forward.
    /// In both cases the lock may have expired meanwhile.
    #[error(
        "this machine was paused, or the nodes' clocks were set forward, and the lock may have \
         expired meanwhile"
    )]
    ClockFroze,
    /// This is a forked child, and the lock belongs to its parent.
    #[error("the lock belongs to the process that took it, and this is a forked child of it")]
    ForkedProcess,
}
