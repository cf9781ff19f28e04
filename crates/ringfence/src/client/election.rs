//! Leader election: a lock that is held for as long as one leads, and a way to see who does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::Driver;
use crate::driver::gather::SoFar;
use crate::message::{Answer, Ballot, Claim, Reply, Request};
use crate::node::CallError;
use crate::protocol::{duplicates, inspect, quorum};
use crate::time::Timestamp;
use crate::token::Token;

use super::error::{AcquireError, ConfigError, ReleaseError};
use super::guard::Guard;
use super::held::{held, impl_held};
use super::inspect::server;
use super::lock::Lock;
use super::receipt::Receipt;
use super::terms::terms;

/// How long a node may take to say who leads.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pauses between two looks: short after a change, longer while nothing happens.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// An election, in which this client may stand or which it may watch. Made by
/// [`Locks::election`](super::Locks::election).
///
/// Leading is holding the lock of that name: an election and a mutex of one name exclude each
/// other, and the fence is the term.
#[derive(Debug, Clone)]
#[must_use = "an election does nothing until `campaign` or `observe` is called"]
pub struct Election(Lock);

/// The lead, until it is lost or resigned. Dropping it resigns in the background.
#[must_use = "dropping the leadership resigns"]
pub struct Leadership(Guard);

/// Who leads.
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

/// Watches an election. Every leader is told once, in the order of their terms; one that led only
/// between two looks may be missed.
pub struct Observer {
    driver: Arc<Driver>,
    request: Arc<Request>,
    /// The highest term told so far.
    term: Ballot,
    pause: Duration,
}

impl Election {
    pub(super) fn new(lock: Lock) -> Self {
        // Whoever leads well leads on; a mutex is bounded because its work should end.
        Self(lock.max_hold(None))
    }

    /// How long after its last sign of life a leader is deposed. See [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// How long to campaign. Default until cancelled. See [`Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// Who stands, for people. See [`Lock::label`].
    pub fn label(self, label: &str) -> Self {
        Self(self.0.label(label))
    }

    terms! {
        @each 0:
        min_validity(min_validity: Duration),
        attempts(attempts: u32),
        no_quorum_after(span: Duration),
    }

    /// For how long one may lead. Default without a bound. See [`Lock::max_hold`].
    pub fn max_hold(self, max_hold: impl Into<Option<Duration>>) -> Self {
        Self(self.0.max_hold(max_hold))
    }

    /// For how long nobody leads after a leader was lost. See [`Lock::lock_delay`].
    pub fn lock_delay(self, delay: Duration) -> Self {
        Self(self.0.lock_delay(delay))
    }

    /// Stands for election and waits in line until elected. Dropping the future withdraws.
    pub async fn campaign(&self) -> Result<Leadership, AcquireError> {
        self.0.lock().await.map(Leadership)
    }

    /// Watches who leads, without standing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// let election = locks.election("scheduler").label("eu-1");
    /// let leadership = election.campaign().await?;
    /// let mut observer = election.observe()?;
    /// let leader = observer.next().await.expect("the client is open");
    /// assert_eq!((leader.label.as_str(), leader.term), ("eu-1", leadership.term()));
    /// leadership.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn observe(&self) -> Result<Observer, ConfigError> {
        let claims: Arc<[Claim]> = self.0.wanted(None)?.claims;
        Ok(Observer {
            driver: Arc::clone(self.0.driver()),
            request: Arc::new(inspect(claims)),
            term: Ballot::default(),
            pause: LOOK_MIN,
        })
    }
}

impl Leadership {
    /// The term: higher than that of every leader before. It is the [fence](Guard::fence): hand it
    /// to the resource, which refuses whatever comes with a lower one.
    pub fn term(&self) -> u64 {
        self.0.fence()
    }

    /// See [`Guard::fence`]: the same as the [term](Self::term).
    pub fn fence(&self) -> u64 {
        self.0.fence()
    }

    /// The identity of this term. Whoever has it can end it.
    pub fn token(&self) -> &Token {
        self.0.token()
    }

    /// The election.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    held!(0);

    /// See [`Guard::receipt`].
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

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.request.claims.iter().map(|claim| claim.name.as_str());
        f.debug_struct("Observer")
            .field("name", &names.collect::<Vec<_>>().join(", "))
            .field("term", &self.term.get())
            .finish_non_exhaustive()
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

impl Observer {
    /// The next leader: the present one at first, afterwards each with a higher term. `None` once
    /// the client is closed. Goes on while no majority answers. Cancel-safe.
    pub async fn next(&mut self) -> Option<Leader> {
        loop {
            if self.driver.closing.is_closed() {
                return None;
            }
            if let Some(leader) = self.look().await {
                self.term = Ballot::new(leader.term);
                self.pause = LOOK_MIN;
                return Some(leader);
            }
            let clock = &self.driver.sender.clock;
            tokio::select! {
                biased;
                () = self.driver.closing.begun() => return None,
                () = clock.sleep_until(clock.now() + self.pause) => {}
            }
            self.pause = (self.pause * 2).min(LOOK_MAX);
        }
    }

    /// One round: who leads, if a majority agrees and nobody with that term was told before.
    async fn look(&self) -> Option<Leader> {
        let driver = &self.driver;
        let sent = driver.sender.clock.now();
        let enough = |answers: &SoFar<Reply>| {
            let answers = answers.iter().map(Option::as_ref);
            self.tally(answers, sent).is_some()
        };
        let answers = driver
            .sender
            .ask_all(&self.request, sent + PATIENCE, enough)
            .await;
        for (node, answer) in answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| answer.is_ok())
        {
            // A node that was born again is noticed by those who only watch, too.
            let now = driver.sender.clock.now();
            driver.sender.hear(node, answer, sent, now);
        }
        self.tally(answers.iter().map(Some), sent)
            .filter(|leader| leader.term > self.term.get())
    }

    /// Whoever sits on a majority under one and the same ballot. The ballot of the holder counts,
    /// not the fence: a candidate that failed raises that.
    fn tally<'a>(
        &self,
        answers: impl Iterator<Item = Option<&'a Result<Reply, CallError>>>,
        sent: Timestamp,
    ) -> Option<Leader> {
        let answers: Vec<_> = answers.collect();
        let servers: Vec<u64> = answers.iter().map(|one| one.map_or(0, server)).collect();
        let seated: Vec<Leader> = answers
            .into_iter()
            .zip(duplicates(&servers))
            .enumerate()
            // One server behind two nodes has one vote.
            .filter(|(_, (_, earlier))| earlier.is_none())
            .filter_map(|(node, (answer, _))| self.seated(node, answer?.as_ref().ok()?, sent))
            .collect();
        let quorum = quorum(self.driver.sender.nodes.len());
        let votes = |one: &Leader| {
            let same = seated
                .iter()
                .filter(|other| (&other.id, other.term) == (&one.id, one.term));
            same.count()
        };
        seated.iter().find(|one| votes(one) >= quorum).cloned()
    }

    /// Whom `node` says to lead. One that does not count has no say: no candidate counts its grant.
    fn seated(&self, node: usize, reply: &Reply, sent: Timestamp) -> Option<Leader> {
        let now = self.driver.sender.clock.now();
        let cluster = self.driver.sender.cluster();
        let discount = cluster.discount(node, reply.standing, sent, now);
        drop(cluster);
        let Answer::Views(views) = &reply.answer else {
            return None;
        };
        let view = views.first().filter(|_| discount.is_none())?;
        let holder = view.holder.as_ref().filter(|holder| !holder.is_kept())?;
        Some(Leader {
            label: holder.label.clone().unwrap_or_default(),
            id: holder.id.clone()?,
            term: view.ballot?.get(),
        })
    }
}
