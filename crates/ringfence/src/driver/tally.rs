//! What the nodes have of a hold, as far as they told.

use std::sync::Arc;

use crate::protocol::{Attempt, Target, Vote};

use super::flight::Flight;

/// What the nodes have of a hold, as far as they told. There may be a hundred thousand of these, most
/// of them unanimous: that takes no room.
#[derive(Clone)]
pub(super) struct Tally {
    /// What a release has to take back where.
    targets: Box<[Target]>,
    votes: Votes,
    /// The round that won it, until every node has answered there.
    won: Option<Arc<Flight<Attempt>>>,
}

/// Every node's vote in the latest round.
#[derive(Clone)]
enum Votes {
    AllGranted,
    Each(Box<[Vote]>),
}

impl Tally {
    /// As the round that won the hold knows it.
    pub(super) fn of(won: Arc<Flight<Attempt>>) -> Self {
        let mut tally = Self {
            targets: Box::default(),
            votes: Votes::AllGranted,
            won: Some(won),
        };
        tally.hear_late();
        tally
    }

    /// Nobody has told anything.
    pub(super) fn unknown(nodes: usize) -> Self {
        Self {
            targets: vec![Target::Unknown; nodes].into(),
            votes: Votes::Each(vec![Vote::Pending; nodes].into()),
            won: None,
        }
    }

    /// The same votes, where the nodes have `targets`.
    pub(super) fn with(&self, targets: Vec<Target>) -> Self {
        Self {
            targets: targets.into(),
            ..self.clone()
        }
    }

    /// Takes the votes that came after the verdict of the round that won it: they count for what a
    /// release has to take back. Once all are in, that round is of no more use.
    pub(super) fn hear_late(&mut self) {
        let Some(won) = &self.won else { return };
        let (targets, votes, complete) = won.with(|attempt| {
            let targets = attempt.remains_of_won();
            (targets, Votes::of(attempt.votes()), attempt.is_complete())
        });
        (self.targets, self.votes) = (targets.into(), votes);
        if complete {
            self.won = None;
        }
    }

    /// What a release has to take back where.
    pub(super) fn targets(&self) -> Vec<Target> {
        self.targets.to_vec()
    }

    /// Every node's vote in the latest round, in node order.
    pub(super) fn votes(&self) -> Vec<Vote> {
        match &self.votes {
            Votes::AllGranted => vec![Vote::Granted; self.targets.len()],
            Votes::Each(votes) => votes.to_vec(),
        }
    }

    /// Takes the votes of a round of extending.
    pub(super) fn take(&mut self, votes: &[Vote]) {
        self.won = None;
        for (target, vote) in self.targets.iter_mut().zip(votes) {
            match (vote, *target) {
                (Vote::Granted, _) => *target = Target::Holds,
                (Vote::Gone | Vote::Held(_), Target::Holds) => *target = Target::Nothing,
                _ => {}
            }
        }
        self.votes = Votes::of(votes.iter());
    }

    /// Takes an answer that came after its round was over: better than none.
    pub(super) fn take_late(&mut self, node: usize, vote: &Vote) {
        if let Votes::Each(votes) = &mut self.votes
            && matches!(votes[node], Vote::Pending | Vote::Silent)
        {
            votes[node] = vote.clone();
            self.votes = Votes::of(votes.iter());
        }
    }

    /// Our token is being put back on `node`.
    pub(super) fn put_back_on(&mut self, node: usize) {
        self.targets[node] = Target::Holds;
    }
}

impl Votes {
    fn of<'a>(votes: impl Iterator<Item = &'a Vote> + Clone) -> Self {
        if votes.clone().all(|vote| *vote == Vote::Granted) {
            Self::AllGranted
        } else {
            Self::Each(votes.cloned().collect())
        }
    }
}
