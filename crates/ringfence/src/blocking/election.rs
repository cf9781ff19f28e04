//! Leader election without async.

use std::sync::Arc;
use std::time::Duration;

use crate::client::terms::terms;
use crate::client::{self, AcquireError, ConfigError, Leader, Receipt, ReleaseError, Votes};
use crate::node::Tier;
use crate::protocol::Lost;
use crate::time::Timestamp;
use crate::token::Token;

use super::held::{getters, guard};
use super::{Engine, Locks};

/// An election. See [`crate::Election`].
#[derive(Debug, Clone)]
#[must_use = "an election does nothing until `campaign` or `observe` is called"]
pub struct Election {
    engine: Arc<Engine>,
    election: client::Election,
}

impl Locks {
    /// See [`crate::Locks::election`].
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
        label(label: &str),
        max_hold(max_hold: impl Into<Option<Duration>>),
        lock_delay(delay: Duration),
    }

    /// See [`crate::Election::campaign`].
    pub fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.engine.take(self.election.campaign())
    }

    /// See [`crate::Election::observe`].
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        Ok(Observer {
            observer: self.election.observe()?,
            engine: Arc::clone(&self.engine),
        })
    }
}

guard! {
    /// The lead. See [`crate::Leadership`].
    #[must_use = "dropping the leadership resigns"]
    Leadership
}

impl Leadership {
    /// See [`crate::Leadership::term`].
    pub fn term(&self) -> u64 {
        self.guard.term()
    }

    getters! {
        fence -> u64,
        token -> &Token,
        name -> &str,
        check -> Result<(), Lost>,
        remaining -> Duration,
        deadline -> std::time::Instant,
        exact_deadline -> Timestamp,
        votes -> Votes,
        durability -> Tier,
        receipt -> Receipt,
    }

    /// Blocks until the lead is lost. See [`crate::Leadership::lost`].
    pub fn lost(&self) -> Lost {
        self.engine.run(self.guard.lost())
    }

    /// See [`crate::Leadership::resign`].
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
    /// Blocks until there is a leader with a higher term; `None` once the client is closed.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator's adapters would hide that each step blocks"
    )]
    pub fn next(&mut self) -> Option<Leader> {
        self.engine.run(self.observer.next())
    }
}
