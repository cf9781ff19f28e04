//! Which nodes may have a caller's ticket in their wait queue. When the caller no longer waits,
//! each of these nodes is asked to remove it: a ticket that is no longer needed blocks the waiters
//! behind it.
//!
//! A node that grants removes the ticket in the same step. Every other node that received the
//! ticket must be asked: a node that refused the winning attempt, a node that failed in it but got
//! the ticket earlier, and a node where a refresh or an undo was executed after the grant.

use std::time::Duration;

use crate::message::{Answer, Reply};
use crate::node::CallError;

use super::Target;

/// What one call did to the ticket on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketFate {
    /// The ticket is in the queue now, or may be.
    Entered,
    /// The node granted the lock and removed the ticket.
    Left,
    /// The call changed nothing.
    Unchanged,
}

impl TicketFate {
    /// After an acquire that carried the ticket.
    pub fn after_acquire(outcome: &Result<Reply, CallError>) -> Self {
        let answer = match outcome {
            Ok(reply) => match &reply.answer {
                Answer::Permit(permit) => &*permit.answer,
                answer => answer,
            },
            Err(error) if error.may_have_been_applied() => return Self::Entered,
            Err(_) => return Self::Unchanged,
        };
        match answer {
            Answer::Granted => Self::Left,
            Answer::TicketOld | Answer::Late => Self::Unchanged,
            _ => Self::Entered,
        }
    }

    /// After a refresh of the ticket.
    pub fn after_refresh(outcome: &Result<Reply, CallError>) -> Self {
        match outcome {
            Ok(_) => Self::Entered,
            Err(error) if error.may_have_been_applied() => Self::Entered,
            Err(_) => Self::Unchanged,
        }
    }

    /// After an undo that keeps the ticket. An undo of a grant enters the ticket again.
    pub fn after_undo(outcome: &Result<Reply, CallError>) -> Self {
        match outcome {
            Ok(reply) if reply.answer == Answer::Released => Self::Entered,
            Ok(_) => Self::Unchanged,
            Err(_) => Self::after_refresh(outcome),
        }
    }
}

/// The nodes that may have a ticket.
#[derive(Debug)]
pub struct TicketNodes {
    /// For each node: whether it may have the ticket.
    may_have: Vec<bool>,
    /// For each node: how many acquires with the ticket it has not answered.
    unanswered: Vec<u32>,
    /// Set when the caller no longer waits: the timeout of the call that removes the ticket.
    over: Option<Duration>,
}

impl TicketNodes {
    /// No node has the ticket yet.
    pub fn new(nodes: usize) -> Self {
        Self {
            may_have: vec![false; nodes],
            unanswered: vec![0; nodes],
            over: None,
        }
    }

    /// An acquire with the ticket is about to be sent to every node.
    pub fn sending(&mut self) {
        self.unanswered.iter_mut().for_each(|count| *count += 1);
    }

    /// `node` has answered an acquire with the ticket.
    pub fn answered(&mut self, node: usize) {
        self.unanswered[node] = self.unanswered[node].saturating_sub(1);
    }

    /// Records what a call did to the ticket on `node`. If the caller no longer waits but the node
    /// may have the ticket, returns the timeout for the call that removes it.
    pub fn note(&mut self, node: usize, fate: TicketFate) -> Option<Duration> {
        match fate {
            TicketFate::Entered => {}
            TicketFate::Left => {
                self.may_have[node] = false;
                return None;
            }
            TicketFate::Unchanged => return None,
        }
        self.may_have[node] = self.over.is_none();
        self.over
    }

    /// For each node: whether it may have the ticket from before the last acquire that carried it.
    pub fn had_before_last(&self) -> Vec<bool> {
        let nodes = self.may_have.iter().zip(&self.unanswered);
        nodes
            .map(|(may_have, unanswered)| *may_have || *unanswered > 1)
            .collect()
    }

    /// The undo of the last attempt removes the ticket from these `targets`.
    pub fn told(&mut self, targets: &[Target]) {
        let nodes = self.may_have.iter_mut().zip(&mut self.unanswered);
        for ((may_have, unanswered), _) in nodes
            .zip(targets)
            .filter(|(_, target)| **target != Target::Nothing)
        {
            (*may_have, *unanswered) = (false, 0);
        }
    }

    /// The caller no longer waits: returns the nodes that must remove the ticket. After a grant
    /// this leaves out nodes that have not answered yet: they mostly grant as well, and their
    /// answer decides.
    pub fn end(&mut self, granted: bool, call_timeout: Duration) -> Vec<Target> {
        if self.over.replace(call_timeout).is_some() {
            return Vec::new();
        }
        let may_have = std::mem::take(&mut self.may_have);
        self.may_have = vec![false; may_have.len()];
        let unanswered = self.unanswered.iter().map(|count| *count > 0 && !granted);
        let nodes = may_have.iter().zip(unanswered);
        let target = |(may_have, unanswered): (&bool, bool)| match *may_have || unanswered {
            true => Target::Holds,
            false => Target::Nothing,
        };
        nodes.map(target).collect()
    }

    /// Whether the caller no longer waits, so that no call may enter the ticket any more.
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Standing;
    use crate::node::{Trouble, TroubleKind};

    #[test]
    fn only_a_grant_removes_the_ticket_and_only_an_executed_call_enters_it() {
        let standing = Standing::default();
        let replied = |answer| {
            Ok(Reply {
                stamp: None,
                standing,
                answer,
            })
        };
        let trouble = || Trouble::new(TroubleKind::Disconnected, "gone");
        let after = |outcome: Result<Reply, CallError>| {
            [
                TicketFate::after_acquire(&outcome),
                TicketFate::after_refresh(&outcome),
                TicketFate::after_undo(&outcome),
            ]
        };
        use TicketFate::{Entered, Left, Unchanged};
        let unknown = Err(CallError::Unknown(trouble()));
        let not_sent = Err(CallError::NotSent(trouble()));
        assert_eq!(after(replied(Answer::Granted))[0], Left);
        assert_eq!(after(replied(Answer::TicketOld))[0], Unchanged);
        assert_eq!(after(replied(Answer::Stale)), [Entered, Entered, Unchanged]);
        assert_eq!(after(replied(Answer::Released))[2], Entered);
        assert_eq!(after(unknown), [Entered; 3]);
        assert_eq!(after(not_sent), [Unchanged; 3]);
    }
}
