//! Takes a lock, and shows what it waits for if that takes long.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::receipt::Receipt;
use ringfence::{
    AcquireError, Election, Guard, Held, Leadership, Locks, ReadGuard, ReleaseError, SemaphoreGuard,
};

use super::CommandContext;
use super::waiting::{self, Wanted};
use crate::args::{KindArgs, LockArgs};
use crate::duration;
use crate::lease::Lease;
use crate::report::{CliFailure, one_line};

/// Applies the arguments to a lock of any kind.
macro_rules! on {
    ($terms:ident, $lock:expr) => {{
        let mut lock = $lock.ttl($terms.ttl());
        if let Some(wait) = $terms.wait {
            lock = lock.wait(wait);
        }
        if let Some(attempts) = $terms.attempts {
            lock = lock.attempts(attempts);
        }
        if let Some(patience) = $terms.no_quorum_after {
            lock = lock.no_quorum_after(patience);
        }
        lock
    }};
}

/// What `run`, `acquire` and `serve` take, and on which terms.
pub(crate) struct TakeRequest<'a> {
    /// The name, or several that are taken together.
    pub(crate) names: &'a [String],
    pub(crate) terms: &'a LockArgs,
    pub(crate) kind: &'a KindArgs,
    pub(crate) lock_delay: Duration,
    /// The longest time for which it may be held.
    pub(crate) max_hold: Option<Duration>,
    pub(crate) label: Option<&'a str>,
    pub(crate) renew: bool,
}

/// What was taken.
pub(crate) enum Taken {
    Exclusive(Guard),
    Shared(ReadGuard),
    Permit(SemaphoreGuard),
}

/// Applies a request to a lock of any kind.
macro_rules! requested {
    ($request:expr, $lock:expr) => {{
        let terms = $request.terms;
        let mut lock = on!(terms, $lock)
            .renew($request.renew)
            .max_hold($request.max_hold)
            .lock_delay($request.lock_delay);
        if let Some(label) = $request.label {
            lock = lock.label(label);
        }
        lock
    }};
}

/// Takes what `request` asks for, and shows what it waits for.
pub(super) async fn take(
    context: &CommandContext,
    request: TakeRequest<'_>,
) -> Result<Taken, CliFailure> {
    let wait = Wait {
        context,
        name: &request.names[0],
        at_once: request.terms.no_wait,
    };
    let wanted = request.kind.permits.map_or(Wanted::Lock, Wanted::Permit);
    wait.taken(wanted, request.take(&context.locks)).await
}

impl TakeRequest<'_> {
    /// Takes it, or waits for it as the terms say.
    pub(crate) async fn take(&self, locks: &Locks) -> Result<Taken, AcquireError> {
        let (name, kind, at_once) = (&self.names[0], self.kind, self.terms.no_wait);
        if let Some(permits) = kind.permits {
            let semaphore = requested!(self, locks.semaphore(name, permits));
            return Ok(Taken::Permit(match at_once {
                true => semaphore.try_acquire().await?,
                false => semaphore.acquire().await?,
            }));
        }
        if kind.shared {
            let lock = requested!(self, locks.rw_lock(name));
            return Ok(Taken::Shared(match at_once {
                true => lock.try_read().await?,
                false => lock.read().await?,
            }));
        }
        let lock = requested!(self, locks.multi(self.names));
        let lock = lock.hold_at_least(kind.hold_at_least.unwrap_or_default());
        Ok(Taken::Exclusive(match at_once {
            true => lock.try_lock().await?,
            false => lock.lock().await?,
        }))
    }
}

/// Does the same with a guard of any kind.
macro_rules! any {
    ($taken:expr, $guard:ident => $done:expr) => {
        match $taken {
            Taken::Exclusive($guard) => $done,
            Taken::Shared($guard) => $done,
            Taken::Permit($guard) => $done,
        }
    };
}

impl Taken {
    /// The guard, whatever its kind.
    pub(crate) fn held(&self) -> &dyn Held {
        any!(self, guard => guard)
    }

    /// What another process needs to extend or release it.
    pub(crate) fn receipt(&self) -> Receipt {
        any!(self, guard => guard.receipt())
    }

    /// The public part of its token.
    pub(crate) fn token_id(&self) -> String {
        any!(self, guard => guard.token().id().to_string())
    }

    /// The slot, if it is a permit of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            Self::Exclusive(_) | Self::Shared(_) => None,
        }
    }

    /// Releases it.
    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        any!(self, guard => guard.release().await)
    }

    /// Leaves it behind: it is held after this process has ended.
    pub(crate) fn leave(self) {
        any!(self, guard => drop(guard.leave()));
    }

    /// The lock for a command that runs under it.
    pub(super) fn into_lease(self) -> Lease {
        let (receipt, slot) = (self.receipt(), self.slot());
        any!(self, guard => Lease::new(guard, &receipt, slot))
    }
}

/// The election `name` with these `terms`; this candidate does not stand yet.
pub(super) fn election(context: &CommandContext, name: &str, terms: &LockArgs) -> Election {
    on!(terms, context.locks.election(name))
}

/// Stands in `election` until it leads.
pub(super) async fn lead(
    context: &CommandContext,
    election: &Election,
    name: &str,
    terms: &LockArgs,
) -> Result<Leadership, CliFailure> {
    let wait = Wait {
        context,
        name,
        at_once: terms.no_wait,
    };
    let campaign = async {
        match terms.no_wait {
            true => election.try_campaign().await,
            false => election.campaign().await,
        }
    };
    wait.taken(Wanted::Lock, campaign).await
}

/// How a lock is waited for.
struct Wait<'a> {
    context: &'a CommandContext,
    name: &'a str,
    /// Not at all.
    at_once: bool,
}

impl Wait<'_> {
    /// Waits for `taken`, and shows what stands in the way.
    async fn taken<T>(
        &self,
        wanted: Wanted,
        taken: impl Future<Output = Result<T, AcquireError>>,
    ) -> Result<T, CliFailure> {
        if self.at_once {
            return Ok(taken.await?);
        }
        let began = Clock::System.now();
        let taken = tokio::select! {
            taken = taken => taken?,
            never = waiting::show(self.context, self.name, wanted) => never,
        };
        let waited = duration::show(Clock::System.now().since(began));
        let name = one_line(self.name);
        let report = self.context.report;
        report.tell(&format!("acquired `{name}` after {waited}"));
        Ok(taken)
    }
}
