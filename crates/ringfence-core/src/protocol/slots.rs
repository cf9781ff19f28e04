//! A semaphore's slots from the view of one client: which slot a round is about, how votes are
//! counted for each slot, and which slot to ask for next. Votes for different slots never add up:
//! otherwise two permits could admit three clients.

use crate::message::{Answer, Permit, Reply};
use crate::node::CallError;

use super::{Vote, quorum};

/// The slot that an attempt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// Each node picks one.
    Any,
    /// Only this slot.
    Slot(u32),
}

/// What one node reported about a semaphore, beside its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SlotReport {
    /// The slot that the answer is about.
    pub(super) slot: Option<u32>,
    free: Vec<u32>,
    ahead: u64,
    pub(super) most: u64,
}

/// Splits the reply to an acquire of a slot: the answer as for a lock, and the report about the
/// semaphore.
pub(super) fn split_permit(
    outcome: Result<Reply, CallError>,
) -> (Result<Reply, CallError>, Option<SlotReport>) {
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
            let report = SlotReport {
                slot,
                free,
                ahead,
                most,
            };
            (Ok(reply), Some(report))
        }
        other => (other, None),
    }
}

/// The slot that most nodes granted, and how many did. On a tie the lowest slot.
pub(super) fn best(granted: impl Iterator<Item = u32> + Clone) -> Option<(u32, usize)> {
    let count = |slot: u32| granted.clone().filter(|other| *other == slot).count();
    let counted = granted.clone().map(|slot| (slot, count(slot)));
    counted.max_by_key(|&(slot, count)| (count, std::cmp::Reverse(slot)))
}

/// The slot to ask for next: one that is free on a majority. If some nodes granted us such a slot,
/// the one with most grants, so that clients that collided do not collide again. Otherwise the slot
/// whose index among the free ones is the number of waiters ahead of us, so that waiters choose
/// different slots. `None` if it is not our turn.
///
/// `votes` are the votes that count, with the reports of their nodes.
pub(super) fn next<'a>(
    votes: impl Iterator<Item = (&'a Vote, &'a SlotReport)>,
    nodes: usize,
) -> Option<u32> {
    let votes: Vec<(&Vote, &SlotReport)> = votes.filter(|(vote, _)| vote.is_answer()).collect();
    let quorum = quorum(nodes);
    let mut aheads: Vec<u64> = votes.iter().map(|(_, report)| report.ahead).collect();
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
        .filter_map(|(_, report)| report.slot)
        .filter(|slot| slots.contains(slot));
    Some(best(granted).map_or(by_turn, |(slot, _)| slot))
}
