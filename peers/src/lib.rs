//! Lock clients of other projects, each as a program that speaks one small line protocol
//! (`peers/README.md`). Tests run them together with ringfence on the same servers, and the
//! benchmark runs them side by side with it.
//!
//! No client is skipped silently: a missing toolchain is an error that names it.

mod library;
mod peer;
mod toolchain;

pub mod serve;

pub use library::Library;
pub use peer::{Peer, Report};
pub use toolchain::Missing;

/// The Rust of the guide for those who come from another library, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrating.md")]
mod migrating {}
