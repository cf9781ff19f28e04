//! What the nodes have of a hold, according to their answers.

use crate::protocol::{Attempt, Target, Vote};

/// What the nodes have of a hold, according to their answers. There may be a hundred thousand of
/// these, and most are unanimous, which needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Tally {
    /// All nodes have the lock and confirmed it in the latest round.
    Unanimous {
        nodes: usize,
    },
    PerNode(Box<PerNode>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PerNode {
    /// In node order.
    nodes: Box<[NodeTally]>,
    /// Some nodes have not answered the attempt that won the lock, and no round has begun since.
    pub(super) acquiring: bool,
}

/// What one node has of the hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeTally {
    /// What a release must handle on the node, without restores in progress.
    target: Target,
    /// The node's vote in the latest round.
    vote: Vote,
    /// How many restores the node may still execute: those without an answer.
    restores: u32,
    /// Something may still arrive at the node: an extend whose reply was lost, or a copy of a
    /// restore. The network may deliver a restore twice, and the second copy after the release.
    may_arrive: bool,
}

impl Tally {
    /// According to the answers to the attempt that won the lock.
    pub(super) fn of(won: &Attempt) -> Self {
        let nodes = won.votes().count();
        let mut remains = won.remains_of_won();
        if remains.all(|(target, vote)| target == Target::Holds && *vote == Vote::Granted) {
            return Self::Unanimous { nodes };
        }
        let states = won.remains_of_won().map(|(target, vote)| NodeTally {
            target,
            vote: vote.clone(),
            restores: 0,
            may_arrive: false,
        });
        Self::PerNode(Box::new(PerNode {
            nodes: states.collect(),
            acquiring: !won.is_complete(),
        }))
    }

    /// No node has answered yet.
    pub(super) fn unknown(nodes: usize) -> Self {
        let state = NodeTally {
            target: Target::Unknown,
            vote: Vote::Pending,
            restores: 0,
            may_arrive: false,
        };
        Self::PerNode(Box::new(PerNode {
            nodes: vec![state; nodes].into(),
            acquiring: false,
        }))
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Self::Unanimous { nodes } => *nodes,
            Self::PerNode(per_node) => per_node.nodes.len(),
        }
    }

    /// A node answered `won` after the verdict. Ignored once a round of extending has begun.
    pub(super) fn record_acquire(&mut self, won: &Attempt) {
        let Self::PerNode(per_node) = self else {
            return;
        };
        if !per_node.acquiring {
            return;
        }
        for (state, (target, vote)) in per_node.nodes.iter_mut().zip(won.remains_of_won()) {
            state.target = target;
            state.vote.clone_from(vote);
        }
        per_node.acquiring = !won.is_complete();
        self.settle();
    }

    /// What a release must handle on each node, apart from extends that are under way.
    pub(super) fn targets(&self) -> Vec<Target> {
        match self {
            Self::Unanimous { nodes } => vec![Target::Holds; *nodes],
            Self::PerNode(per_node) => per_node.nodes.iter().map(NodeTally::remains).collect(),
        }
    }

    /// Whether something may still arrive at a node, apart from rounds in progress.
    pub(super) fn may_arrive(&self) -> bool {
        matches!(self, Self::PerNode(per_node) if per_node.nodes.iter().any(|n| n.may_arrive))
    }

    /// Every node's vote in the latest round, in node order.
    pub(super) fn votes(&self) -> Vec<Vote> {
        match self {
            Self::Unanimous { nodes } => vec![Vote::Granted; *nodes],
            Self::PerNode(per_node) => per_node
                .nodes
                .iter()
                .map(|state| state.vote.clone())
                .collect(),
        }
    }

    /// Takes the votes of a round of extending.
    pub(super) fn record_round<'a>(&mut self, votes: impl Iterator<Item = &'a Vote> + Clone) {
        let granted = votes.clone().all(|vote| *vote == Vote::Granted);
        if granted && matches!(self, Self::Unanimous { .. }) {
            return;
        }
        for (state, vote) in self.per_node_mut().iter_mut().zip(votes) {
            state.target = match (vote, state.target) {
                // An acquire that is still under way does no harm: the node has its fence.
                (Vote::Granted, _) => Target::Holds,
                (vote, Target::Holds) if vote.proves_loss() => Target::Nothing,
                (_, target) => target,
            };
            state.vote.clone_from(vote);
        }
        self.settle();
    }

    /// The state of each node, as separate values.
    fn per_node_mut(&mut self) -> &mut [NodeTally] {
        if let Self::Unanimous { nodes } = self {
            let all = NodeTally {
                target: Target::Holds,
                vote: Vote::Granted,
                restores: 0,
                may_arrive: false,
            };
            let nodes = vec![all; *nodes].into();
            let acquiring = false;
            *self = Self::PerNode(Box::new(PerNode { nodes, acquiring }));
        }
        match self {
            Self::PerNode(per_node) => {
                per_node.acquiring = false;
                &mut per_node.nodes
            }
            // Not reachable: the value was converted above.
            Self::Unanimous { .. } => &mut [],
        }
    }

    /// Takes an answer that came after the verdict of its round. It replaces only a missing vote.
    pub(super) fn record_late_vote(&mut self, node: usize, vote: Vote) {
        let Self::PerNode(per_node) = self else {
            return;
        };
        let state = &mut per_node.nodes[node];
        if !matches!(state.vote, Vote::Pending | Vote::TimedOut) {
            return;
        }
        state.vote = vote;
        self.settle();
    }

    /// The reply to an extend on `node` was lost.
    pub(super) fn extend_lost(&mut self, node: usize) {
        self.per_node_mut()[node].may_arrive = true;
    }

    /// A restore is being sent to `node`. That says nothing about an acquire that may still arrive
    /// there: if its fate was unknown, it stays unknown.
    pub(super) fn restore_sent(&mut self, node: usize) {
        let state = &mut self.per_node_mut()[node];
        state.restores += 1;
        state.may_arrive = true;
        if state.target == Target::Nothing {
            state.target = Target::Holds;
        }
    }

    /// A restore to `node` was answered.
    pub(super) fn restore_answered(&mut self, node: usize) {
        let Self::PerNode(per_node) = self else {
            return;
        };
        let restores = &mut per_node.nodes[node].restores;
        *restores = restores.saturating_sub(1);
        self.settle();
    }

    /// Frees the memory once all nodes have the lock.
    fn settle(&mut self) {
        if let Self::PerNode(per_node) = self
            && per_node.nodes.iter().all(NodeTally::is_confirmed)
        {
            *self = Self::Unanimous {
                nodes: per_node.nodes.len(),
            };
        }
    }
}

impl NodeTally {
    /// What a release must handle on this node.
    fn remains(&self) -> Target {
        match self.restores > 0 {
            true => Target::Unknown,
            false => self.target,
        }
    }

    /// Whether the node has our token and confirmed it.
    fn is_confirmed(&self) -> bool {
        let answered = self.restores == 0 && !self.may_arrive;
        self.target == Target::Holds && self.vote == Vote::Granted && answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Target::{Holds, Nothing, Unknown};
    use Vote::{Gone, Granted, Pending};

    /// A tally with these `targets`, after a round with these `votes`.
    fn per_node(targets: &[Target], votes: &[Vote]) -> Tally {
        let mut tally = Tally::unknown(targets.len());
        for (state, target) in tally.per_node_mut().iter_mut().zip(targets) {
            state.target = *target;
        }
        tally.record_round(votes.iter());
        tally
    }

    #[test]
    fn a_restored_lock_is_released_in_the_end() {
        let mut tally = per_node(&[Holds, Nothing, Unknown], &[Granted, Gone, Pending]);
        assert_eq!(tally.targets(), [Holds, Nothing, Unknown]);
        tally.restore_sent(1);
        assert_eq!(tally.targets(), [Holds, Unknown, Unknown]);
        tally.restore_answered(1);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.record_late_vote(2, Granted);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
    }

    /// The acquire may still arrive, and a restore says nothing about that.
    #[test]
    fn a_restore_does_not_make_an_unknown_acquire_known() {
        let mut tally = per_node(&[Holds, Holds, Unknown], &[Granted, Granted, Gone]);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.restore_sent(2);
        tally.restore_answered(2);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.record_round([Granted, Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3], "all nodes confirmed it");
    }

    #[test]
    fn a_restore_that_was_not_answered_may_arrive_at_any_time() {
        let mut tally = Tally::unknown(2);
        tally.record_round([Granted, Gone].iter());
        tally.restore_sent(1);
        tally.restore_sent(1);
        tally.restore_answered(1);
        tally.record_round([Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds, Unknown]);
        tally.restore_answered(1);
        assert_eq!(tally.targets(), [Holds; 2]);
        // The same, if all nodes were believed to have the lock.
        tally.restore_sent(0);
        assert_eq!(tally.targets(), [Unknown, Holds]);
        tally.restore_answered(0);
        assert_eq!(tally.targets(), [Holds; 2]);
        // A second copy of a restore may still arrive.
        assert!(tally.may_arrive());
    }

    #[test]
    fn a_unanimous_tally_needs_no_allocation() {
        let mut tally = Tally::unknown(3);
        tally.record_round([Granted, Granted, Granted].iter());
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
        tally.record_round([Granted, Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3]);
        assert_eq!(tally.votes(), [Granted, Granted, Granted]);
        tally.record_round([Granted, Pending, Gone].iter());
        assert_eq!(tally.targets(), [Holds, Holds, Nothing]);
        assert_eq!(tally.votes(), [Granted, Pending, Gone]);
        tally.record_late_vote(1, Granted);
        assert_eq!(tally.votes(), [Granted, Granted, Gone]);
        tally.record_round([Granted, Pending, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3]);
        tally.record_late_vote(1, Granted);
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
    }

    #[test]
    fn a_late_answer_changes_neither_an_earlier_vote_nor_a_release_target() {
        let mut tally = Tally::unknown(2);
        tally.record_round([Granted, Pending].iter());
        tally.record_late_vote(0, Gone);
        tally.record_late_vote(1, Granted);
        assert_eq!(tally.votes(), [Granted, Granted]);
        assert_eq!(tally.targets(), [Holds, Unknown]);
    }
}
