//! Takes a lock, and shows what it waits for if that takes long.

use ringfence::clock::Clock;
use ringfence::{
    AcquireError, Election, Guard, Leadership, Lock, ReadGuard, RwLock, Semaphore, SemaphoreGuard,
};

use super::CommandContext;
use super::waiting::{self, Wanted};
use crate::args::LockArgs;
use crate::duration;
use crate::report::{CliFailure, one_line};

/// Applies the arguments to a lock of any kind.
macro_rules! on {
    ($terms:ident, $lock:expr) => {{
        let mut lock = $lock.ttl($terms.ttl);
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

/// The lock `name` with these `terms`, not yet taken.
pub(super) fn lock(context: &CommandContext, name: &str, terms: &LockArgs) -> Lock {
    on!(terms, context.locks.mutex(name))
}

/// The same for a reader that shares the lock.
pub(super) fn shared_lock(context: &CommandContext, name: &str, terms: &LockArgs) -> RwLock {
    on!(terms, context.locks.rw_lock(name))
}

/// Takes `lock` as a reader.
pub(super) async fn take_shared(
    context: &CommandContext,
    lock: RwLock,
    name: &str,
    terms: &LockArgs,
) -> Result<ReadGuard, CliFailure> {
    if terms.no_wait {
        return Ok(lock.try_read().await?);
    }
    patiently(context, name, Wanted::Lock, lock.read()).await
}

/// Takes `lock`.
pub(super) async fn take(
    context: &CommandContext,
    lock: Lock,
    name: &str,
    terms: &LockArgs,
) -> Result<Guard, CliFailure> {
    if terms.no_wait {
        return Ok(lock.try_lock().await?);
    }
    patiently(context, name, Wanted::Lock, lock.lock()).await
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

/// The semaphore `name` with these `terms`; no permit has been taken yet.
pub(super) fn semaphore(
    context: &CommandContext,
    name: &str,
    permits: u32,
    terms: &LockArgs,
) -> Semaphore {
    on!(terms, context.locks.semaphore(name, permits))
}

/// Takes a permit of `semaphore`.
pub(super) async fn permit(
    context: &CommandContext,
    semaphore: Semaphore,
    name: &str,
    terms: &LockArgs,
) -> Result<SemaphoreGuard, CliFailure> {
    if terms.no_wait {
        return Ok(semaphore.try_acquire().await?);
    }
    let wanted = Wanted::Permit(semaphore.permits());
    patiently(context, name, wanted, semaphore.acquire()).await
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
