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
//! | latch | [`Locks::latch`] | `arrive`, `opened` | none |
//!
//! A mutex or read-write lock with an [`Owner`] is reentrant. Functions that take any guard use
//! [`Held`]. Tasks that only have to hear of a loss use [`Loss`]. [`blocking`] has the same kinds
//! without async.
//!
//! # Where is what
//!
//! | module | for |
//! |---|---|
//! | [`guide`] | the guides: guarantees, steps, operations, tests of your own code; the platforms |
//! | [`resource`] | data that checks the fence itself |
//! | [`blocking`] | programs without async |
//! | [`admin`] | operators: inspect, list, break, init, examine |
//! | [`observe`] | events, stats, the leaders of an election |
//! | [`receipt`] | a lock that another process extends or releases |
//! | [`votes`] | what each node said, in errors and guards |
//! | [`kind`], [`clock`], [`url`] | types that programs rarely name |
//! | [`node`] | people who write a node |
//!
//! # Three timeouts
//!
//! | question | setting | default | when it is over |
//! |---|---|---|---|
//! | How long does a lock outlive a holder that died? | `ttl` | 10 s | the nodes free it; a holder that lives renews it at a third of this time |
//! | How long may a call wait while others hold the lock? | `wait` | without a limit | [`AcquireError::Held`], or [`Full`](AcquireError::Full) of a semaphore |
//! | How long may a call go on while the nodes do not answer? | `no_quorum_after` | 15 s, or `wait` if shorter | [`AcquireError::NoQuorum`] |
//!
//! A holder that hangs is another question: `max_hold`, one hour by default, ends its renewal. All
//! four can be set for a client ([`Builder`]) and for one lock.
//!
//! # Defaults
//!
//! | setting | default | set by |
//! |---|---|---|
//! | TTL: how long the nodes keep a lock that is not renewed | 10 s | `ttl` of the [`Builder`] or of a lock |
//! | longest TTL | 30 s for a quorum or one server with replicas, 33 s if Sentinels name that one server, a year for any other single node | [`Builder::quarantine`] |
//! | wait while other clients hold the lock | without a limit | `wait`, the same |
//! | wait while no majority of the nodes answers | 15 s, or the wait if shorter | `no_quorum_after`, the same |
//! | attempts | as many as fit into the wait | `attempts` |
//! | renewal | on, at a third of the TTL | `renew`, the same |
//! | longest time that a lock is held | 1 h, or the TTL if longer; none for an election | `max_hold`, the same |
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
//! | `sqlite` | the embedded node, for the processes of one machine. Off by default: it compiles SQLite |
//! | `blocking` | [`blocking`], the API without async |
//! | `metrics` | metrics through the facade crate of that name; see [`Locks::stats`] for programs without an exporter |
//! | `client` | the client with the in-memory node; all of the above imply it |
//! | `test-util` | test doubles: a clock that a test steps, seeded tokens, and faults of the in-memory node |
//!
//! A program can link SQLite once. `sqlite` accepts many versions of it (`rusqlite` 0.32 to 0.41), so
//! that cargo finds one for `sqlx` 0.8 and 0.9 and `diesel` 2 as well. Before 3.51.3, SQLite may damage
//! a file that several processes use, so such a version opens no lock file: this concerns programs
//! with `sqlx` 0.8, which needs SQLite 3.46. Redis nodes work there as everywhere.
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

#![cfg_attr(docsrs, feature(doc_cfg))]
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
#[cfg(feature = "client")]
pub mod guide;
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
#[cfg(all(fuzzing, feature = "sqlite", feature = "test-util"))]
#[doc(hidden)]
pub use node::sqlite::fuzz_inputs as fuzz_file;

// The front door: locks, their kinds and guards, and what can go wrong.
#[cfg(feature = "client")]
pub use client::{
    AcquireError, Arrival, Builder, ConfigError, ConnectError, Election, ExtendError, Guard, Held,
    HeldExt, HoldError, Holder, Latch, LatchError, Leadership, Lock, Locks, Loss, Owner,
    PlainGuard, PlainLock, ReadGuard, ReleaseError, RwLock, Semaphore, SemaphoreGuard, WorkDone,
    kind,
};
#[cfg(feature = "client")]
#[doc(inline)]
pub use ringfence_core::{group::Failover, name::NameError, node::Tier, protocol::Lost};

/// The crate `redis` of the version that [`RedisNode::from_client`](node::redis::RedisNode) takes.
#[cfg(feature = "redis")]
#[doc(no_inline)]
pub use ::redis;

/// For operators and their tools: inspection, listing, breaking a lock, declaring a cluster new, and
/// the doctor's examination of the nodes.
///
/// | what | by |
/// |---|---|
/// | who holds a lock, and who waits | [`Locks::inspect`], [`Locks::inspect_all`] |
/// | all locks | [`Locks::list`] |
/// | which names are written | [`Locks::changed_names`] |
/// | the state of the nodes | [`Locks::nodes`], [`Locks::ready`] |
/// | end the hold of another client | [`Locks::break_lock`] |
/// | declare a cluster new, or change its number of nodes | [`Builder::init`], [`Builder::regroup`] |
/// | look at servers before they are used | [`Builder::examine`] |
#[cfg(feature = "client")]
pub mod admin {
    pub use crate::client::{
        BreakError, BreakRequest, Broken, ChangedNames, GroupSettings, HolderKind, InitError,
        Initialised, InspectError, Inspection, LatchInspection, ListError, ListStep, ListedBreak,
        ListedLock, Listing, LockList, LockState, NameInspection, NodeFacts, NodeInspection,
        NodeSearch, NodeStatus, ReportedHolder, SemaphoreInspection, UnreadableName,
        WaiterInspection,
    };
    pub use crate::node::examination::{
        Birth, ClockSample, Contents, Examination, FileExamination, FileMode, Found, Identity,
        Keys, Machine, Memory, OnDisk, Purpose, ReplicaExamination, Right, Rights, Role,
        SentinelWord, ServerExamination, ServiceExamination, Voting, WriteStop,
    };
    #[doc(inline)]
    pub use ringfence_core::message::BreakNote;
}

/// What a client reports while it works: events for a [`Listener`](observe::Listener), the numbers
/// of [`Locks::stats`], and the leaders of an election.
#[cfg(feature = "client")]
pub mod observe {
    pub use crate::client::{Leader, LeaderChange, Observer};
    pub use crate::observation::{
        AcquireOutcome, Event, Listener, LockKind, NodeState, NodeStats, RenewalOutcome, Stats,
    };
}

/// Receipts: what another process needs to extend or release a lock that this one took.
///
/// [`Guard::receipt`] makes one and [`Guard::leave`] leaves the lock behind;
/// [`Lock::extend_receipt`] and [`Lock::release_receipt`] use it.
#[cfg(feature = "client")]
pub mod receipt {
    pub use crate::client::{Receipt, ReceiptError, ReleaseReceiptError};
    #[doc(inline)]
    pub use ringfence_core::token::{Token, TokenError};
}

/// What each node said: the [`Votes`](votes::Votes) that errors carry as their source, and that
/// [`Guard::votes`] shows.
#[cfg(feature = "client")]
pub mod votes {
    pub use crate::client::{NodeVote, Votes};
    #[doc(inline)]
    pub use ringfence_core::protocol::Vote;
}

/// The Rust of the README must compile. That of the guides is in `guide`, of `docs/migrating.md` in
/// the crate of the peers, of `docs/testing.md` in a test.
#[cfg(all(doctest, feature = "redis", feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
mod readme {}
