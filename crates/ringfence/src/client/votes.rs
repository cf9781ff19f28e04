//! What each node answered, and what that means, in words.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::message::Holder;
use crate::node::{CallError, Tier, Trouble};
use crate::observation::after_name;
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
        after_name(&self.node, &self.vote.to_string()).to_owned()
    }
}

/// Every node's part in an operation, in node order.
///
/// As text it is one line, with nodes that said the same together: `a, b: connection refused; c:
/// granted`. `{:#}` writes one line for each node. It is the [`source`](Error::source) of the error
/// that carries it, unless the error's own line has said it: with one node, always.
#[derive(Clone, PartialEq, Eq)]
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
    pub fn holder(&self) -> Option<super::inspection::Holder> {
        self.named_holder().map(From::from)
    }

    fn named_holder(&self) -> Option<&Holder> {
        let holders = self.iter().filter_map(held);
        holders.max_by_key(|one| self.naming(one))
    }

    /// The line of an error: `several` if there are several nodes, whose votes are its source. If
    /// there is only one, `only_one` and what that node said.
    pub(super) fn told(&self, several: impl fmt::Display, only_one: impl fmt::Display) -> String {
        match &*self.nodes {
            [node] => format!("{only_one}: {}: {}", node.node, node.said()),
            _ => several.to_string(),
        }
    }

    /// The votes as the source of an error whose line is made by [`told`](Self::told).
    pub(super) fn as_source(&self) -> Option<&(dyn Error + 'static)> {
        (self.len() > 1).then_some(self as _)
    }

    /// The votes as the source of an error that says who holds the lock: unless it has named the
    /// holder.
    pub(super) fn as_source_of_held(&self) -> Option<&(dyn Error + 'static)> {
        let naming = self.named_holder().map(|holder| self.naming(holder));
        let is_named = naming.is_some_and(|naming| naming >= quorum(self.len()));
        self.as_source().filter(|_| !is_named)
    }

    /// The votes as the source of an error that says which nodes do not vote yet: unless it has
    /// named them all.
    pub(super) fn as_source_of_quarantine(&self) -> Option<&(dyn Error + 'static)> {
        let is_named = |node: &NodeVote| {
            matches!(
                node.vote,
                Vote::Quarantined { .. } | Vote::ClockJumped { .. }
            )
        };
        let are_named = self.iter().all(is_named);
        self.as_source().filter(|_| !are_named)
    }

    /// How many nodes name the holder `one`.
    fn naming(&self, one: &Holder) -> usize {
        let holders = self.iter().filter_map(held);
        holders.filter(|other| other.id == one.id).count()
    }

    /// Whether no holder can have a majority, whatever the nodes would answer that have not.
    fn is_split(&self) -> bool {
        let unsaid = self.iter().filter(|node| !node.vote.is_answer()).count();
        let most = self.named_holder().map_or(0, |holder| self.naming(holder));
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

impl Error for Votes {}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<(String, String)> = Vec::new();
        for (node, said) in self.iter().map(|vote| (&vote.node, vote.said())) {
            match lines.iter_mut().find(|(_, other)| *other == said) {
                Some((nodes, _)) if !f.alternate() => *nodes += &format!(", {node}"),
                _ => lines.push((node.clone(), said)),
            }
        }
        let lines: Vec<String> = lines
            .iter()
            .map(|(who, said)| format!("{who}: {said}"))
            .collect();
        f.write_str(&lines.join(if f.alternate() { "\n" } else { "; " }))
    }
}

impl fmt::Debug for Votes {
    /// The same words as `Display`: a `main` that returns an error prints its `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |node: &NodeVote| format!("{}: {}", node.node, node.said());
        f.debug_list().entries(self.iter().map(said)).finish()
    }
}

/// Why waiting does not help.
pub(super) fn not_fit(votes: &Votes) -> String {
    votes.told(
        "a majority of the nodes is not fit to hold locks",
        "the node is not fit to hold locks",
    )
}

/// What keeps a caller from the lock.
pub(super) fn held_by(votes: &Votes) -> String {
    match votes.named_holder() {
        Some(_) if votes.is_split() => {
            "contended: no holder has a majority of the nodes".to_owned()
        }
        Some(holder) => holder.to_string(),
        // Two callers met again and again and stopped each other.
        None => votes.told(
            "contended: others keep asking for it",
            "contended: others keep asking for it",
        ),
    }
}

/// Which nodes do not vote on a latch yet, for how long, and what to do.
pub(super) fn not_voting_on_latch(votes: &Votes, left: Duration) -> String {
    let is_young = |node: &&NodeVote| matches!(node.vote, Vote::Quarantined { .. });
    let young: Vec<&str> = votes
        .iter()
        .filter(is_young)
        .map(|node| &*node.node)
        .collect();
    if young.is_empty() {
        return not_voting(votes, left);
    }
    format!(
        "nodes {} were new or restarted less than the latch's ttl ago and may have forgotten it; \
         they may vote on it in {} s; a latch with a shorter ttl waits for less",
        young.join(", "),
        ceil_secs(left)
    )
}

/// Which nodes do not vote yet, for how long, and what to do. Nodes that do not vote for another
/// reason come first: waiting does not help there, and the cluster is not new.
pub(super) fn not_voting(votes: &Votes, left: Duration) -> String {
    let who = |is_unfit: bool| -> Vec<&str> {
        let failed = votes.iter().filter(|node| match &node.vote {
            Vote::Failed(error) => error.trouble().is_misconfiguration() == is_unfit,
            _ => false,
        });
        failed.map(|node| node.node.as_str()).collect()
    };
    let said = [
        (who(false), "have not answered"),
        (who(true), "are not fit to vote"),
    ];
    let others = said.into_iter().filter(|(nodes, _)| !nodes.is_empty());
    let others = others.map(|(nodes, word)| format!("nodes {} {word}; ", nodes.join(", ")));
    let others: String = others.collect();
    match others.is_empty() {
        true => not_voting_yet(votes, left, true),
        false => format!(
            "no majority: {others}{}",
            not_voting_yet(votes, left, false)
        ),
    }
}

/// If the cluster `may_be_new`, and no node votes and most are young: what to do then.
fn not_voting_yet(votes: &Votes, left: Duration, may_be_new: bool) -> String {
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
        (false, true) => {
            let is_young = |node: &&NodeVote| matches!(node.vote, Vote::Quarantined { .. });
            let is_majority = votes.iter().filter(is_young).count() >= quorum(votes.len());
            let hint = match may_be_new
                && is_majority
                && !votes.iter().any(|node| node.vote.is_answer())
            {
                true => {
                    "; for a new cluster run `ringfence init`, or call `Builder::init` in a program, once"
                }
                false => "",
            };
            format!("nodes {young} are new or restarted and may vote in {secs} s{hint}")
        }
        (true, false) => format!(
            "the clocks of nodes {jumped} jumped, and they may vote in {secs} s; look at what sets their clocks"
        ),
        (false, false) => format!(
            "nodes {young} are new or restarted, the clocks of nodes {jumped} jumped, and a majority may vote in {secs} s"
        ),
        (true, true) => format!("a majority of the nodes may vote in {secs} s"),
    }
}
