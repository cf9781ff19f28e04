//! Other people's lock clients, each as a program of its own that speaks one small line protocol
//! (`peers/README.md`): tests put them in one fleet with ringfence, and the benchmark runs them side
//! by side with it.
//!
//! Nothing here is skipped in silence: a client whose toolchain is not on this machine is an error
//! that names it.

mod library;
mod peer;
mod toolchain;

pub mod serve;

pub use library::Library;
pub use peer::{Peer, Report};
pub use toolchain::Missing;
