//! Does the suite notice when a rule is broken? Each rule is broken in turn, and the checks are run
//! until one of them goes red. A mutant that none of them notices is a test that is missing.
//!
//! The product lists its mutants in `crates/ringfence-core/src/mutants/`, and only in a build with
//! `--cfg ringfence_mutants`. That build is made here ([`Build`]), beside the normal one; its test
//! programs are called directly ([`Suite`]), one mutant at a time for each core ([`Hunt`]). What caught
//! which is written down ([`Table`]), and tried first the next time.

mod build;
mod compiler;
mod hunt;
mod suite;
mod table;

pub use build::{Build, Listed, SUITES};
pub use compiler::stand_in;
pub use hunt::{Catch, Check, Hunt};
pub use suite::{Outcome, Suite};
pub use table::{Row, Table};
