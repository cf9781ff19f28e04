//! Distributed locks you can trust, on the Redis or Valkey you already run.
//!
//! ```
//! # #[cfg(feature = "client")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ringfence::Locks;
//!
//! let locks = Locks::connect("memory:").await?; // or "redis://a,redis://b,redis://c", "sqlite:locks.db"
//! let guard = locks.mutex("orders:42").lock().await?;
//! println!("fence {}", guard.fence());
//! guard.release().await?;
//! locks.close().await; // at the end of the program: every release is confirmed
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "client"))]
//! # fn main() {}
//! ```
//!
//! A guard that is dropped sends its release at once and does not wait for an answer, also at the
//! end of `main` and in a panic. `Locks::close` waits until everything that was released has been
//! confirmed: call it before the program ends if a lock must not stay until its TTL when a node is
//! slow to read.
//!
//! Modules stand in reading order: a call goes from the client through the protocol (which is in the
//! crate `ringfence-core`) and the driver to a node and comes back as a guard. Without features there
//! are only the pure machines of the core, the trait for nodes, and what a fenced resource needs.

// What happens is told through `tracing`; a library does not write to its user's terminal.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "client")]
mod client;
pub mod node;
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
    AcquireError, Arrival, Builder, ConfigError, ConnectError, Election, ExtendError, Guard, Held,
    HeldExt, HeldFuture, HoldError, InitError, Initialised, InspectError, Inspection, Latch,
    LatchError, Leader, LeaderChange, Leadership, Lock, Locks, NodeInspection, NodeStatus,
    NodeVote, Observer, Owner, PARTIES_MAX, PERMITS_MAX, PlainGuard, PlainLock, ReadGuard, Receipt,
    ReceiptError, ReleaseError, ReleaseReceiptError, RwLock, Semaphore, SemaphoreGuard,
    SemaphoreInspection, Votes,
};
#[cfg(feature = "client")]
pub use ringfence_core::{
    message::Holder,
    name::NameError,
    node::Tier,
    protocol::{Discount, Lost, Vote},
    token::Token,
};
