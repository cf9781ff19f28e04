//! What a caller that waits for a lock is warned of, once.

use crate::protocol::{Attempt, ceil_secs, majority_votes_in, quorum};
use crate::runtime::acquire::AcquireRequest;
use crate::runtime::hold::HolderTask;

use super::lock::Lock;
use super::votes::{Votes, not_voting};

impl Lock {
    /// A wait that covers a quarantine may last half a minute: says so.
    pub(super) fn warn_of_quarantine(&self, name: &str, attempt: &Attempt) -> bool {
        let names = &self.locks.shared.names;
        let left = majority_votes_in(attempt, quorum(names.len()));
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            return false;
        };
        let votes = Votes::new(names, attempt.votes().cloned());
        tracing::warn!(
            target: "ringfence",
            %name,
            seconds = ceil_secs(left),
            "waiting for a quarantine: {}",
            not_voting(&votes, left)
        );
        true
    }

    /// A task that waits for what it holds itself waits for ever. Other tasks of the same client
    /// that wait for each other are normal contention, and nothing to warn of.
    pub(super) fn warn_of_self_deadlock(&self, wanted: &AcquireRequest) {
        let schedule = &self.locks.shared.runtime.schedule;
        let Some(held) = schedule.hold_of(HolderTask::current(), &wanted.claims) else {
            return;
        };
        tracing::warn!(
            target: "ringfence",
            name = %self.name(),
            held_by = %held.policy().label,
            wanted_by = %wanted.label,
            "this task waits for a lock that it took itself: unless another task releases it, it waits until that lock's lease ends; release the first guard, or give both the same owner"
        );
    }
}
