//! A lock that can be taken: its names and its terms, checked before anything is sent.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::Instrument;

use crate::environment::OwnCall;
use crate::message::{Claim, Kind as ClaimKind, Mode};
use crate::name::{Name, NameError};
use crate::observation::{LockKind, ObservedLock};
use crate::protocol::{AcquireTerms, Attempt, Cluster, HoldPolicy};
use crate::runtime::ClientRuntime;
use crate::runtime::acquire::{AcquireRequest, acquire};
use crate::runtime::hold::HeldLock;
use crate::time::Timestamp;

use super::Locks;
use super::error::{AcquireError, ConfigError};
use super::guard::{Guard, GuardState};
use super::kind::{Exclusive, Kind};
use super::owner::Owner;
use super::semaphore::check_permits;
use super::settings::{Settings, checked_label};

/// How long to go on without a majority, unless the lock says otherwise: long enough for a
/// restart, short enough that a mistyped host does not hang a job for ever.
pub(super) const NO_QUORUM_AFTER: Duration = Duration::from_secs(15);
/// How long a lock may be held, unless the lock says otherwise.
const MAX_HOLD: Duration = Duration::from_secs(3600);

/// The shortest TTL: below, the drift and one round trip leave nothing.
const TTL_MIN: Duration = Duration::from_millis(50);
/// The longest TTL of a single node, which has no quarantine to outlive: a year.
pub(super) const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A lock that is not yet taken. Made by [`Locks::mutex`] and [`Locks::multi`]; with another kind
/// `K` it is a [`RwLock`](crate::RwLock), a [`Semaphore`](crate::Semaphore), an [`Election`](crate::Election) or a
/// [`PlainLock`](crate::PlainLock).
#[derive(Clone)]
#[must_use = "a lock does nothing until it is taken"]
pub struct Lock<K: Kind = Exclusive> {
    pub(super) terms: LockTerms,
    kind: PhantomData<K>,
}

/// What a lock of any kind is about: its names, and the terms on which it is taken.
#[derive(Clone)]
pub(super) struct LockTerms {
    pub(super) locks: Locks,
    pub(super) claims: Result<Arc<[Claim]>, NameError>,
    /// The names, for people.
    pub(super) name: Arc<str>,
    pub(super) ttl: Duration,
    pub(super) wait: Option<Duration>,
    pub(super) label: Option<String>,
    pub(super) renew: bool,
    pub(super) min_validity: Option<Duration>,
    /// `None`: the default; `Some(None)`: no bound.
    pub(super) max_hold: Option<Option<Duration>>,
    pub(super) attempts: Option<u32>,
    pub(super) no_quorum_after: Duration,
    pub(super) owner: Option<Owner>,
    pub(super) lock_delay: Duration,
    pub(super) hold_at_least: Duration,
    pub(super) kind: ClaimKind,
    /// What it is for the user, if that is more than its kind for the nodes.
    pub(super) taken_as: Option<LockKind>,
    /// How many permits the semaphore has, if it is one.
    pub(super) permits: Option<u32>,
}

impl LockTerms {
    /// The terms of a lock over `names`, as the client has them by default.
    pub(super) fn new<S: AsRef<str>>(locks: &Locks, names: impl IntoIterator<Item = S>) -> Self {
        let claims = locks.claims(names);
        let name = match claims.as_deref() {
            Ok([only]) => only.name.shown(),
            Ok(several) => {
                let names: Vec<String> = several.iter().map(|c| c.name.to_string()).collect();
                names.join(", ").into()
            }
            Err(_) => Arc::default(),
        };
        Self {
            ttl: locks.shared.settings.ttl,
            locks: locks.clone(),
            claims,
            name,
            wait: locks.shared.settings.wait,
            label: None,
            renew: locks.shared.settings.renew,
            min_validity: None,
            max_hold: locks.shared.settings.max_hold,
            attempts: None,
            no_quorum_after: locks.shared.settings.no_quorum_after,
            owner: None,
            lock_delay: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            kind: ClaimKind::Exclusive,
            taken_as: None,
            permits: None,
        }
    }
}

impl<K: Kind> Lock<K> {
    pub(super) fn new(terms: LockTerms) -> Self {
        let kind = PhantomData;
        Self { terms, kind }
    }

    /// Takes it, waiting as long as its terms say.
    pub(crate) async fn taken(&self) -> Result<Guard<K>, AcquireError> {
        self.terms.take(self.terms.wait).await.map(Guard::new)
    }

    /// Takes it if it is free.
    pub(super) async fn taken_at_once(&self) -> Result<Guard<K>, AcquireError> {
        self.terms.take(Some(Duration::ZERO)).await.map(Guard::new)
    }
}

impl Lock {
    /// Takes the lock. Waits in the queue while another client holds it.
    ///
    /// Dropping the future at any point undoes the attempt in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("memory:").await?;
    /// use std::time::Duration;
    ///
    /// let lock = locks.multi(["stock:7", "orders:42"]).wait(Duration::from_secs(5));
    /// let guard = lock.lock().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the wait is over, or if no majority of the nodes can be asked. See [`AcquireError`].
    pub async fn lock(&self) -> Result<Guard, AcquireError> {
        self.taken().await
    }

    /// Takes the lock if it is free and no other client waits for it. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    pub async fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.taken_at_once().await
    }
}

impl LockTerms {
    /// The same lock for readers.
    pub(super) fn shared(&self) -> Self {
        let shared = |claims: Arc<[Claim]>| claims.iter().map(Claim::shared).collect();
        Self {
            claims: self.claims.clone().map(shared),
            kind: ClaimKind::Shared,
            taken_as: None,
            ..self.clone()
        }
    }

    pub(super) async fn take(&self, wait: Option<Duration>) -> Result<GuardState, AcquireError> {
        let taking = async {
            match &self.owner {
                Some(owner) => self.take_for(owner, wait).await,
                None => self.take_alone(wait).await,
            }
        };
        self.locks.own(taking).await
    }

    pub(super) async fn take_alone(
        &self,
        wait: Option<Duration>,
    ) -> Result<GuardState, AcquireError> {
        let name = &self.name;
        let wanted = self.wanted(wait)?;
        let runtime = &self.locks.shared.runtime;
        let (observation, clock) = (&runtime.sender.observation, &runtime.sender.clock);
        let observed = self.observed(&wanted.claims);
        let span = observation.span(name, observed, &wanted.label);
        let mut acquiring = observation.acquiring(clock, name, observed);
        let begun = acquiring.begun();
        let (mut looked, mut own_hold) = (false, None);
        let (mut told_of_quarantine, mut told_of_permits) = (false, false);
        // Of a semaphore one client may well hold several.
        let waiting = wait.is_none_or(|wait| !wait.is_zero()) && self.kind != ClaimKind::Slot;
        let on_lost = |attempt: &Attempt, again: Timestamp| {
            tracing::trace!(target: "ringfence", ballot = %attempt.ballot(), ?again, votes = ?attempt.votes().collect::<Vec<_>>(), "attempt lost");
            acquiring.attempt_lost();
            told_of_permits = told_of_permits || self.warn_of_other_number(attempt);
            if waiting && !std::mem::replace(&mut looked, true) {
                own_hold = self.own_hold(&wanted);
            }
            let waited = clock.now().since(begun);
            let is_long = |held: &mut Arc<HeldLock>| waited >= held.policy().ttl;
            if let Some(held) = own_hold.take_if(is_long) {
                self.tell_of_own_hold(&wanted, &held);
            }
            if !told_of_quarantine {
                told_of_quarantine = self.warn_of_quarantine(attempt);
            }
        };
        let won = acquire(runtime, &wanted, begun, on_lost)
            .instrument(span)
            .await;
        let won = match won {
            Ok(won) => won,
            Err(refusal) => {
                let names = &self.locks.shared.names;
                let error = AcquireError::new(name.to_string(), self.permits, names, refusal);
                acquiring.refused(&error);
                return Err(error);
            }
        };
        let policy = self.policy(wanted);
        let slot = won.round.with(|attempt| {
            if !told_of_permits {
                self.warn_of_other_number(attempt);
            }
            attempt.slot()
        });
        let (hold, now) = HeldLock::new(runtime, won, policy, observed);
        acquiring.granted(hold.id(), now, || hold.votes());
        let mut state = GuardState::new(&self.locks, hold, Arc::clone(name));
        state.slot = slot.unwrap_or_default();
        Ok(state)
    }

    /// How the hold of a lock that was taken as `wanted` is maintained.
    fn policy(&self, wanted: AcquireRequest) -> HoldPolicy {
        let ttl = wanted.terms.ttl;
        HoldPolicy {
            ttl,
            lock_delay: wanted.delay,
            hold_at_least: self.hold_at_least,
            call_timeout: wanted.terms.call_timeout,
            drift: wanted.terms.drift,
            renew: self.renew,
            max_hold: self.max_hold.unwrap_or(Some(MAX_HOLD.max(ttl))),
            label: wanted.label,
        }
    }

    /// How it is observed.
    fn observed(&self, claims: &[Claim]) -> ObservedLock {
        let kind = self
            .taken_as
            .unwrap_or_else(|| LockKind::of(self.kind, claims.len()));
        // The claims of a semaphore are parts of one name.
        let names = if self.kind == ClaimKind::Slot {
            1
        } else {
            claims.len()
        };
        let shared = &self.locks.shared;
        let prefix = shared.settings.prefix.as_str();
        let names = claims[..names].iter().map(|claim| claim.name.given());
        let names = names.map(|name| name.strip_prefix(prefix).unwrap_or(name));
        shared.runtime.sender.observation.lock(kind, names)
    }

    pub(super) fn wanted(&self, wait: Option<Duration>) -> Result<AcquireRequest, ConfigError> {
        let shared = &self.locks.shared;
        if shared.runtime.closing.runtime_gone.load(Ordering::SeqCst) {
            return Err(ConfigError::RuntimeGone);
        }
        if let Some(permits) = self.permits {
            check_permits(permits)?;
        }
        let claims = self.claims.clone()?;
        let settings = &shared.settings;
        let label = match &self.label {
            Some(label) => checked_label(label)?,
            None => Arc::clone(&settings.label),
        };
        let ttl = whole_millis(self.ttl);
        let delay = whole_millis(self.lock_delay);
        let most = longest_ttl(&shared.runtime.sender.cluster());
        settings.check_lease(ttl, delay, most)?;
        if self.hold_at_least > TTL_MAX {
            return Err(ConfigError::HoldAtLeastTooLong {
                span: self.hold_at_least,
            });
        }
        let min_validity = self.min_validity.unwrap_or(ttl / 10);
        if settings.drift.allowance(ttl).saturating_add(min_validity) >= ttl {
            return Err(ConfigError::MinValidity { min_validity, ttl });
        }
        if self.attempts == Some(0) {
            return Err(ConfigError::NoAttempts);
        }
        if self.max_hold.flatten().is_some_and(|span| span.is_zero()) {
            return Err(ConfigError::MaxHoldZero);
        }
        Ok(AcquireRequest {
            claims,
            label,
            delay,
            terms: AcquireTerms {
                nodes: shared.runtime.sender.nodes.len(),
                ttl,
                drift: settings.drift,
                min_validity,
                call_timeout: settings.call_timeout(ttl),
                wait,
                attempts: self.attempts,
                no_quorum_after: self.no_quorum_after,
                kind: self.kind,
            },
        })
    }
}

impl Locks {
    /// The exclusive lock `name`, with a fence.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.multi([name])
    }

    /// The exclusive locks `names`, all at once or none: no deadlock, whatever the order.
    pub fn multi<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Lock {
        Lock::new(LockTerms::new(self, names))
    }

    /// The longest TTL that these nodes allow now. Nodes that form a quorum allow what their
    /// quarantine covers (30 s by default), and so does a single server with a failover behind it (30 s,
    /// or 33 s if Sentinels name it); any other single node allows a year.
    ///
    /// Until a majority of the nodes has answered, this is the value of the client's own settings.
    pub fn longest_ttl(&self) -> Duration {
        match self.is_ours() {
            true => longest_ttl(&self.shared.runtime.sender.cluster()),
            false => Duration::ZERO,
        }
    }

    pub(super) fn claims<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Arc<[Claim]>, NameError> {
        let names = Name::set(&self.shared.settings.prefix, names)?;
        let claims = names.iter().map(|name| Claim {
            name: name.clone(),
            mode: Mode::Exclusive,
        });
        Ok(claims.collect())
    }

    /// Whether this is the process that connected, and not a forked child of it.
    pub(super) fn is_ours(&self) -> bool {
        self.shared.runtime.process.is_ours()
    }

    /// Runs a call of this client. In a forked child it ends with [`ConfigError::ForkedProcess`].
    pub(super) fn own<T, E: From<ConfigError>, F: Future<Output = Result<T, E>>>(
        &self,
        call: F,
    ) -> OwnCall<F> {
        let forked = || Err(ConfigError::ForkedProcess.into());
        self.shared.runtime.process.call(call, forked)
    }

    pub(super) fn runtime(&self) -> &Arc<ClientRuntime> {
        &self.shared.runtime
    }
}

impl<K: Kind> fmt::Debug for Lock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = &self.terms;
        let label = &terms.locks.shared.settings.label;
        let mut shown = f.debug_struct(K::LOCK);
        shown.field("name", &terms.name);
        if let Some(permits) = terms.permits {
            shown.field("permits", &permits);
        }
        shown
            .field("ttl", &terms.ttl)
            .field("wait", &terms.wait)
            .field("label", &terms.label.as_deref().unwrap_or(label))
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// How long a node may take to answer: unless it was set, a tenth of the TTL, within reason.
    pub(super) fn call_timeout(&self, ttl: Duration) -> Duration {
        let tenth = (ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        self.node_timeout.unwrap_or(tenth)
    }

    /// Checks a TTL, where `most` is the longest: a node that forgot must stay out until every lock
    /// has ended.
    pub(super) fn check_ttl(&self, ttl: Duration, most: Duration) -> Result<(), ConfigError> {
        let least = TTL_MIN.max(self.drift.allowance(ttl).saturating_mul(2));
        if ttl < least {
            return Err(ConfigError::TtlTooShort { ttl, least });
        }
        if ttl > most {
            return Err(ConfigError::TtlTooLong { ttl, most });
        }
        Ok(())
    }

    /// The same with a lock delay on top, for which the nodes keep the lock longer.
    pub(super) fn check_lease(
        &self,
        ttl: Duration,
        delay: Duration,
        most: Duration,
    ) -> Result<(), ConfigError> {
        self.check_ttl(ttl, most)?;
        match self.check_ttl(ttl.saturating_add(delay), most) {
            Err(ConfigError::TtlTooLong { most, .. }) => Err(ConfigError::LeaseTooLong {
                ttl,
                lock_delay: delay,
                most,
            }),
            _ => Ok(()),
        }
    }
}

/// The longest TTL that the nodes allow. A node that may have forgotten a lock must not vote before
/// that lock has ended. A single node that no failover replaces has no quarantine.
fn longest_ttl(cluster: &Cluster) -> Duration {
    cluster.longest_lease().unwrap_or(TTL_MAX)
}

/// Nodes count leases in milliseconds; a fraction more would be ours alone.
pub(super) fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}
