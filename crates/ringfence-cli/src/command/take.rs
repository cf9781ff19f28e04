//! Takes a lock, and shows what it waits for if that takes long.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{
    AcquireError, Election, Guard, Held, Leadership, ReadGuard, Receipt, SemaphoreGuard,
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

/// What `run` and `acquire` take, and on which terms.
pub(super) struct TakeRequest<'a> {
    pub(super) name: &'a str,
    pub(super) terms: &'a LockArgs,
    pub(super) kind: &'a KindArgs,
    pub(super) lock_delay: Duration,
    /// The longest time for which it may be held.
    pub(super) max_hold: Option<Duration>,
    pub(super) label: Option<&'a str>,
    pub(super) renew: bool,
}

/// What was taken.
pub(super) enum Taken {
    Exclusive(Guard),
    Shared(ReadGuard),
    Permit(SemaphoreGuard),
}

/// Applies a request to a lock of any kind.
macro_rules! requested {
    ($request:ident, $lock:expr) => {{
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

/// Takes what `request` asks for.
pub(super) async fn take(
    context: &CommandContext,
    request: TakeRequest<'_>,
) -> Result<Taken, CliFailure> {
    let (locks, name, kind) = (&context.locks, request.name, request.kind);
    let at_once = request.terms.no_wait;
    if let Some(permits) = kind.permits {
        let semaphore = requested!(request, locks.semaphore(name, permits));
        if at_once {
            return Ok(Taken::Permit(semaphore.try_acquire().await?));
        }
        let (wanted, acquired) = (Wanted::Permit(permits), semaphore.acquire());
        let permit = patiently(context, name, wanted, acquired).await?;
        return Ok(Taken::Permit(permit));
    }
    if kind.shared {
        let lock = requested!(request, locks.rw_lock(name));
        if at_once {
            return Ok(Taken::Shared(lock.try_read().await?));
        }
        let share = patiently(context, name, Wanted::Lock, lock.read()).await?;
        return Ok(Taken::Shared(share));
    }
    let lock = requested!(request, locks.mutex(name));
    let lock = lock.hold_at_least(kind.hold_at_least.unwrap_or_default());
    if at_once {
        return Ok(Taken::Exclusive(lock.try_lock().await?));
    }
    let guard = patiently(context, name, Wanted::Lock, lock.lock()).await?;
    Ok(Taken::Exclusive(guard))
}

impl Taken {
    /// The guard, whatever its kind.
    pub(super) fn held(&self) -> &dyn Held {
        match self {
            Self::Exclusive(guard) => guard,
            Self::Shared(guard) => guard,
            Self::Permit(guard) => guard,
        }
    }

    /// What another process needs to extend or release it.
    pub(super) fn receipt(&self) -> Receipt {
        match self {
            Self::Exclusive(guard) => guard.receipt(),
            Self::Shared(guard) => guard.receipt(),
            Self::Permit(guard) => guard.receipt(),
        }
    }

    /// The slot, if it is a permit of a semaphore.
    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            Self::Exclusive(_) | Self::Shared(_) => None,
        }
    }

    /// Leaves it behind: it is held after this process has ended.
    pub(super) fn leave(self) {
        match self {
            Self::Exclusive(guard) => guard.leave(),
            Self::Shared(guard) => guard.leave(),
            Self::Permit(guard) => guard.leave(),
        };
    }
}

impl From<Taken> for Lease {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Exclusive(guard) => guard.into(),
            Taken::Shared(guard) => guard.into(),
            Taken::Permit(guard) => guard.into(),
        }
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
    if terms.no_wait {
        return Ok(election.try_campaign().await?);
    }
    patiently(context, name, Wanted::Lock, election.campaign()).await
}

/// Waits for `taken`, and shows what stands in the way.
async fn patiently<T>(
    context: &CommandContext,
    name: &str,
    wanted: Wanted,
    taken: impl Future<Output = Result<T, AcquireError>>,
) -> Result<T, CliFailure> {
    let began = Clock::System.now();
    let taken = tokio::select! {
        taken = taken => taken?,
        never = waiting::show(context, name, wanted) => never,
    };
    let (name, waited) = (
        one_line(name),
        duration::show(Clock::System.now().since(began)),
    );
    context
        .report
        .tell(&format!("acquired `{name}` after {waited}"));
    Ok(taken)
}
