//! Leader election without async.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{self, AcquireError, ConfigError, Leader, Receipt, ReleaseError, Votes};
use crate::driver::hold::Lost;
use crate::time::Timestamp;
use crate::token::Token;

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

/// The setters of an election, which do not block and so are the same on both sides.
macro_rules! setters {
    ($($name:ident($argument:ident: $type:ty)),* $(,)?) => {
        $(
            #[doc = concat!("See [`crate::Election::", stringify!($name), "`].")]
            pub fn $name(mut self, $argument: $type) -> Self {
                self.election = self.election.$name($argument);
                self
            }
        )*
    };
}

impl Election {
    setters! {
        ttl(ttl: Duration),
        wait(wait: Duration),
        label(label: &str),
        min_validity(min_validity: Duration),
        max_hold(max_hold: impl Into<Option<Duration>>),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
        lock_delay(delay: Duration),
    }

    /// See [`crate::Election::campaign`].
    pub fn campaign(&self) -> Result<Leadership, AcquireError> {
        let leadership = self.engine.run(self.election.campaign())?;
        Ok(Leadership {
            leadership,
            engine: Arc::clone(&self.engine),
        })
    }

    /// See [`crate::Election::observe`].
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        Ok(Observer {
            observer: self.election.observe()?,
            engine: Arc::clone(&self.engine),
        })
    }
}

/// The lead. See [`crate::Leadership`].
// The leadership stands first: it is dropped, and its release begun, before the engine goes.
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    leadership: client::Leadership,
    engine: Arc<Engine>,
}

/// What a leadership tells without blocking.
macro_rules! getters {
    ($($name:ident -> $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("See [`crate::Leadership::", stringify!($name), "`].")]
            pub fn $name(&self) -> $type {
                self.leadership.$name()
            }
        )*
    };
}

impl Leadership {
    getters! {
        term -> u64,
        fence -> u64,
        token -> &Token,
        name -> &str,
        check -> Result<(), Lost>,
        remaining -> Duration,
        deadline -> Timestamp,
        votes -> Votes,
        receipt -> Receipt,
    }

    /// Blocks until the lead is lost. See [`crate::Leadership::lost`].
    pub fn lost(&self) -> Lost {
        self.engine.run(self.leadership.lost())
    }

    /// See [`crate::Leadership::resign`].
    pub fn resign(self) -> Result<(), ReleaseError> {
        self.engine.run(self.leadership.resign())
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leadership.fmt(f)
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
