//! What a node without faults does with a job. Builds for tests have `faults.rs` instead.

use crate::message::Wake;
use crate::node::NodeClock;
use crate::node::embedded::{Answered, Job};

use super::MemoryState;

impl MemoryState {
    /// Carries `job` out, unless it has expired, and returns the answer.
    pub(super) fn take(&mut self, job: Job, clock: &NodeClock) -> Option<Answered> {
        Some(if job.has_expired(clock) {
            job.expire()
        } else {
            job.run(&mut self.store)
        })
    }

    /// The waiters that the node wakes now.
    pub(super) fn take_wakes(&mut self) -> Vec<Wake> {
        self.store.take_wakes()
    }
}
