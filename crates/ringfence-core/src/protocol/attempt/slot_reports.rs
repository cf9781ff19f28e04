//! What the nodes report of a semaphore, and the slots that they granted beside the one that was won.

use crate::protocol::{Asked, Target, slots};

use super::{Attempt, AttemptNode};

impl Attempt {
    /// The slot for the next attempt, if it is our turn.
    pub(in crate::protocol) fn next_slot(&self) -> Option<u32> {
        let nodes = self.nodes.iter();
        let votes = nodes.filter_map(|node| Some((&node.vote, node.report.as_ref()?)));
        slots::next(votes, self.nodes.len())
    }

    /// The largest number of permits that any client uses for the semaphore, as the nodes report
    /// it.
    pub fn most_permits(&self) -> Option<u64> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        reports.map(|report| report.most).max()
    }

    /// What the nodes have beside the slot that was won: a surplus slot, or the ticket where no
    /// slot was granted. For nodes that have not answered it is [`Target::Unknown`].
    pub fn surplus_slots(&self) -> Vec<Target> {
        let (won, named) = (self.slot(), self.asked != Some(Asked::Any));
        let waits = self.ticket.is_some();
        let remains = self.remains().into_iter().zip(&self.nodes);
        let stray = |(target, node): (Target, &AttemptNode)| match (&node.report, target) {
            (Some(report), Target::Holds) if report.slot == won => Target::Nothing,
            // A ticket that is no longer needed would block the waiters behind it.
            (Some(_), Target::Nothing) if waits => Target::Holds,
            // A node never replaces a slot that was asked for, so there is no surplus slot.
            (_, Target::Unknown) if named => match waits {
                true => Target::Holds,
                false => Target::Nothing,
            },
            (_, target) => target,
        };
        remains.map(stray).collect()
    }
}
