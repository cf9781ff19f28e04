//! What a caller that waits for a lock is told, once.

use std::sync::Arc;

use crate::protocol::{Attempt, ceil_secs, majority_votes_in, quorum};
use crate::runtime::acquire::AcquireRequest;
use crate::runtime::hold::{HeldLock, HolderTask};

use super::hold_work::works_under;
use super::lock::LockTerms;
use super::votes::{Votes, not_voting};

impl LockTerms {
    /// A wait that covers a quarantine may last half a minute: says so.
    pub(super) fn warn_of_quarantine(&self, attempt: &Attempt) -> bool {
        let names = &self.locks.shared.names;
        let left = majority_votes_in(attempt, quorum(names.len()));
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            return false;
        };
        let votes = Votes::new(names, attempt.votes().cloned());
        tracing::warn!(
            target: "ringfence",
            name = %self.name,
            seconds = ceil_secs(left),
            "waiting for a quarantine: {}",
            not_voting(&votes, left)
        );
        true
    }

    /// Warns if the caller is the work under a lock that keeps it from `wanted`. Otherwise returns
    /// what its task holds of it: other futures of the task may release that, as in a `join!`.
    pub(super) fn own_hold(&self, wanted: &AcquireRequest) -> Option<Arc<HeldLock>> {
        let runtime = &self.locks.shared.runtime;
        let Some(held) = works_under(runtime, &wanted.claims) else {
            let task = HolderTask::current();
            return runtime.schedule.hold_of(task, &wanted.claims);
        };
        tracing::warn!(
            target: "ringfence",
            name = %self.name,
            held_by = %held.policy().label,
            wanted_by = %wanted.label,
            "the work under a lock waits for the same lock, which is not released before the work has ended: it waits until {}; use the guard that the work has, or take the lock again after the work",
            self.end_of(&held)
        );
        None
    }

    /// Tells that the caller has waited as long as a TTL for a lock that its own task holds. The rest
    /// is not known here.
    pub(super) fn tell_of_own_hold(&self, wanted: &AcquireRequest, held: &Arc<HeldLock>) {
        if held.check().is_err() {
            return;
        }
        tracing::info!(
            target: "ringfence",
            name = %self.name,
            held_by = %held.policy().label,
            wanted_by = %wanted.label,
            "waiting for a lock that the same task took and still holds: if no other future of this task releases it, the wait lasts until {}; then release the first guard before, or use it instead of a second one",
            self.end_of(held)
        );
    }

    /// When `held` ends, if nobody releases it and a majority of the nodes answers.
    fn end_of(&self, held: &HeldLock) -> String {
        let now = self.locks.shared.runtime.sender.clock.now();
        match (held.policy().renew, held.max_hold()) {
            (false, _) => "its lease ends, since it is not renewed".to_owned(),
            (true, Some(end)) => {
                let left = ceil_secs(end.since(now));
                format!("max_hold ends it in {left} s, since it is renewed")
            }
            (true, None) => "the program ends, since it is renewed without max_hold".to_owned(),
        }
    }
}
