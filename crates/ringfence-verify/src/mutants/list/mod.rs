//! The list of mutants: each with the rule that it breaks and the edits that break it.
//!
//! There is one file for each part of the product. To add a mutant, add an entry to the file of its
//! part:
//!
//! ```text
//! /// A ballot at or below the fence is stale.
//! FenceNotChecked:
//!     edit(ACQUIRE, "rule",
//!         "if ballot <= entry.effective_fence(rules, now, mode) {",
//!         "if ballot <= entry.effective_fence(rules, now, mode) && !mutant!(FenceNotChecked) {");
//! ```
//!
//! An edit names a file, a function in it (`name`, or `Type::name` if there are several; empty for
//! the whole file), a text that occurs there exactly once, and its replacement. White space,
//! comments and a comma after the last element are ignored when texts are compared. In a Rust file
//! the replacement contains the switch, `mutant!(NAME)`, which is true if the process was started
//! with that mutant. Where the edits of two mutants would overlap, both name one edit, which
//! contains both switches. In a Lua script the replacement is what the server runs instead, and
//! needs no switch.

#[macro_use]
mod entry;

mod acquisition;
mod breaks;
mod client;
mod confirmation;
mod failover;
mod hold;
mod ledger;
mod node;
mod protocol;
mod queue;
mod release;
mod runtime;
mod scripts;
mod scripts_births;
mod scripts_bundles;
mod scripts_data;
mod scripts_failover;

use entry::edit;
pub use entry::{Edit, Mutant, RunsOn};

/// All mutants, in the order of the parts.
pub fn all() -> Vec<&'static Mutant> {
    let parts = [
        ledger::MUTANTS,
        release::MUTANTS,
        queue::MUTANTS,
        breaks::MUTANTS,
        acquisition::MUTANTS,
        protocol::MUTANTS,
        confirmation::MUTANTS,
        failover::MUTANTS,
        hold::MUTANTS,
        runtime::MUTANTS,
        client::MUTANTS,
        node::MUTANTS,
        scripts::MUTANTS,
        scripts_bundles::MUTANTS,
        scripts_births::MUTANTS,
        scripts_failover::MUTANTS,
        scripts_data::MUTANTS,
    ];
    parts.into_iter().flatten().collect()
}

/// Edits that break nothing. They pass every script through a function that applies the edits of
/// the chosen mutant before the script is sent.
#[rustfmt::skip]
pub const HOOKS: &[Edit] = &[
    edit("crates/ringfence/src/node/redis/scripts/mod.rs", "Script::new",
        "let mut text = text.to_owned();",
        "let mut text = crate::mutants::script(text).to_owned();"),
    edit("crates/ringfence/tests/resource/stores.rs", "fenced",
        "Script::new(FENCED)",
        "Script::new(ringfence::mutants::script(FENCED))"),
    edit("crates/ringfence/tests/nodes/redis_node/birth_rule.rs", "join_script",
        r#"include_str!("../../../src/node/redis/scripts/join.lua")"#,
        r#"ringfence::mutants::script(include_str!("../../../src/node/redis/scripts/join.lua"))"#),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_rules_are_sentences() {
        let names: BTreeSet<&str> = all().iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), all().len());
        for mutant in all() {
            assert!(
                mutant.rule.ends_with('.'),
                "{}: {}",
                mutant.name,
                mutant.rule
            );
            assert!(
                !mutant.rule.contains('|'),
                "{}: a rule must fit in a cell of the table",
                mutant.name
            );
        }
    }
}
