//! Leader election without async.

use std::sync::Arc;

use crate::client::terms::terms;
use crate::client::{
    self, AcquireError, ConfigError, HoldError, InspectError, Leader, LeaderChange, Receipt,
    ReleaseError, WorkDone,
};

use super::held::{fenced, guard, held, hold};
use super::{Engine, Locks};

/// An election. See [`crate::Election`].
#[derive(Debug, Clone)]
#[must_use = "an election does nothing until `campaign` or `observe` is called"]
pub struct Election {
    engine: Arc<Engine>,
    election: client::Election,
}

impl Locks {
    /// The election `name`: one leader at a time. See [`crate::Locks::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            engine: Arc::clone(&self.engine),
            election: self.engine.locks.election(name),
        }
    }
}

impl Election {
    terms! {
        election:
        label,
        max_hold,
        lock_delay,
    }

    /// Stands for election and blocks until elected. See [`crate::Election::campaign`].
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    #[track_caller]
    pub fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.engine.take(self.election.campaign())
    }

    /// Leads if no other candidate leads or waits. See [`crate::Election::try_campaign`].
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another candidate leads.
    #[track_caller]
    pub fn try_campaign(&self) -> Result<Leadership, AcquireError> {
        self.engine.take(self.election.try_campaign())
    }

    /// Blocks until elected, does `work`, and resigns. Nothing can stop a thread from outside: work
    /// that takes long should call [`Leadership::check`] now and then. See
    /// [`crate::Election::lead`].
    ///
    /// # Errors
    /// If this candidate was not elected, or if it was lost before the work was done.
    #[track_caller]
    pub fn lead<T>(&self, work: impl FnOnce(&Leadership) -> T) -> Result<T, HoldError> {
        self.lead_to_end(work)?.held()
    }

    /// As [`lead`](Self::lead), but returns the output also if the lead was lost before the work was done.
    ///
    /// # Errors
    /// If the lead was not granted. The work did not begin.
    #[track_caller]
    pub fn lead_to_end<T>(
        &self,
        work: impl FnOnce(&Leadership) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        hold!(self.campaign()?, work)
    }

    /// The present leader, as a majority of the nodes sees it. See [`crate::Election::leader`].
    ///
    /// # Errors
    /// If too few nodes answer to decide, or if the name is not allowed.
    #[track_caller]
    pub fn leader(&self) -> Result<Option<Leader>, InspectError> {
        self.engine.run(self.election.leader())
    }

    /// Watches who leads, without standing. See [`crate::Election::observe`].
    ///
    /// # Errors
    /// If the name is not allowed. Nothing was sent.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        Ok(Observer {
            observer: self.election.observe()?,
            engine: Arc::clone(&self.engine),
        })
    }
}

guard! {
    /// The lead of an election. See [`crate::Leadership`].
    #[must_use = "dropping the leadership resigns"]
    Leadership
}

impl Leadership {
    /// The term: higher than that of every earlier leader. See [`crate::Leadership::term`].
    pub fn term(&self) -> u64 {
        self.guard.term()
    }

    fenced!();

    held!();

    /// What another process needs to extend or release this lead. See [`crate::Guard::receipt`].
    pub fn receipt(&self) -> Receipt {
        self.guard.receipt()
    }

    /// Resigns: the next candidate in the queue is elected at once. See
    /// [`crate::Leadership::resign`].
    ///
    /// # Errors
    /// If the lead had been lost before, or if no majority of the nodes confirmed.
    #[track_caller]
    pub fn resign(self) -> Result<(), ReleaseError> {
        self.engine.run(self.guard.resign())
    }
}

/// Watches an election. See [`crate::Observer`].
#[derive(Debug)]
pub struct Observer {
    observer: client::Observer,
    engine: Arc<Engine>,
}

impl Observer {
    /// Blocks until something changes: the present state at first, then each leader, and when there
    /// is none. `None` once the client is closed. See [`crate::Observer::next`].
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's adapters would hide that each step blocks"
    )]
    #[track_caller]
    pub fn next(&mut self) -> Option<LeaderChange> {
        self.engine.run(self.observer.next())
    }

    /// Blocks until there is a leader that was not reported yet. See
    /// [`crate::Observer::next_leader`].
    #[track_caller]
    pub fn next_leader(&mut self) -> Option<Leader> {
        self.engine.run(self.observer.next_leader())
    }
}
