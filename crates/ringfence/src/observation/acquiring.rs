//! One call that takes a lock, from its beginning to its outcome. A call whose future is dropped
//! has an outcome too.

use std::sync::Arc;

use tracing::Span;
use tracing::field::Empty;

use crate::client::{AcquireError, Votes};
use crate::clock::Clock;
use crate::protocol::{GrantId, Vote};
use crate::time::Timestamp;

use super::event::Event;
use super::labels::AcquireOutcome;
use super::{Observation, ObservedLock};

/// See the module.
pub(crate) struct Acquiring<'a> {
    observation: &'a Observation,
    clock: &'a Clock,
    name: &'a Arc<str>,
    lock: ObservedLock,
    begun: Timestamp,
    /// An attempt was lost, so the caller waits.
    waits: bool,
    has_outcome: bool,
}

impl Observation {
    /// The call that takes the lock `name` begins now.
    pub(crate) fn acquiring<'a>(
        &'a self,
        clock: &'a Clock,
        name: &'a Arc<str>,
        lock: ObservedLock,
    ) -> Acquiring<'a> {
        self.exported.acquiring(lock);
        Acquiring {
            observation: self,
            clock,
            name,
            lock,
            begun: clock.now(),
            waits: false,
            has_outcome: false,
        }
    }

    /// The span of a call that takes the lock `name`. The names of locks are the user's data, so a
    /// span has them only if the user asked for it.
    pub(crate) fn span(&self, name: &Arc<str>, lock: ObservedLock, label: &str) -> Span {
        let span = tracing::debug_span!(
            target: "ringfence",
            "lock acquire",
            ringfence.kind = lock.kind.as_str(),
            ringfence.label = label,
            ringfence.name = Empty,
        );
        if self.trace_names {
            span.record("ringfence.name", &**name);
        }
        span
    }
}

impl Acquiring<'_> {
    pub(crate) fn begun(&self) -> Timestamp {
        self.begun
    }

    /// An attempt was lost, and the caller will try again.
    pub(crate) fn attempt_lost(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            self.observation.counts.waits();
            self.observation.exported.waits(self.lock);
        }
    }

    /// The lock was granted as `id`. `votes` are read only if a listener wants them.
    pub(crate) fn granted(
        mut self,
        id: &GrantId,
        now: Timestamp,
        votes: impl FnOnce() -> Vec<Vote>,
    ) {
        tracing::debug!(
            target: "ringfence",
            name = %self.name,
            fence = %id.ballot,
            token = %id.token,
            "lock granted"
        );
        self.end(AcquireOutcome::Granted, now);
        let observation = self.observation;
        observation.tell(|| Event::Granted {
            name: Arc::clone(self.name),
            kind: self.lock.kind,
            fence: id.ballot.get(),
            waited: now.since(self.begun),
            votes: Votes::new(&observation.node_names, votes()),
        });
    }

    /// The lock was refused.
    pub(crate) fn refused(mut self, error: &AcquireError) {
        tracing::debug!(target: "ringfence", name = %self.name, why = %error, "lock refused");
        let now = self.clock.now();
        self.end(outcome(error), now);
        self.observation.tell(|| Event::Refused {
            name: Arc::clone(self.name),
            kind: self.lock.kind,
            waited: now.since(self.begun),
            error: error.clone(),
        });
    }

    fn end(&mut self, outcome: AcquireOutcome, now: Timestamp) {
        self.has_outcome = true;
        let Observation {
            counts, exported, ..
        } = self.observation;
        if self.waits {
            counts.waits_no_more();
            exported.waits_no_more(self.lock);
        }
        counts.acquired(outcome);
        exported.acquired(self.lock, outcome, now.since(self.begun));
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        if !self.has_outcome {
            self.end(AcquireOutcome::Dropped, self.clock.now());
        }
    }
}

fn outcome(error: &AcquireError) -> AcquireOutcome {
    match error {
        AcquireError::Held { .. } | AcquireError::Full { .. } => AcquireOutcome::Held,
        AcquireError::NoQuorum { .. } => AcquireOutcome::NoQuorum,
        AcquireError::Quarantined { .. } => AcquireOutcome::Quarantined,
        AcquireError::Misconfigured { .. } => AcquireOutcome::Misconfigured,
        AcquireError::Expired { .. } => AcquireOutcome::Expired,
        AcquireError::ClocksApart { .. } | AcquireError::FenceAhead { .. } => {
            AcquireOutcome::ClocksApart
        }
        AcquireError::Closed { .. } => AcquireOutcome::Closed,
        // The only setting that is checked during a call: the tokio runtime has ended.
        AcquireError::Invalid(_) => AcquireOutcome::Closed,
        AcquireError::NoEntropy(_) => AcquireOutcome::Failed,
    }
}
