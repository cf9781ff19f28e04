//! A lock that can be taken: its names and its terms, checked before anything is sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::Instrument;

use crate::message::{Claim, Kind};
use crate::name::NameError;
use crate::observation::{LockKind, ObservedLock};
use crate::protocol::{AcquireTerms, Attempt, HoldPolicy};
use crate::runtime::ClientRuntime;
use crate::runtime::acquire::{AcquireRequest, acquire};
use crate::runtime::hold::HeldLock;
use crate::time::Timestamp;

use super::Locks;
use super::error::{AcquireError, ConfigError};
use super::guard::Guard;
use super::lease::{TTL_MAX, longest_ttl, whole_millis};
use super::owner::Owner;
use super::settings::checked_label;

/// How long to go on without a majority, unless the lock says otherwise: long enough for a
/// restart, short enough that a mistyped host does not hang a job for ever.
pub(super) const NO_QUORUM_AFTER: Duration = Duration::from_secs(15);
/// How long a lock may be held, unless the lock says otherwise.
const MAX_HOLD: Duration = Duration::from_secs(3600);

/// An exclusive lock over one or several names, not yet taken. Made by [`Locks::mutex`] and
/// [`Locks::multi`].
#[derive(Clone)]
#[must_use = "a lock does nothing until `lock` or `try_lock` is awaited"]
pub struct Lock {
    pub(super) locks: Locks,
    pub(super) claims: Result<Arc<[Claim]>, NameError>,
    ttl: Duration,
    pub(super) wait: Option<Duration>,
    label: Option<String>,
    renew: bool,
    min_validity: Option<Duration>,
    /// `None`: the default; `Some(None)`: no bound.
    max_hold: Option<Option<Duration>>,
    attempts: Option<u32>,
    no_quorum_after: Duration,
    owner: Option<Owner>,
    lock_delay: Duration,
    hold_at_least: Duration,
    pub(super) kind: Kind,
    /// What it is for the user, if that is more than its kind for the nodes.
    pub(super) taken_as: Option<LockKind>,
}

impl Lock {
    pub(super) fn new(locks: Locks, claims: Result<Arc<[Claim]>, NameError>) -> Self {
        Self {
            ttl: locks.shared.settings.ttl,
            locks,
            claims,
            wait: None,
            label: None,
            renew: true,
            min_validity: None,
            max_hold: None,
            attempts: None,
            no_quorum_after: NO_QUORUM_AFTER,
            owner: None,
            lock_delay: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            kind: Kind::Exclusive,
            taken_as: None,
        }
    }

    /// How long the nodes keep the lock unless its holder renews it. Default: the client's, which
    /// is 10 s. See [`Locks::longest_ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to wait while another client holds the lock; `None` is without a limit, which is
    /// the default. A wait without a limit also covers a quarantine (the nodes are new or were
    /// restarted: about 37 s), and a warning is traced that says for how long.
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// The holder's label, for people. Default: the client's label.
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    /// Whether the lock renews itself while its guard lives. Default yes.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// A grant with less time left than this is undone and not returned. Default: a tenth of the
    /// TTL.
    pub fn min_validity(mut self, min_validity: Duration) -> Self {
        self.min_validity = Some(min_validity);
        self
    }

    /// For how long it may be held in all, renewals included; `None` lifts the bound. Default one
    /// hour, or the TTL if that is longer, because a holder that hangs would otherwise hold for
    /// ever.
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = Some(max_hold.into());
        self
    }

    /// At most this many attempts. Default as many as fit into the wait.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// How long to go on while no majority of the nodes answers. Default 15 s, or the wait if that
    /// is shorter.
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.no_quorum_after = span;
        self
    }

    /// Takes it for `owner`, which can take it again while it holds it: all its guards share one
    /// fence and deadline, on the terms of the first, and the last guard releases the lock.
    /// Default: no owner, and a caller that takes the lock twice waits for itself. What an owner
    /// takes again must have the same names: see [`Owner`].
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// After a holder that was lost (crashed, cut off) no other client gets the lock for this much
    /// longer, so that requests of that holder can end. A release in time frees the lock at once.
    /// Default: zero. Together with the TTL it may be at most the longest TTL.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// If it is released sooner than this after the grant, no other client gets the lock until
    /// then: for short jobs that machines with different clocks would start twice. Default: zero. A
    /// holder that is lost frees the lock with its TTL all the same.
    ///
    /// If no majority of the nodes receives the release, the client sends it again when they are
    /// back, also after the TTL, for as long as the client lives. A node that another client holds
    /// by then is left alone. [`Locks::close`](super::Locks::close) waits at most the TTL for that.
    pub fn hold_at_least(mut self, span: Duration) -> Self {
        self.hold_at_least = span;
        self
    }

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
        self.take(self.wait).await
    }

    /// Takes the lock if it is free and no other client waits for it. Does not wait.
    ///
    /// # Errors
    /// [`AcquireError::Held`] if another client holds it.
    pub async fn try_lock(&self) -> Result<Guard, AcquireError> {
        self.take(Some(Duration::ZERO)).await
    }

    /// The same lock for readers.
    pub(super) fn shared(&self) -> Self {
        let shared = |claims: Arc<[Claim]>| claims.iter().map(Claim::shared).collect();
        Self {
            claims: self.claims.clone().map(shared),
            kind: Kind::Shared,
            taken_as: None,
            ..self.clone()
        }
    }

    async fn take(&self, wait: Option<Duration>) -> Result<Guard, AcquireError> {
        let taking = async {
            match &self.owner {
                Some(owner) => self.take_for(owner, wait).await,
                None => self.take_alone(wait).await,
            }
        };
        self.locks.own(taking).await
    }

    pub(super) async fn take_alone(&self, wait: Option<Duration>) -> Result<Guard, AcquireError> {
        let name = self.name();
        let (guard, _) = self.acquire_with_observer(wait, name, |_| ()).await?;
        Ok(guard)
    }

    /// Takes the lock; `note` sees every attempt that was lost, and the one that was won. Says
    /// which slot of a semaphore it is.
    pub(super) async fn acquire_with_observer(
        &self,
        wait: Option<Duration>,
        name: Arc<str>,
        mut note: impl FnMut(&Attempt),
    ) -> Result<(Guard, Option<u32>), AcquireError> {
        let wanted = self.wanted(wait)?;
        let runtime = &self.locks.shared.runtime;
        let (observation, clock) = (&runtime.sender.observation, &runtime.sender.clock);
        let observed = self.observed(&wanted.claims);
        let span = observation.span(&name, observed, &wanted.label);
        let mut acquiring = observation.acquiring(clock, &name, observed);
        let begun = acquiring.begun();
        let (mut looked, mut own_hold) = (false, None);
        let mut told_of_quarantine = false;
        // Of a semaphore one client may well hold several.
        let waiting = wait.is_none_or(|wait| !wait.is_zero()) && self.kind != Kind::Slot;
        let on_lost = |attempt: &Attempt, again: Timestamp| {
            tracing::trace!(target: "ringfence", ballot = %attempt.ballot(), ?again, votes = ?attempt.votes().collect::<Vec<_>>(), "attempt lost");
            acquiring.attempt_lost();
            note(attempt);
            if waiting && !std::mem::replace(&mut looked, true) {
                own_hold = self.own_hold(&wanted);
            }
            let waited = clock.now().since(begun);
            let is_long = |held: &mut Arc<HeldLock>| waited >= held.policy().ttl;
            if let Some(held) = own_hold.take_if(is_long) {
                self.tell_of_own_hold(&wanted, &held);
            }
            if !told_of_quarantine {
                told_of_quarantine = self.warn_of_quarantine(&name, attempt);
            }
        };
        let won = acquire(runtime, &wanted, begun, on_lost)
            .instrument(span)
            .await;
        let won = match won {
            Ok(won) => won,
            Err(refusal) => {
                let names = &self.locks.shared.names;
                let error = AcquireError::new(name.to_string(), names, refusal);
                acquiring.refused(&error);
                return Err(error);
            }
        };
        let policy = self.policy(wanted);
        let slot = won.round.with(|attempt| {
            note(attempt);
            attempt.slot()
        });
        let (hold, now) = HeldLock::new(runtime, won, policy, observed);
        acquiring.granted(hold.id(), now, || hold.votes());
        Ok((self.locks.guard(hold, name), slot))
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
        let names = if self.kind == Kind::Slot {
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

    pub(super) fn guard(&self, hold: Arc<HeldLock>) -> Guard {
        self.locks.guard(hold, self.name())
    }

    pub(super) fn runtime(&self) -> &Arc<ClientRuntime> {
        &self.locks.shared.runtime
    }

    /// The names, for people.
    pub(super) fn name(&self) -> Arc<str> {
        match self.claims.as_deref() {
            Ok([only]) => only.name.shown(),
            Ok(several) => {
                let names: Vec<String> = several.iter().map(|c| c.name.to_string()).collect();
                names.join(", ").into()
            }
            Err(_) => Arc::default(),
        }
    }

    pub(super) fn wanted(&self, wait: Option<Duration>) -> Result<AcquireRequest, ConfigError> {
        let shared = &self.locks.shared;
        if shared.runtime.closing.runtime_gone.load(Ordering::SeqCst) {
            return Err(ConfigError::RuntimeGone);
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
    /// The guard of `hold`.
    pub(super) fn guard(&self, hold: Arc<HeldLock>, name: Arc<str>) -> Guard {
        Guard {
            hold,
            locks: Self {
                shared: Arc::clone(&self.shared),
            },
            name,
            share: None,
            reads: false,
            done: false,
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.locks.shared.settings.label;
        f.debug_struct("Lock")
            .field("name", &self.name())
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("label", &self.label.as_deref().unwrap_or(label))
            .finish_non_exhaustive()
    }
}
