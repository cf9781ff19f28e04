//! Leader election: the lock of the election's name, held for as long as its holder leads.
//!
//! `observer.rs` shows who leads, without standing.

use std::fmt;
use std::sync::Arc;

use crate::message::Claim;
use crate::observation::LockKind;
use crate::token::Token;

use super::error::{AcquireError, ConfigError, HoldError, InspectError, ReleaseError};
use super::guard::Guard;
use super::held::{held, impl_held};
use super::hold_work::{WorkDone, while_held};
use super::lock::Lock;
use super::observer::{Observer, Watch};
use super::receipt::Receipt;
use super::terms::terms;

/// An election in which this client can stand, or which it can watch. Made by
/// [`Locks::election`](super::Locks::election).
///
/// The leader is the holder of the lock of that name: an election and a mutex of one name exclude
/// each other, and the fence is the term.
#[derive(Debug, Clone)]
#[must_use = "an election does nothing until `campaign` or `observe` is called"]
pub struct Election(Lock);

/// The lead of an election. It renews itself until it is lost or resigned; dropping it resigns in
/// the background.
#[must_use = "dropping the leadership resigns"]
pub struct Leadership(Guard);

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

impl Election {
    pub(super) fn new(mut lock: Lock) -> Self {
        lock.taken_as = Some(LockKind::Election);
        // A leader that is well leads on; a mutex is bounded because its work should end.
        Self(lock.max_hold(None))
    }

    terms! {
        0:
        label,
        max_hold,
        lock_delay,
    }

    /// Stands for election and waits in the queue until elected. Dropping the future leaves the
    /// queue.
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.0.lock().await.map(Leadership)
    }

    /// Leads if no other candidate leads or waits. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another candidate leads.
    pub async fn try_campaign(&self) -> Result<Leadership, AcquireError> {
        self.0.try_lock().await.map(Leadership)
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
        self.lead_to_end(work).await?.held()
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
        let guard = self.campaign().await?;
        while_held!(guard, work)
    }

    /// The present leader, as a majority of the nodes sees it; `None` if there is none. Changes
    /// nothing.
    ///
    /// # Errors
    /// If too few nodes answer to decide, or if the name is not allowed.
    pub async fn leader(&self) -> Result<Option<Leader>, InspectError> {
        let asking = async {
            let claims: Arc<[Claim]> = self.0.wanted(None)?.claims;
            let watch = Watch::new(Arc::clone(self.0.runtime()), claims);
            watch.leader().await
        };
        self.0.locks.own(asking).await
    }

    /// Watches who leads, without standing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// use ringfence::LeaderChange;
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
        if !self.0.locks.is_ours() {
            return Err(ConfigError::ForkedProcess);
        }
        let claims: Arc<[Claim]> = self.0.wanted(None)?.claims;
        Ok(Observer::new(Watch::new(
            Arc::clone(self.0.runtime()),
            claims,
        )))
    }
}

impl Leadership {
    /// The term: higher than that of every earlier leader. It is the [fence](Guard::fence): send it
    /// with every write, so that the resource can refuse a lower one.
    pub fn term(&self) -> u64 {
        self.0.fence()
    }

    /// The fence, which is the [term](Self::term).
    pub fn fence(&self) -> u64 {
        self.0.fence()
    }

    /// The token that identifies this term. A client that has it can end the term.
    pub fn token(&self) -> &Token {
        self.0.token()
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    held!(0);

    /// What another process needs to extend or release this lead. See [`Guard::receipt`].
    pub fn receipt(&self) -> Receipt {
        self.0.receipt()
    }

    /// Resigns: the next candidate in the wait queue is elected at once. The same as
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// If the lead had been lost before, or if no majority of the nodes confirmed.
    pub async fn resign(self) -> Result<(), ReleaseError> {
        self.0.release().await
    }
}

impl_held!(Leadership, lead => Some(lead.fence()));

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("name", &self.name())
            .field("term", &self.term())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
