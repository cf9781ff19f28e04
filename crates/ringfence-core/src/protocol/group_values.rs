//! Which group values a client adopts: those of a majority, and only if they are safe. One faulty
//! node can neither invent them nor keep clients from joining.

use std::time::Duration;

use crate::group::{Failover, Group};
use crate::node::{CallError, Facts, Trouble, TroubleKind};

use super::quorum;

/// The group values that the user set explicitly. The client adopts the others from the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExplicitValues {
    /// The largest distance between a ballot and a node's clock (`w`).
    pub window: Option<Duration>,
    /// How long a node that may have lost locks may not vote (`Q`).
    pub quarantine: Option<Duration>,
    /// What a failover behind a single node costs.
    pub failover: Option<Failover>,
    /// For how long after a promotion a former master may still count (`X`).
    pub stale_master: Option<Duration>,
    /// Within which time the reply of a grant must be read (`D`).
    pub reply_within: Option<Duration>,
    /// Whether a node is found through Sentinels, which has a default of its own.
    pub sentinels: bool,
}

impl ExplicitValues {
    /// The values of a new group of `nodes` nodes: the explicit ones and the defaults.
    pub fn of_new_group(&self, nodes: usize) -> Group {
        let defaults = Group::new(nodes);
        self.over(match self.sentinels {
            true => Group {
                stale_master: Group::STALE_MASTER_SENTINEL,
                ..defaults
            },
            false => defaults,
        })
    }

    /// `group`, with the explicit values in place of its own.
    pub fn over(&self, group: Group) -> Group {
        Group {
            window: self.window.unwrap_or(group.window),
            quarantine: self.quarantine.unwrap_or(group.quarantine),
            failover: self.failover.unwrap_or(group.failover),
            stale_master: self.stale_master.unwrap_or(group.stale_master),
            reply_within: self.reply_within.unwrap_or(group.reply_within),
            ..group
        }
    }

    /// The values of the group to join: the explicit ones, and otherwise those that most nodes
    /// report. `None` if no majority has answered.
    pub fn decide(&self, answers: &[Result<Facts, CallError>]) -> Option<Group> {
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        (answered >= quorum(answers.len())).then(|| self.adopt(answers))
    }

    /// The same, also if no majority has answered.
    pub fn adopt(&self, answers: &[Result<Facts, CallError>]) -> Group {
        let reported = reported(answers).filter(|group| group.nodes == answers.len());
        self.most_reported(reported.collect(), answers.len())
    }

    /// The values for a group whose number of nodes changes: the explicit ones, and otherwise those
    /// that most nodes had.
    pub fn inherit(&self, answers: &[Result<Facts, CallError>]) -> Group {
        let nodes = answers.len();
        // Check them as the values of the new group.
        let reported = reported(answers).map(|group| Group { nodes, ..group });
        self.most_reported(reported.collect(), nodes)
    }

    /// The values that most nodes report. On a tie the explicit values and defaults win, else the
    /// earlier node's. A node with other values refuses the client, with an error that names both.
    fn most_reported(&self, mut reported: Vec<Group>, nodes: usize) -> Group {
        let own = self.of_new_group(nodes);
        reported.retain(|group| group.check().is_ok());
        let count = |group: &Group| reported.iter().filter(|other| *other == group).count();
        let most = reported.iter().rev();
        let most = most.max_by_key(|group| (count(group), **group == own));
        self.over(most.copied().unwrap_or(own))
    }
}

fn reported(answers: &[Result<Facts, CallError>]) -> impl Iterator<Item = Group> {
    answers
        .iter()
        .filter_map(|answer| answer.as_ref().ok()?.group)
}

/// The answers, with an error in place of a node whose group values are not safe. With too short a
/// quarantine a restarted node would vote while its lost locks are still held.
pub fn refuse_unsafe(
    names: &[String],
    answers: Vec<Result<Facts, CallError>>,
) -> Vec<Result<Facts, CallError>> {
    let nodes = names.iter().zip(answers);
    let refuse_unsafe = nodes.map(|(name, answer)| {
        let facts = answer?;
        match facts.group.map(|group| group.check()) {
            Some(Err(why)) => Err(unsafe_values(name, &why)),
            _ => Ok(facts),
        }
    });
    refuse_unsafe.collect()
}

fn unsafe_values(node: &str, why: &str) -> CallError {
    let detail = format!(
        "{node} has group values that are not safe: {why}; find the program that wrote them, then \
         stop all clients and overwrite the values with `ringfence init`"
    );
    CallError::Refused(Trouble::new(TroubleKind::Group, detail))
}

/// Whether no further answer can change the decision: a majority reports the same values. A majority
/// without values decides nothing. If it was restarted empty, the other nodes still know the group's
/// quarantine, and a shorter one would let the restarted nodes vote while lost locks are still held.
pub fn settled(answers: &[Option<Result<Facts, CallError>>]) -> bool {
    let reported = answers.iter().flatten().flatten();
    let reported = reported.filter_map(|facts| facts.group);
    let reported: Vec<Group> = reported.filter(|group| group.check().is_ok()).collect();
    let alike = |one: &Group| reported.iter().filter(|other| *other == one).count();
    let most = reported.iter().map(alike).max().unwrap_or_default();
    most >= quorum(answers.len())
}
