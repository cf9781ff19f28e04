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
#[cfg(feature = "client")]
mod driver;
pub mod node;
pub mod resource;

#[cfg(feature = "client")]
mod environment;
#[cfg(feature = "client")]
pub mod url;

/// The clock that a client measures durations on.
#[cfg(feature = "client")]
pub mod clock {
    pub(crate) use crate::environment::wall_us;
    pub use crate::environment::{Clock, SteppedClock};
}

/// Where the random bytes of a client come from.
#[cfg(feature = "client")]
pub mod entropy {
    pub use crate::environment::Entropy;
}

#[doc(inline)]
pub use ringfence_core::{group, ledger, message, name, protocol, time, token};

// What fuzzers feed; no part of the API, and not there in any other build.
#[cfg(all(fuzzing, feature = "redis"))]
#[doc(hidden)]
pub use node::redis::fuzz_inputs as fuzz;

#[cfg(feature = "client")]
pub use client::*;
#[cfg(feature = "client")]
pub use protocol::Lost;
