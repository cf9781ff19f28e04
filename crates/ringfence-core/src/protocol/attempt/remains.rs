//! What an attempt may have left on the nodes, and so what an undo or release must clean up.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Claim, Slots};
use crate::protocol::{Asked, GrantId, Vote};
use crate::time::Timestamp;

use super::{Attempt, AttemptNode};

/// How long the undo of a lost attempt waits for the missing answers: as long as the other nodes
/// took, within these limits.
const ANSWER_WAIT_MIN: Duration = Duration::from_millis(2);
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(20);

/// What a node may have of our lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nothing.
    Nothing,
    /// Our token; the node confirmed it.
    Holds,
    /// Unknown: the acquire may still arrive.
    Unknown,
}

impl Attempt {
    /// The identity of what this attempt may have left on the nodes.
    pub fn grant_id(&self, claims: &Arc<[Claim]>) -> GrantId {
        let slots = self.asked.map(|asked| match asked {
            Asked::Any => Slots::All,
            Asked::Slot(slot) => Slots::Only(slot),
        });
        GrantId {
            claims: Arc::clone(claims),
            token: self.token.clone(),
            ballot: self.ballot,
            kind: self.kind,
            ticket: self.ticket.clone().map(Box::new),
            slots: slots.map(|slots| Box::new((Arc::clone(claims), slots))),
            receipt_delay_ms: 0,
        }
    }

    /// Where this attempt may have left its ticket: on nodes that answered, and on nodes that it
    /// may have reached.
    pub fn remaining_tickets(&self) -> Vec<Target> {
        let remains = self.remains().into_iter().zip(self.votes());
        let ticket = |(target, vote): (Target, &Vote)| match target {
            Target::Nothing if vote.is_answer() => Target::Holds,
            target => target,
        };
        remains.map(ticket).collect()
    }

    /// Where this attempt may have left a grant, which must be undone if the attempt was lost.
    ///
    /// A node that answered held, stale or ahead has nothing of this ballot.
    pub fn remains(&self) -> Vec<Target> {
        let remains = self.nodes.iter().map(|state| self.remains_on(state));
        remains.collect()
    }

    fn remains_on(&self, state: &AttemptNode) -> Target {
        match &state.vote {
            _ if self.inspects_only || state.withdrawn => Target::Nothing,
            _ if state.holds => Target::Holds,
            Vote::Pending | Vote::TimedOut => Target::Unknown,
            Vote::Failed(error) if error.may_have_been_applied() => Target::Unknown,
            _ => Target::Nothing,
        }
    }

    /// Until when the undo of this attempt, which was lost at `now`, waits for the missing answers.
    /// Mostly these nodes answer like the others, and there is nothing to undo. `None` if the undo
    /// must be sent at once: a node that answered or failed may hold our token and block other
    /// clients.
    pub fn undo_waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        let mut remains = self.remains().into_iter().zip(self.votes());
        let left =
            |(target, vote): (Target, &Vote)| target != Target::Nothing && *vote != Vote::Pending;
        let pending = self.votes().any(|vote| *vote == Vote::Pending);
        let waits = pending && !remains.any(left);
        waits.then(|| now + now.since(self.t0).clamp(ANSWER_WAIT_MIN, ANSWER_WAIT_MAX))
    }

    /// What each node has of the lock or slot that was won, and its vote. A different slot that a
    /// node granted is not part of it.
    pub(in crate::protocol) fn remains_of_won(&self) -> impl Iterator<Item = (Target, &Vote)> {
        let won = self.slot();
        self.nodes.iter().map(move |node| {
            let target = match (&node.report, self.remains_on(node)) {
                (Some(report), Target::Holds) if report.slot != won => Target::Nothing,
                (_, target) => target,
            };
            (target, &node.vote)
        })
    }
}
