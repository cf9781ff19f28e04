//! Faults of the in-memory node, for tests of the code that uses nodes.

use std::mem;
use std::sync::Arc;

use crate::message::{Answer, Request, Wake};
use crate::node::embedded::{Answered, Job};
use crate::node::{CallError, NodeClock, Trouble, TroubleKind};

use super::{MemoryNode, MemoryState};

/// An operation that the node carried out, and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The request.
    pub request: Arc<Request>,
    /// The node's answer, whether or not it was delivered.
    pub answer: Answer,
}

/// The present faults of the node.
#[derive(Debug, Default)]
pub(super) struct Faults {
    fail: Option<CallError>,
    hang: bool,
    hold_replies: bool,
    lose_replies: bool,
    lose_wakes: bool,
    /// Jobs that arrived while it hung, in order.
    asked: Vec<Job>,
    /// Answers that were held back, in order.
    held: Vec<Answered>,
    operations: Option<Vec<Operation>>,
}

/// Faults, for tests. They apply to handshakes as well as to calls.
impl MemoryNode {
    /// From now on the node does nothing and answers `error`; `None` ends the fault.
    pub fn fail_with(&self, error: Option<CallError>) {
        self.lock().faults.fail = error;
    }

    /// Hangs the node like a stopped process: when it continues, it carries out and answers all
    /// jobs that arrived, in order, even if they have expired.
    pub fn hang(&self, hang: bool) {
        self.change(|faults| faults.hang = hang);
    }

    /// Holds replies back: the node carries out each job at once, but delivers the answers, in
    /// order, only when the fault ends.
    pub fn hold_replies(&self, hold: bool) {
        self.change(|faults| faults.hold_replies = hold);
    }

    /// Loses replies: the node carries out each job, but the caller receives
    /// [`CallError::Unknown`].
    pub fn lose_replies(&self, lose: bool) {
        self.lock().faults.lose_replies = lose;
    }

    /// Loses wakes: no waiter receives one.
    pub fn lose_wakes(&self, lose: bool) {
        self.lock().faults.lose_wakes = lose;
    }

    /// Restarts the node without its data: a new incarnation, with a birth now.
    pub fn forget(&self) {
        self.lock().store.forget();
    }

    /// Starts or stops logging the operations that the node carries out. Off by default, since the
    /// log is not bounded.
    pub fn log_operations(&self, log: bool) {
        self.lock().faults.operations = log.then(Vec::new);
    }

    /// The operations since the last call of this function.
    pub fn take_operations(&self) -> Vec<Operation> {
        let mut state = self.lock();
        state
            .faults
            .operations
            .as_mut()
            .map(mem::take)
            .unwrap_or_default()
    }

    /// Changes a fault and delivers the answers that it held back.
    fn change(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.lock();
        change(&mut state.faults);
        let answered = state.resume();
        self.deliver(state, answered);
    }
}

impl MemoryState {
    /// Runs `job` as far as the present faults allow. Returns the answer if it may be delivered.
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
            return Some(answered.or_error(&CallError::Unknown(trouble)));
        }
        if self.faults.hold_replies {
            self.faults.held.push(answered);
            return None;
        }
        Some(answered)
    }

    /// The wakes to deliver now.
    pub(super) fn take_wakes(&mut self) -> Vec<Wake> {
        let mut wakes = self.store.take_wakes();
        if self.faults.lose_wakes {
            wakes.clear();
        }
        wakes
    }

    /// Continues with the jobs and answers that a fault had stopped.
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
