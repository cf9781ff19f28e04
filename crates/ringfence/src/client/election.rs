//! Leader election: the lock of the election's name, held for as long as its holder leads.
//!
//! `observer.rs` shows who leads, without standing.

use std::sync::Arc;

use crate::message::Claim;
use crate::observation::LockKind;

use super::Locks;
use super::error::{AcquireError, ConfigError, HoldError, InspectError};
use super::guard::Leadership;
use super::hold_work::WorkDone;
use super::kind::Lead;
use super::lock::{Lock, LockTerms};
use super::observer::{Observer, Watch};

/// An election in which this client can stand, or which it can watch. Made by
/// [`Locks::election`](super::Locks::election).
///
/// The leader is the holder of the lock of that name: an election and a mutex of one name exclude
/// each other, and the fence is the term.
pub type Election = Lock<Lead>;

/// A leader of an election.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Leader {
    /// The leader's label, for people.
    pub label: String,
    /// The public half of its token: this term's identity.
    pub id: String,
    /// The term: the leader's fence, higher than that of every leader before.
    pub term: u64,
}

pub(super) fn new(locks: &Locks, name: &str) -> Election {
    let mut terms = LockTerms::new(locks, [name]);
    terms.taken_as = Some(LockKind::Election);
    // A leader that is well leads on; a mutex is bounded because its work should end.
    terms.max_hold = Some(None);
    Lock::new(terms)
}

impl Election {
    /// Stands for election and waits in the queue until elected. Dropping the future leaves the
    /// queue.
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.taken().await
    }

    /// Leads if no other candidate leads or waits. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another candidate leads.
    pub async fn try_campaign(&self) -> Result<Leadership, AcquireError> {
        self.taken_at_once().await
    }

    /// Waits until elected, does `work`, and resigns. The work is dropped at its next await when
    /// the lead is lost. See [`Lock::hold`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let scheduler = locks.election("scheduler");
    /// let term = scheduler.lead(async |lead| lead.term()).await?;
    /// # assert!(term > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If this candidate was not elected, or if it lost the lead before the work was done.
    pub async fn lead<T>(&self, work: impl AsyncFnOnce(&Leadership) -> T) -> Result<T, HoldError> {
        self.hold(work).await
    }

    /// As [`lead`](Self::lead), but returns the output also of work that was done after the lead was
    /// lost. See [`Lock::hold_to_end`].
    ///
    /// # Errors
    /// If the lead was not granted, or if it was lost and the work was stopped.
    pub async fn lead_to_end<T>(
        &self,
        work: impl AsyncFnOnce(&Leadership) -> T,
    ) -> Result<WorkDone<T>, HoldError> {
        self.hold_to_end(work).await
    }

    /// The present leader, as a majority of the nodes sees it; `None` if there is none. Changes
    /// nothing.
    ///
    /// # Errors
    /// If too few nodes answer to decide, or if the name is not allowed.
    pub async fn leader(&self) -> Result<Option<Leader>, InspectError> {
        let asking = async {
            let claims: Arc<[Claim]> = self.terms.wanted(None)?.claims;
            let watch = Watch::new(Arc::clone(self.terms.locks.runtime()), claims);
            watch.leader().await
        };
        self.terms.locks.own(asking).await
    }

    /// Watches who leads, without standing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// use ringfence::observe::LeaderChange;
    ///
    /// let election = locks.election("scheduler").label("eu-1");
    /// let leadership = election.campaign().await?;
    /// let mut observer = election.observe()?;
    /// match observer.next().await.expect("the client is open") {
    ///     LeaderChange::Elected(leader) => assert_eq!(leader.term, leadership.term()),
    ///     change => panic!("{change:?}"),
    /// }
    /// leadership.resign().await?;
    /// assert_eq!(observer.next().await, Some(LeaderChange::Vacant));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the name is not allowed. Nothing was sent.
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        let locks = &self.terms.locks;
        if !locks.is_ours() {
            return Err(ConfigError::ForkedProcess);
        }
        let claims: Arc<[Claim]> = self.terms.wanted(None)?.claims;
        Ok(Observer::new(Watch::new(
            Arc::clone(locks.runtime()),
            claims,
        )))
    }
}
