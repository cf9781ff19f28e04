//! The mutants of the scripts, and those of the core. Only in a build with `--cfg ringfence_mutants`.

#[cfg(feature = "redis")]
pub(crate) mod lua;

#[cfg(feature = "redis")]
pub use lua::mutated;
pub use ringfence_core::mutants::*;
