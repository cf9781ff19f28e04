//! What each node answered, and what that means, in words.

use std::fmt;
use std::time::Duration;

use crate::message::Holder;
use crate::node::{CallError, Tier, Trouble};
use crate::protocol::{Vote, ceil_secs, quorum};

/// One node's part in an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeVote {
    /// The name of the node.
    pub node: String,
    /// Its vote.
    pub vote: Vote,
    /// What a crash of this node may cost, where that is known and asked for.
    pub tier: Option<Tier>,
    /// How a vote in favour reads: what it was in favour of depends on the question.
    granted: &'static str,
}

impl NodeVote {
    /// The vote in words, to be printed after the node's name.
    pub fn said(&self) -> String {
        if self.vote == Vote::Granted {
            return self.granted.to_owned();
        }
        let said = self.vote.to_string();
        let after_name = said
            .strip_prefix(&self.node)
            .and_then(|rest| rest.strip_prefix(' '));
        // Some texts of a node begin with its name.
        after_name.map_or(said.clone(), str::to_owned)
    }
}

/// Every node's part in an operation, in node order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Votes {
    nodes: Vec<NodeVote>,
}

impl Votes {
    pub(crate) fn new(names: &[String], votes: impl IntoIterator<Item = Vote>) -> Self {
        Self::worded("granted", names, votes)
    }

    /// Votes on something else than a grant.
    pub(super) fn worded(
        granted: &'static str,
        names: &[String],
        votes: impl IntoIterator<Item = Vote>,
    ) -> Self {
        let votes = names.iter().cloned().zip(votes);
        Self {
            nodes: votes
                .map(|(node, vote)| NodeVote {
                    vote: named(vote, &node, names),
                    node,
                    tier: None,
                    granted,
                })
                .collect(),
        }
    }

    /// The same votes with what a crash of each node may cost, in node order.
    pub(super) fn with_tiers(mut self, tiers: impl Iterator<Item = Option<Tier>>) -> Self {
        for (node, tier) in self.nodes.iter_mut().zip(tiers) {
            node.tier = tier;
        }
        self
    }

    /// What a crash may cost the lock that these votes grant: what the best majority of them
    /// gives. `None` without a majority.
    pub(super) fn durability(&self) -> Option<Tier> {
        let holding = self.iter().filter(|node| node.vote == Vote::Granted);
        let tiers = holding.map(|node| node.tier.unwrap_or(Tier::BestEffort));
        Tier::of_majority(tiers, self.len())
    }

    /// The holder that keeps a caller from the lock: the one that most nodes name.
    pub fn holder(&self) -> Option<&Holder> {
        let holders = self.iter().filter_map(held);
        holders.max_by_key(|one| self.naming(one))
    }

    /// How many nodes name the holder `one`.
    fn naming(&self, one: &Holder) -> usize {
        let holders = self.iter().filter_map(held);
        holders.filter(|other| other.id == one.id).count()
    }

    /// Whether no holder can have a majority, whatever the nodes would answer that have not.
    fn is_split(&self) -> bool {
        let unsaid = self.iter().filter(|node| !node.vote.is_answer()).count();
        let most = self.holder().map_or(0, |holder| self.naming(holder));
        most + unsaid < quorum(self.len())
    }
}

/// The vote of `node`, with the names of the nodes that it is about.
fn named(vote: Vote, node: &str, names: &[String]) -> Vote {
    match vote {
        Vote::Duplicate { of } => {
            let trouble = Trouble::duplicate(node, &names[of]);
            Vote::Failed(CallError::Refused(trouble))
        }
        other => other,
    }
}

fn held(node: &NodeVote) -> Option<&Holder> {
    match &node.vote {
        Vote::Held(holder) => Some(holder),
        _ => None,
    }
}

impl std::ops::Deref for Votes {
    type Target = [NodeVote];

    fn deref(&self) -> &[NodeVote] {
        &self.nodes
    }
}

impl fmt::Display for Votes {
    /// One line for each node, in node order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, vote) in self.nodes.iter().enumerate() {
            let line_break = if number == 0 { "" } else { "\n" };
            write!(f, "{line_break}{}: {}", vote.node, vote.said())?;
        }
        Ok(())
    }
}

/// What keeps a caller from the lock.
pub(super) fn held_by(votes: &Votes) -> String {
    match votes.holder() {
        Some(_) if votes.is_split() => {
            "contended: no holder has a majority of the nodes".to_owned()
        }
        Some(holder) => holder.to_string(),
        // Two callers met again and again and stopped each other.
        None => "contended: others keep asking for it".to_owned(),
    }
}

/// Which nodes do not vote yet, for how long, and what to do.
pub(super) fn not_voting(votes: &Votes, left: Duration) -> String {
    let who = |wanted: fn(&Vote) -> bool| -> String {
        let nodes = votes.iter().filter(|node| wanted(&node.vote));
        let nodes: Vec<&str> = nodes.map(|node| node.node.as_str()).collect();
        nodes.join(", ")
    };
    let young = who(|vote| matches!(vote, Vote::Quarantined { .. }));
    let jumped = who(|vote| matches!(vote, Vote::ClockJumped { .. }));
    let secs = ceil_secs(left);
    if votes.iter().any(|node| node.vote == Vote::Outdated) {
        return "this machine was paused while it asked the nodes; try again".to_owned();
    }
    let moved = who(|vote| *vote == Vote::Moved);
    match (young.is_empty(), jumped.is_empty()) {
        (true, true) if !moved.is_empty() => format!(
            "nodes {moved} were restarted, or their addresses re-pointed, while they were asked; try again"
        ),
        (false, true) => format!(
            "nodes {young} are new or restarted and may vote in {secs} s; for a new cluster run `ringfence init`"
        ),
        (true, false) => format!(
            "the clocks of nodes {jumped} jumped, and they may vote in {secs} s; look at what sets their clocks"
        ),
        (false, false) => format!(
            "nodes {young} are new or restarted, the clocks of nodes {jumped} jumped, and a majority may vote in {secs} s"
        ),
        (true, true) => format!("a majority of the nodes may vote in {secs} s"),
    }
}
