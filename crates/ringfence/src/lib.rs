//! Distributed locks on the Redis or Valkey servers that you already run: one server, or a quorum
//! of independent ones. Every lock renews itself, knows its deadline, reports its loss, and carries
//! a fence by which the resource can refuse a late holder.
//!
//! ```
//! # #[cfg(feature = "client")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence::Locks;
//!
//! // or "redis://a,redis://b,redis://c", or "sqlite:locks.db"
//! let locks = Locks::connect("memory:").await?;
//!
//! let guard = locks.mutex("orders:42").lock().await?;
//! let fence = guard.fence(); // send it with every write
//! # async fn charge(_fence: u64) -> u32 { 7 }
//! let receipt = guard.run(charge(fence)).await?; // stopped if the lock is lost
//! # assert_eq!(receipt, 7);
//! guard.release().await?;
//!
//! locks.close().await; // at the end of the program
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "client"))]
//! # fn main() {}
//! ```
//!
//! # Kinds
//!
//! | kind | made by | taken by | guard |
//! |---|---|---|---|
//! | mutex | [`Locks::mutex`] | `lock`, `try_lock`, `hold` | [`Guard`] |
//! | several names at once | [`Locks::multi`] | `lock`, `try_lock`, `hold` | [`Guard`] |
//! | read-write lock | [`Locks::rw_lock`] | `read`, `write`, `hold_read`, `hold_write` | [`ReadGuard`], [`Guard`] |
//! | semaphore | [`Locks::semaphore`] | `acquire`, `try_acquire`, `hold` | [`SemaphoreGuard`] |
//! | election | [`Locks::election`] | `campaign`, `try_campaign`, `lead` | [`Leadership`] |
//! | plain Redlock, without a fence | [`Locks::plain_mutex`] | `lock`, `try_lock`, `hold` | [`PlainGuard`] |
//! | latch | [`Locks::latch`] | `arrive`, `wait` | none |
//!
//! A mutex or read-write lock with an [`Owner`] is reentrant. Functions that take any guard use
//! [`Held`]. [`blocking`] has the same kinds without async.
//!
//! # Defaults
//!
//! | setting | default | set by |
//! |---|---|---|
//! | TTL: how long the nodes keep a lock that is not renewed | 10 s | `ttl` of the builder or of a lock |
//! | longest TTL | 30 s for a quorum or one server with replicas, 33 s if Sentinels name that one server, a year for any other single node | [`Builder::quarantine`] |
//! | wait while other clients hold the lock | without a limit | `wait` |
//! | wait while no majority of the nodes answers | 15 s, or the wait if shorter | `no_quorum_after` |
//! | attempts | as many as fit into the wait | `attempts` |
//! | renewal | on, at a third of the TTL | `renew` |
//! | longest time that a lock is held | 1 h, or the TTL if longer; none for an election | `max_hold` |
//! | least validity of a grant | a tenth of the TTL | `min_validity` |
//! | lock delay after a lost holder; least time of a hold | zero | `lock_delay`, `hold_at_least` |
//! | label | `host:pid` | `label` |
//! | timeout of one call to a node | a tenth of the TTL, 20 ms to 1 s | [`Builder::node_timeout`] |
//! | clock drift that is allowed for | 1 % of the TTL and 2 ms | [`Builder::drift`] |
//! | window: how far the nodes' clocks may differ | 5 s | [`Builder::window`] |
//! | quarantine of a node that may have forgotten locks | 37 s: the setting of 35 s with the allowance for clocks | [`Builder::quarantine`] |
//! | life of a latch after its last arrival | 1 h | [`Latch::ttl`] |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `redis` (default) | Redis and Valkey nodes |
//! | `sqlite` | the embedded node, for the processes of one machine. Off by default, see below |
//! | `blocking` | [`blocking`], the API without async |
//! | `metrics` | metrics through the facade crate of that name; see [`Locks::stats`] for programs without an exporter |
//! | `client` | the client with the in-memory node; all of the above imply it |
//! | `test-util` | test doubles: a clock that a test steps, seeded tokens, and faults of the in-memory node |
//!
//! `sqlite` is off because it links SQLite, and a program can link one copy only: it would clash
//! with another version in `sqlx` or `diesel`.
//!
//! Without features there are the trait for nodes ([`node`]) and what a fenced resource needs
//! ([`resource`]).
//!
//! # The end of a program
//!
//! A guard that is dropped sends its release at once and does not wait for an answer, also at the
//! end of `main` and in a panic. [`Locks::close`] waits until a majority of the nodes has confirmed
//! every release: call it before the program ends if a lock must not stay until its TTL when a node
//! is slow.

#![cfg_attr(
    not(all(feature = "client", feature = "blocking")),
    allow(rustdoc::broken_intra_doc_links)
)]
// The library reports through `tracing`; it does not write to the terminal of its user.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "client")]
mod client;
pub mod node;
#[cfg(feature = "client")]
mod observation;
pub mod resource;
#[cfg(feature = "client")]
mod runtime;

#[cfg(feature = "client")]
mod environment;
#[cfg(feature = "client")]
pub mod url;

/// The clock on which a client measures durations, and its points in time.
#[cfg(feature = "client")]
pub mod clock {
    pub use ringfence_core::time::Timestamp;

    pub use crate::environment::Clock;
    #[cfg(any(test, feature = "test-util"))]
    pub use crate::environment::SteppedClock;
    pub(crate) use crate::environment::wall_us;
}

/// The source of a client's random bytes. A test can replace it with a seed.
#[cfg(feature = "test-util")]
pub mod entropy {
    pub use crate::environment::Entropy;
}
#[cfg(all(feature = "client", not(feature = "test-util")))]
mod entropy {
    pub(crate) use crate::environment::Entropy;
}

// The pure machines, under short paths for this crate. Users get them from `ringfence-core`.
#[cfg(feature = "client")]
use ringfence_core::{group, ledger, message, protocol, time};
use ringfence_core::{name, token};

// The entry points of the fuzzers. They are no part of the API and exist only in fuzzing builds.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub use node::redis::fuzz_inputs as fuzz;

#[cfg(feature = "client")]
pub use client::{
    AcquireError, Arrival, BreakError, BreakRequest, Broken, Builder, ChangedNames, ConfigError,
    ConnectError, Election, ExtendError, Guard, Held, HeldExt, HeldFuture, HoldError,
    HolderInspection, HolderKind, InitError, Initialised, InspectError, Inspection, Latch,
    LatchError, LatchInspection, Leader, LeaderChange, Leadership, ListError, ListStep,
    ListedBreak, ListedLock, Listing, Lock, LockList, LockState, Locks, NameInspection,
    NodeInspection, NodeSearch, NodeStatus, NodeVote, Observer, Owner, PARTIES_MAX, PERMITS_MAX,
    PlainGuard, PlainLock, ReadGuard, Receipt, ReceiptError, ReleaseError, ReleaseReceiptError,
    ReportedHolder, RwLock, Semaphore, SemaphoreGuard, SemaphoreInspection, UnreadableName, Votes,
    WaiterInspection, WorkDone,
};
#[cfg(feature = "client")]
pub use observation::{
    AcquireOutcome, Event, Listener, LockKind, NodeState, NodeStats, RenewalOutcome, Stats,
};
#[cfg(feature = "client")]
pub use ringfence_core::{
    group::Failover,
    message::{BreakNote, Holder},
    name::NameError,
    node::Tier,
    protocol::{Discount, Lost, Vote},
    token::{Token, TokenError},
};

/// The Rust of the README and the documents, which must compile. That of `docs/resources.md` is in
/// `resource`, of `docs/migrating.md` in the crate of the peers, of `docs/testing.md` in a test.
#[cfg(all(doctest, feature = "redis", feature = "sqlite"))]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/guide.md")]
    mod guide {}
    #[doc = include_str!("../../../docs/guarantees.md")]
    mod guarantees {}
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../../../docs/observability.md")]
    mod observability {}
}
