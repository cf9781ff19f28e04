//! Which group values a client adopts: those of a majority, and only if they are safe. One node can
//! neither make them up nor keep others from joining.

use crate::group::Group;
use crate::node::{CallError, Facts, Trouble, TroubleKind};
use crate::protocol::quorum;

/// `answers` in which a node with values that are not safe has refused itself: the quarantine that it
/// claims would let a restarted node vote while its locks are still held.
pub(super) fn vetted(
    names: &[String],
    answers: Vec<Result<Facts, CallError>>,
) -> Vec<Result<Facts, CallError>> {
    let nodes = names.iter().zip(answers);
    let vetted = nodes.map(|(name, answer)| {
        let facts = answer?;
        match facts.group.map(|group| group.check()) {
            Some(Err(why)) => Err(unsafe_values(name, &why)),
            _ => Ok(facts),
        }
    });
    vetted.collect()
}

fn unsafe_values(node: &str, why: &str) -> CallError {
    let detail = format!(
        "{node} says that it belongs to a group whose values are not safe: {why}; find out who wrote \
         them, then stop all clients and run `ringfence init --force`"
    );
    CallError::Refused(Trouble::new(TroubleKind::Group, detail))
}

/// Whether no answer that is still to come can change what is decided: a majority has one and the
/// same values, or none yet.
pub(super) fn settled(answers: &[Option<Result<Facts, CallError>>]) -> bool {
    let safe = |group: &Option<Group>| group.is_none_or(|group| group.check().is_ok());
    let said = answers.iter().flatten().flatten().map(|facts| facts.group);
    let said: Vec<Option<Group>> = said.filter(safe).collect();
    let alike = |one: &Option<Group>| said.iter().filter(|other| *other == one).count();
    let most = said.iter().map(alike).max().unwrap_or_default();
    most >= quorum(answers.len())
}

/// The values in `told` that most say. Of those that are said equally often our `own` are taken, else
/// the first: whoever has others refuses us, and says which.
pub(super) fn most_told(told: &[Group], own: &Group) -> Option<Group> {
    let safe = |group: &&Group| group.check().is_ok();
    let told: Vec<&Group> = told.iter().filter(safe).collect();
    let said = |group: &Group| told.iter().filter(|other| **other == group).count();
    let weight = |group: &Group| (said(group), group == own);
    let most = told.iter().rev().max_by_key(|group| weight(group));
    most.map(|group| **group)
}
