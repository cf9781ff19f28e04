//! A node that misbehaves on purpose: for tests of whatever stands on nodes.

use std::mem;
use std::sync::Arc;

use crate::message::{Answer, Request, Wake};
use crate::node::embedded::{Answered, Job};
use crate::node::{CallError, NodeClock, Trouble, TroubleKind};

use super::{MemoryNode, MemoryState};

/// An operation that the node carried out, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What was asked.
    pub request: Arc<Request>,
    /// What the node answered, whether or not the answer got through.
    pub answer: Answer,
}

/// What is wrong with the node at present.
#[derive(Debug, Default)]
pub(super) struct Faults {
    fail: Option<CallError>,
    hang: bool,
    hold_replies: bool,
    lose_replies: bool,
    lose_wakes: bool,
    /// Asked while it hung, in order.
    asked: Vec<Job>,
    /// Answered while replies were held back, in order.
    held: Vec<Answered>,
    operations: Option<Vec<Operation>>,
}

/// Faults, for tests. They concern handshakes as well as calls.
impl MemoryNode {
    /// From now on the node does nothing and answers `error`; `None` mends it.
    pub fn fail_with(&self, error: Option<CallError>) {
        self.lock().faults.fail = error;
    }

    /// Hangs the node, as a stopped process would: what it is asked is carried out and answered,
    /// in order, when it goes on, however late that is.
    pub fn hang(&self, hang: bool) {
        self.change(|faults| faults.hang = hang);
    }

    /// Holds replies back: what the node is asked is carried out at once, but answered, in order,
    /// only when replies flow again.
    pub fn hold_replies(&self, hold: bool) {
        self.change(|faults| faults.hold_replies = hold);
    }

    /// Loses replies: what the node is asked is carried out, but its caller hears only that nobody
    /// knows ([`CallError::Unknown`]).
    pub fn lose_replies(&self, lose: bool) {
        self.lock().faults.lose_replies = lose;
    }

    /// Loses wakes: nobody is told that it may be its turn.
    pub fn lose_wakes(&self, lose: bool) {
        self.lock().faults.lose_wakes = lose;
    }

    /// Restarts the node without its data: another incarnation, born now.
    pub fn forget(&self) {
        self.lock().store.forget();
    }

    /// Starts or stops keeping what the node carries out. Off at first: nothing bounds the log.
    pub fn log_operations(&self, log: bool) {
        self.lock().faults.operations = log.then(Vec::new);
    }

    /// What the node has carried out since it was last asked this.
    pub fn take_operations(&self) -> Vec<Operation> {
        let mut state = self.lock();
        state
            .faults
            .operations
            .as_mut()
            .map(mem::take)
            .unwrap_or_default()
    }

    /// Changes a fault and delivers what it had kept back.
    fn change(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.lock();
        change(&mut state.faults);
        let answered = state.resume();
        self.deliver(state, answered);
    }
}

impl MemoryState {
    /// Takes `job` as far as the present faults allow, and returns what may be delivered.
    pub(super) fn take(&mut self, job: Job, clock: &NodeClock) -> Option<Answered> {
        if job.has_expired(clock) {
            return Some(job.expire());
        }
        if self.faults.hang {
            self.faults.asked.push(job);
            return None;
        }
        self.carry_out(job)
    }

    fn carry_out(&mut self, job: Job) -> Option<Answered> {
        if let Some(error) = &self.faults.fail {
            return Some(job.fail(error.clone()));
        }
        let request = match &job {
            Job::Call(call) => Some(Arc::clone(&call.request)),
            _ => None,
        };
        let answered = job.run(&mut self.store);
        self.log(request, &answered);
        if self.faults.lose_replies {
            let trouble = Trouble::new(TroubleKind::Disconnected, "the reply was lost");
            return Some(answered.but(&CallError::Unknown(trouble)));
        }
        if self.faults.hold_replies {
            self.faults.held.push(answered);
            return None;
        }
        Some(answered)
    }

    /// Who is to be told by now.
    pub(super) fn take_wakes(&mut self) -> Vec<Wake> {
        let mut wakes = self.store.take_wakes();
        if self.faults.lose_wakes {
            wakes.clear();
        }
        wakes
    }

    /// Carries on where a fault had stopped it.
    fn resume(&mut self) -> Vec<Answered> {
        let mut answered = Vec::new();
        if !self.faults.hold_replies {
            answered.append(&mut self.faults.held);
        }
        if !self.faults.hang {
            let asked = mem::take(&mut self.faults.asked);
            answered.extend(asked.into_iter().filter_map(|job| self.carry_out(job)));
        }
        answered
    }

    fn log(&mut self, request: Option<Arc<Request>>, answered: &Answered) {
        if let (Some(operations), Some(request), Answered::Call(_, Ok(reply))) =
            (&mut self.faults.operations, request, answered)
        {
            operations.push(Operation {
                request,
                answer: reply.answer.clone(),
            });
        }
    }
}
