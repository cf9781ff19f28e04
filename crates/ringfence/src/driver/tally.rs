//! What the nodes have of a hold, as far as they told.

use std::sync::Arc;

use crate::protocol::{Attempt, Target, Vote};

use super::flight::Flight;

/// What the nodes have of a hold, as far as they told. There may be a hundred thousand of these, most
/// of them unanimous: that takes no room.
#[derive(Clone)]
pub(super) enum Tally {
    /// So many nodes there are, all of which have it and said so in the latest round.
    Unanimous {
        nodes: usize,
    },
    /// Not all have answered in the round that won it, and there has been none since.
    Open(Arc<Flight<Attempt>>),
    Divided(Box<Divided>),
}

#[derive(Clone)]
pub(super) struct Divided {
    /// In node order.
    told: Box<[Told]>,
}

/// What one node has of it.
#[derive(Clone, PartialEq, Eq)]
struct Told {
    /// What a release has to take back there, restores that are under way aside.
    target: Target,
    /// Its vote in the latest round.
    vote: Vote,
    /// How many restores it may yet carry out: those whose answers have not been read.
    restores: u32,
}

impl Tally {
    /// As the round that won the hold knows it.
    pub(super) fn of(won: Arc<Flight<Attempt>>) -> Self {
        Self::Open(won)
    }

    /// Nobody has told anything.
    pub(super) fn unknown(nodes: usize) -> Self {
        let told = Told {
            target: Target::Unknown,
            vote: Vote::Pending,
            restores: 0,
        };
        Self::new(vec![told; nodes].into())
    }

    fn new(told: Box<[Told]>) -> Self {
        if told.iter().all(Told::has_it) {
            Self::Unanimous { nodes: told.len() }
        } else {
            Self::Divided(Box::new(Divided { told }))
        }
    }

    /// As far as the nodes have told in `won`.
    fn so_far(won: &Flight<Attempt>) -> Self {
        let told = won.with(|attempt| {
            let remains = attempt.remains_of_won().into_iter();
            let told = remains.zip(attempt.votes()).map(|(target, vote)| Told {
                target,
                vote: vote.clone(),
                restores: 0,
            });
            told.collect()
        });
        Self::new(told)
    }

    /// Once all votes are in, those that came after the verdict among them, the round that won it is
    /// of no more use.
    pub(super) fn hear_late(&mut self) {
        let Self::Open(won) = self else { return };
        if won.with(|attempt| attempt.is_complete()) {
            *self = Self::so_far(won);
        }
    }

    /// What a release has to take back where.
    pub(super) fn targets(&self) -> Vec<Target> {
        match self {
            Self::Unanimous { nodes } => vec![Target::Holds; *nodes],
            Self::Open(won) => won.with(|attempt| attempt.remains_of_won()),
            Self::Divided(divided) => divided.told.iter().map(Told::remains).collect(),
        }
    }

    /// Every node's vote in the latest round, in node order.
    pub(super) fn votes(&self) -> Vec<Vote> {
        match self {
            Self::Unanimous { nodes } => vec![Vote::Granted; *nodes],
            Self::Open(won) => won.with(|attempt| attempt.votes().cloned().collect()),
            Self::Divided(divided) => divided.told.iter().map(|told| told.vote.clone()).collect(),
        }
    }

    /// Takes the votes of a round of extending.
    pub(super) fn take(&mut self, votes: Vec<Vote>) {
        let granted = votes.iter().all(|vote| *vote == Vote::Granted);
        if granted && matches!(self, Self::Unanimous { .. }) {
            return;
        }
        let before = std::mem::replace(self, Self::Unanimous { nodes: 0 }).into_told();
        let told = before.into_iter().zip(votes).map(|(told, vote)| Told {
            target: match (&vote, told.target) {
                (Vote::Granted, _) => Target::Holds,
                (Vote::Gone | Vote::Held(_), Target::Holds) => Target::Nothing,
                (_, target) => target,
            },
            vote,
            ..told
        });
        *self = Self::new(told.collect());
    }

    /// What every node has, one by one.
    fn into_told(self) -> Box<[Told]> {
        let all = Told {
            target: Target::Holds,
            vote: Vote::Granted,
            restores: 0,
        };
        match self {
            Self::Unanimous { nodes } => vec![all; nodes].into(),
            Self::Open(won) => Self::so_far(&won).into_told(),
            Self::Divided(divided) => divided.told,
        }
    }

    /// Takes an answer that came after its round was over: better than none.
    pub(super) fn take_late(&mut self, node: usize, vote: Vote) {
        let Self::Divided(divided) = self else { return };
        let told = &mut divided.told[node];
        if !matches!(told.vote, Vote::Pending | Vote::Silent) {
            return;
        }
        told.vote = vote;
        self.settle();
    }

    /// Our token is being put back on `node`. That says nothing about an acquire that is under way to it:
    /// if the node's fate was unknown, it is unknown still.
    pub(super) fn put_back_on(&mut self, node: usize) {
        let mut told = std::mem::replace(self, Self::Unanimous { nodes: 0 }).into_told();
        told[node].restores += 1;
        if told[node].target == Target::Nothing {
            told[node].target = Target::Holds;
        }
        *self = Self::Divided(Box::new(Divided { told }));
    }

    /// A restore is no longer under way to `node`.
    pub(super) fn restore_answered(&mut self, node: usize) {
        let Self::Divided(divided) = self else { return };
        let restores = &mut divided.told[node].restores;
        *restores = restores.saturating_sub(1);
        self.settle();
    }

    /// Takes no room once all nodes have it.
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
    /// What a release has to take back there.
    fn remains(&self) -> Target {
        match self.restores > 0 {
            true => Target::Unknown,
            false => self.target,
        }
    }

    /// Whether it has our token, and said so.
    fn has_it(&self) -> bool {
        self.target == Target::Holds && self.vote == Vote::Granted && self.restores == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::driver::Driver;
    use crate::message::{Answer, Reply, Standing};
    use crate::node::memory::MemoryNode;
    use crate::node::{CallError, Deliver, Node, Trouble, TroubleKind};
    use crate::protocol::{Acquisition, Drift, Terms};
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};
    use Target::{Holds, Nothing, Unknown};
    use Vote::{Gone, Granted, Pending};

    /// A round on three nodes that nobody has answered.
    fn round() -> Arc<Flight<Attempt>> {
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let node = || Arc::new(MemoryNode::new("m")) as Arc<dyn Node>;
        let driver = Driver::of_group(vec![node(), node(), node()], clock.clone());
        let terms = Terms {
            nodes: 3,
            ttl: Duration::from_secs(10),
            drift: Drift::default(),
            min_validity: Duration::ZERO,
            call_timeout: Duration::from_secs(1),
            wait: None,
            attempts: None,
            no_quorum_after: Duration::from_secs(10),
            plain: true,
        };
        let (now, token) = (clock.now(), Token::from_entropy([1; TOKEN_ENTROPY_BYTES]));
        let attempt = Acquisition::new(terms, now, 1).begin(&mut driver.cluster(), now, token);
        Arc::new(Flight::new(&driver, attempt, now))
    }

    fn granted() -> Result<Reply, CallError> {
        let standing = Standing {
            incarnation: 1,
            born_us: 0,
            clock_us: 1 << 50,
            server: 0,
        };
        Ok(Reply {
            stamp: None,
            standing,
            answer: Answer::Granted,
        })
    }

    #[test]
    fn until_all_have_answered_the_round_knows_best() {
        let round = round();
        let mut tally = Tally::of(Arc::clone(&round));
        round.deliver(0, granted());
        round.deliver(2, granted());
        tally.hear_late();
        assert_eq!(tally.targets(), [Holds, Unknown, Holds]);
        assert_eq!(tally.votes(), [Granted, Pending, Granted]);
        round.deliver(1, granted());
        tally.hear_late();
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
    }

    #[test]
    fn what_is_put_back_meanwhile_is_taken_back_in_the_end() {
        let round = round();
        let down = Trouble::new(TroubleKind::Unreachable, "down");
        round.deliver(1, Err(CallError::NotSent(down)));
        round.deliver(0, granted());
        let mut tally = Tally::of(Arc::clone(&round));
        assert_eq!(tally.targets(), [Holds, Nothing, Unknown]);
        tally.put_back_on(1);
        assert_eq!(tally.targets(), [Holds, Unknown, Unknown]);
        tally.restore_answered(1);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        round.deliver(2, granted());
        tally.hear_late();
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
    }

    /// The acquire may still be under way, and a restore says nothing about that.
    #[test]
    fn a_restore_does_not_make_an_unknown_acquire_known() {
        let round = round();
        round.deliver(0, granted());
        round.deliver(1, granted());
        let mut tally = Tally::of(round);
        tally.take(vec![Granted, Granted, Gone]);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.put_back_on(2);
        tally.restore_answered(2);
        assert_eq!(tally.targets(), [Holds, Holds, Unknown]);
        tally.take(vec![Granted, Granted, Granted]);
        assert_eq!(tally.targets(), [Holds; 3], "it has what was asked for");
    }

    #[test]
    fn a_restore_that_was_not_answered_may_arrive_at_any_time() {
        let mut tally = Tally::unknown(2);
        tally.take(vec![Granted, Gone]);
        tally.put_back_on(1);
        tally.put_back_on(1);
        tally.restore_answered(1);
        tally.take(vec![Granted, Granted]);
        assert_eq!(tally.targets(), [Holds, Unknown]);
        tally.restore_answered(1);
        assert!(matches!(tally, Tally::Unanimous { nodes: 2 }));
        // Also where all were thought to have it.
        tally.put_back_on(0);
        assert_eq!(tally.targets(), [Unknown, Holds]);
        tally.restore_answered(0);
        assert!(matches!(tally, Tally::Unanimous { nodes: 2 }));
    }

    #[test]
    fn what_all_nodes_have_takes_no_room() {
        let mut tally = Tally::unknown(3);
        tally.take(vec![Granted, Granted, Granted]);
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
        tally.take(vec![Granted, Granted, Granted]);
        assert_eq!(tally.targets(), [Holds; 3]);
        assert_eq!(tally.votes(), [Granted, Granted, Granted]);
        tally.take(vec![Granted, Pending, Gone]);
        assert_eq!(tally.targets(), [Holds, Holds, Nothing]);
        assert_eq!(tally.votes(), [Granted, Pending, Gone]);
        tally.take_late(1, Granted);
        tally.put_back_on(2);
        tally.restore_answered(2);
        assert_eq!(tally.targets(), [Holds; 3]);
        assert_eq!(tally.votes(), [Granted, Granted, Gone]);
        tally.take(vec![Granted, Granted, Pending]);
        tally.take_late(2, Granted);
        assert!(matches!(tally, Tally::Unanimous { nodes: 3 }));
    }

    #[test]
    fn a_late_answer_changes_neither_a_vote_that_was_cast_nor_what_is_to_be_taken_back() {
        let mut tally = Tally::unknown(2);
        tally.take(vec![Granted, Pending]);
        tally.take_late(0, Gone);
        tally.take_late(1, Granted);
        assert_eq!(tally.votes(), [Granted, Granted]);
        assert_eq!(tally.targets(), [Holds, Unknown]);
    }
}
