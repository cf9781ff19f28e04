//! Which group values a client adopts: those of a majority, and only if they are safe. One node can
//! neither make them up nor keep others from joining.

use std::time::Duration;

use crate::group::Group;
use crate::node::{CallError, Facts, Trouble, TroubleKind};

use super::quorum;

/// The group values that a client was given explicitly; the others are adopted from the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// How far a node's clock may be from the others'.
    pub window: Option<Duration>,
    /// How long a node that may have forgotten locks does not vote.
    pub quarantine: Option<Duration>,
}

impl Wishes {
    /// `group` with what was given explicitly.
    pub fn over(&self, group: Group) -> Group {
        Group {
            window: self.window.unwrap_or(group.window),
            quarantine: self.quarantine.unwrap_or(group.quarantine),
            ..group
        }
    }

    /// The values of the group to join: what most nodes say, where nothing else was given. `None`
    /// without a majority.
    pub fn decide(&self, answers: &[Result<Facts, CallError>]) -> Option<Group> {
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        (answered >= quorum(answers.len())).then(|| self.adopt(answers))
    }

    /// The same, whether a majority has answered or not.
    pub fn adopt(&self, answers: &[Result<Facts, CallError>]) -> Group {
        let told = told(answers).filter(|group| group.nodes == answers.len());
        self.most_told(told.collect(), answers.len())
    }

    /// The values of a group that changes its number of nodes: those that most nodes had, where
    /// nothing else was given.
    pub fn inherit(&self, answers: &[Result<Facts, CallError>]) -> Group {
        let nodes = answers.len();
        // Judged as values of the group that is to be.
        let told = told(answers).map(|group| Group { nodes, ..group });
        self.most_told(told.collect(), nodes)
    }

    /// The values in `told` that most say. Of those that are said equally often our own are taken,
    /// else the first: a node that has others refuses us, and says which.
    fn most_told(&self, mut told: Vec<Group>, nodes: usize) -> Group {
        let own = self.over(Group::new(nodes));
        told.retain(|group| group.check().is_ok());
        let said = |group: &Group| told.iter().filter(|other| *other == group).count();
        let most = told.iter().rev();
        let most = most.max_by_key(|group| (said(group), **group == own));
        self.over(most.copied().unwrap_or(own))
    }
}

fn told(answers: &[Result<Facts, CallError>]) -> impl Iterator<Item = Group> {
    answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok()?.group)
}

/// `answers` in which a node with values that are not safe has refused itself: the quarantine that it
/// claims would let a restarted node vote while its locks are still held.
pub fn vetted(
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
        "{node} says that it belongs to a group whose values are not safe: {why}; find out which \
         client wrote them, stop all clients, and overwrite them with `ringfence init`"
    );
    CallError::Refused(Trouble::new(TroubleKind::Group, detail))
}

/// Whether no answer that is still to come can change what is decided: a majority has one and the
/// same values, or none yet.
pub fn settled(answers: &[Option<Result<Facts, CallError>>]) -> bool {
    let safe = |group: &Option<Group>| group.is_none_or(|group| group.check().is_ok());
    let said = answers.iter().flatten().flatten().map(|facts| facts.group);
    let said: Vec<Option<Group>> = said.filter(safe).collect();
    let alike = |one: &Option<Group>| said.iter().filter(|other| *other == one).count();
    let most = said.iter().map(alike).max().unwrap_or_default();
    most >= quorum(answers.len())
}
