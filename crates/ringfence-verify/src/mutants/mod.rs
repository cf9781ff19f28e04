//! Checks that the tests notice a broken rule. Each rule is broken in turn, and the tests run until
//! one of them fails. A mutant that no test notices shows that a test is missing.
//!
//! The product knows nothing about this. [`list`] names the rules and the edits of the product's
//! source that break them (`edit.rs`). All edits go into one copy of the workspace (`copy.rs`),
//! each behind a switch, and that copy is built once ([`Build`]). Its test programs are run
//! directly ([`Suite`]), one mutant at a time for each core ([`Hunt`]). The table ([`Table`])
//! records which test caught which mutant; that test is tried first the next time.

mod build;
mod copy;
mod edit;
mod hunt;
pub mod list;
mod source;
mod suite;
mod table;

pub use build::Build;
pub use hunt::{Catch, Check, Hunt};
pub use list::{Mutant, RunsOn};
pub use suite::{Outcome, Suite};
pub use table::{Row, Table};
