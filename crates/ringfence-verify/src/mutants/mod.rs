//! Does the suite notice when a rule is broken? Each rule is broken in turn, and the checks are run
//! until one of them goes red. A mutant that none of them notices is a test that is missing.
//!
//! The product lists its mutants in `crates/ringfence/src/mutants/`, and only in a build with
//! `--cfg ringfence_mutants`. That build is made here ([`Build`]), apart from the normal one; its test
//! programs are called directly ([`Suite`]), one mutant at a time for each core ([`hunt`]).

mod build;
mod hunt;
mod report;
mod suite;

pub use build::{Build, Listed};
pub use hunt::{Catch, hunt};
pub use report::table;
pub use suite::{Outcome, Suite};
