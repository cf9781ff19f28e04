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
    Divided(Box<Divided>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Divided {
    /// In node order.
    told: Box<[Told]>,
    /// Some nodes have not answered the attempt that won the lock, and no round has begun since.
    pub(super) acquiring: bool,
}

/// What one node has of the hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Told {
    /// What a release must handle on the node, without restores in progress.
    target: Target,
    /// The node's vote in the latest round.
    vote: Vote,
    /// How many restores the node may still execute: those without an answer.
    restores: u32,
}

impl Tally {
    /// According to the answers to the attempt that won the lock.
    pub(super) fn of(won: &Attempt) -> Self {
        let nodes = won.votes().count();
        let mut remains = won.remains_of_won();
        if remains.all(|(target, vote)| target == Target::Holds && *vote == Vote::Granted) {
            return Self::Unanimous { nodes };
        }
        let told = won.remains_of_won().map(|(target, vote)| Told {
            target,
            vote: vote.clone(),
            restores: 0,
        });
        Self::Divided(Box::new(Divided {
            told: told.collect(),
            acquiring: !won.is_complete(),
        }))
    }

    /// No node has answered yet.
    pub(super) fn unknown(nodes: usize) -> Self {
        let told = Told {
            target: Target::Unknown,
            vote: Vote::Pending,
            restores: 0,
        };
        Self::Divided(Box::new(Divided {
            told: vec![told; nodes].into(),
            acquiring: false,
        }))
    }

    /// The number of nodes.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Self::Unanimous { nodes } => *nodes,
            Self::Divided(divided) => divided.told.len(),
        }
    }

    /// A node answered `won` after the verdict. Ignored once a round of extending has begun.
    pub(super) fn take_acquire(&mut self, won: &Attempt) {
        let Self::Divided(divided) = self else { return };
        if !divided.acquiring {
            return;
        }
        for (told, (target, vote)) in divided.told.iter_mut().zip(won.remains_of_won()) {
            told.target = target;
            told.vote.clone_from(vote);
        }
        divided.acquiring = !won.is_complete();
        self.settle();
    }

    /// What a release must handle on each node.
    pub(super) fn targets(&self) -> Vec<Target> {
        match self {
            Self::Unanimous { nodes } => vec![Target::Holds; *nodes],
            Self::Divided(divided) => divided.told.iter().map(Told::remains).collect(),
        }
    }

    /// Every node's vote in the latest round, in node order.
    pub(super) fn votes(&self) -> Vec<Vote> {
        match self {
            Self::Unanimous { nodes } => vec![Vote::Granted; *nodes],
            Self::Divided(divided) => divided.told.iter().map(|told| told.vote.clone()).collect(),
        }
    }

    /// Takes the votes of a round of extending.
    pub(super) fn take<'a>(&mut self, votes: impl Iterator<Item = &'a Vote> + Clone) {
        let granted = votes.clone().all(|vote| *vote == Vote::Granted);
        if granted && matches!(self, Self::Unanimous { .. }) {
            return;
        }
        for (told, vote) in self.told().iter_mut().zip(votes) {
            told.target = match (vote, told.target) {
                (Vote::Granted, _) => Target::Holds,
                (Vote::Gone | Vote::Held(_), Target::Holds) => Target::Nothing,
                (_, target) => target,
            };
            told.vote.clone_from(vote);
        }
        self.settle();
    }

    /// The state of each node, as separate values.
    fn told(&mut self) -> &mut [Told] {
        if let Self::Unanimous { nodes } = self {
            let all = Told {
                target: Target::Holds,
                vote: Vote::Granted,
                restores: 0,
            };
            let told = vec![all; *nodes].into();
            let acquiring = false;
            *self = Self::Divided(Box::new(Divided { told, acquiring }));
        }
        match self {
            Self::Divided(divided) => {
                divided.acquiring = false;
                &mut divided.told
            }
            // Not reachable: the value was converted above.
            Self::Unanimous { .. } => &mut [],
        }
    }

    /// Takes an answer that came after the verdict of its round. It replaces only a missing vote.
    pub(super) fn take_late(&mut self, node: usize, vote: Vote) {
        let Self::Divided(divided) = self else { return };
        let told = &mut divided.told[node];
        if !matches!(told.vote, Vote::Pending | Vote::Silent) {
            return;
        }
        told.vote = vote;
        self.settle();
    }

    /// A restore is being sent to `node`. That says nothing about an acquire that may still arrive
    /// there: if its fate was unknown, it stays unknown.
    pub(super) fn put_back_on(&mut self, node: usize) {
        let told = &mut self.told()[node];
        told.restores += 1;
        if told.target == Target::Nothing {
            told.target = Target::Holds;
        }
    }

    /// A restore to `node` was answered.
    pub(super) fn restore_answered(&mut self, node: usize) {
        let Self::Divided(divided) = self else { return };
        let restores = &mut divided.told[node].restores;
        *restores = restores.saturating_sub(1);
        self.settle();
    }

    /// Frees the memory once all nodes have the lock.
    fn settle(&mut self) {
        if let Self::Divided(divided) = self
            && divided.told.iter().all(Told::has_it)
        {
            *self = Self::Unanimous {
                nodes: divided.told.len(),
            };
        }
    }
}

impl Told {
    /// What a release must handle on this node.
    fn remains(&self) -> Target {
        match self.restores > 0 {
            true => Target::Unknown,
            false => self.target,
        }
    }

    /// Whether the node has our token and confirmed it.
    fn has_it(&self) -> bool {
        self.target == Target::Holds && self.vote == Vote::Granted && self.restores == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Target::{Holds, Nothing, Unknown};
    use Vote::{Gone, Granted, Pending};

    /// A tally with these `targets`, after a round with these `votes`.
    fn divided(targets: &[Target], votes: &[Vote]) -> Tally {
        let mut tally = Tally::unknown(targets.len());
        for (told, target) in tally.told().iter_mut().zip(targets) {
            told.target = *target;
        }
        tally.take(votes.iter());
        tally
    }

    #[test]
    fn what_is_put_back_meanwhile_is_taken_back_in_the_end() {
        let mut tally = divided(&[Holds, Nothing, Unknown], &[Granted, Gone, Pending]);
        assert_eq!(tally.targets(), [Holds, Nothing, Unknown]);
        tally.put_back_on(1);
        assert_eq!(tally.targets(), [Holds, Unknown, Unknown]);
        tally.restore_answered(1);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.take_late(2, Granted);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
    }

    /// The acquire may still arrive, and a restore says nothing about that.
    #[test]
    fn a_restore_does_not_make_an_unknown_acquire_known() {
        let mut tally = divided(&[Holds, Holds, Unknown], &[Granted, Granted, Gone]);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.put_back_on(2);
        tally.restore_answered(2);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.take([Granted, Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3], "it has what was asked for");
    }

    #[test]
    fn a_restore_that_was_not_answered_may_arrive_at_any_time() {
        let mut tally = Tally::unknown(2);
        tally.take([Granted, Gone].iter());
        tally.put_back_on(1);
        tally.put_back_on(1);
        tally.restore_answered(1);
        tally.take([Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds, Unknown]);
        tally.restore_answered(1);
        assert!(matches!(tally, Tally::Unanimous { nodes: 2 }));
        // The same, if all nodes were believed to have the lock.
        tally.put_back_on(0);
        assert_eq!(tally.targets(), [Unknown, Holds]);
        tally.restore_answered(0);
        assert!(matches!(tally, Tally::Unanimous { nodes: 2 }));
    }

    #[test]
    fn what_all_nodes_have_takes_no_room() {
        let mut tally = Tally::unknown(3);
        tally.take([Granted, Granted, Granted].iter());
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
        tally.take([Granted, Granted, Granted].iter());
        assert_eq!(tally.targets(), [Holds; 3]);
        assert_eq!(tally.votes(), [Granted, Granted, Granted]);
        tally.take([Granted, Pending, Gone].iter());
        assert_eq!(tally.targets(), [Holds, Holds, Nothing]);
        assert_eq!(tally.votes(), [Granted, Pending, Gone]);
        tally.take_late(1, Granted);
        tally.put_back_on(2);
        tally.restore_answered(2);
        assert_eq!(tally.targets(), [Holds; 3]);
        assert_eq!(tally.votes(), [Granted, Granted, Gone]);
        tally.take([Granted, Granted, Pending].iter());
        tally.take_late(2, Granted);
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
    }

    #[test]
    fn a_late_answer_changes_neither_a_vote_that_was_cast_nor_what_is_to_be_taken_back() {
        let mut tally = Tally::unknown(2);
        tally.take([Granted, Pending].iter());
        tally.take_late(0, Gone);
        tally.take_late(1, Granted);
        assert_eq!(tally.votes(), [Granted, Granted]);
        assert_eq!(tally.targets(), [Holds, Unknown]);
    }
}
