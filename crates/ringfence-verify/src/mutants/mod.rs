//! Does the suite notice when a rule is broken? Each rule is broken in turn, and the checks are run
//! until one of them goes red. A mutant that none of them notices is a test that is missing.
//!
//! The product knows nothing of this. What can be broken, and how, is listed in [`list`]: edits of
//! the product's source (`edit.rs`). All of them go into one copy of the workspace
//! (`copy.rs`), each behind a switch, and that copy is built once ([`Build`]). Its test programs
//! are called directly ([`Suite`]), one mutant at a time for each core ([`Hunt`]). What caught
//! which is written down ([`Table`]), and tried first the next time.

mod build;
mod copy;
mod edit;
mod hunt;
pub mod list;
mod source;
mod suite;
mod table;

pub use build::{Build, SUITES};
pub use hunt::{Catch, Check, Hunt};
pub use list::{Mutant, Place};
pub use suite::{Outcome, Suite};
pub use table::{Row, Table};
