//! A semaphore's slots as one client sees them: which slot a round was about, how the votes for each
//! add up, and which one to ask for next. Votes for different slots never add up: that is what
//! keeps two permits from admitting three.

use crate::message::{Answer, Permit, Reply};
use crate::node::CallError;

use super::{Vote, quorum};

/// Which slot an attempt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Whichever each node picks.
    Any,
    /// This one, and no other.
    Slot(u32),
}

/// What one node told of a semaphore, beside its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Sight {
    /// The slot that the answer is about.
    pub(super) slot: Option<u32>,
    free: Vec<u32>,
    ahead: u64,
    pub(super) most: u64,
}

/// Takes apart what a node said: the answer as that of a lock, and what it told of the semaphore.
pub(super) fn look(outcome: Result<Reply, CallError>) -> (Result<Reply, CallError>, Option<Sight>) {
    match outcome {
        Ok(Reply {
            answer: Answer::Permit(permit),
            stamp,
            standing,
        }) => {
            let Permit {
                answer,
                slot,
                free,
                ahead,
                most,
            } = permit;
            let reply = Reply {
                stamp,
                standing,
                answer: *answer,
            };
            let sight = Sight {
                slot,
                free,
                ahead,
                most,
            };
            (Ok(reply), Some(sight))
        }
        other => (other, None),
    }
}

/// The slot that most nodes granted, of equal ones the lowest, and how many did.
pub(super) fn best(granted: impl Iterator<Item = u32> + Clone) -> Option<(u32, usize)> {
    let count = |slot: u32| granted.clone().filter(|other| *other == slot).count();
    let counted = granted.clone().map(|slot| (slot, count(slot)));
    counted.max_by_key(|&(slot, count)| (count, std::cmp::Reverse(slot)))
}

/// The slot to ask for next: one that is free on a majority. The one of which we had most, so that
/// clients who met do not meet again; else, so that those in line spread, the one that comes after
/// as many others as are ahead of us. `None` if it is not our turn.
///
/// `votes` are those that count, with what their nodes told.
pub(super) fn next<'a>(
    votes: impl Iterator<Item = (&'a Vote, &'a Sight)>,
    nodes: usize,
) -> Option<u32> {
    let votes: Vec<(&Vote, &Sight)> = votes.filter(|(vote, _)| vote.is_answer()).collect();
    let quorum = quorum(nodes);
    let mut aheads: Vec<u64> = votes.iter().map(|(_, sight)| sight.ahead).collect();
    aheads.sort_unstable();
    let ahead = *aheads.get(quorum - 1)?;
    let free_on = |slot: u32| votes.iter().filter(|(_, s)| s.free.contains(&slot)).count();
    let mut slots: Vec<u32> = votes
        .iter()
        .flat_map(|(_, s)| s.free.iter().copied())
        .collect();
    slots.sort_unstable();
    slots.dedup();
    slots.retain(|slot| free_on(*slot) >= quorum);
    let by_turn = *slots.get(usize::try_from(ahead).ok()?)?;
    let granted = votes
        .iter()
        .filter(|(vote, _)| **vote == Vote::Granted)
        .filter_map(|(_, sight)| sight.slot)
        .filter(|slot| slots.contains(slot));
    Some(best(granted).map_or(by_turn, |(slot, _)| slot))
}
