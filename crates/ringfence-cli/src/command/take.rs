//! Takes a lock, and reports what it waits for if that takes long.

use std::pin::pin;
use std::time::Duration;

use ringfence::{
    AcquireError, Election, Guard, Inspection, Leadership, Lock, ReadGuard, RwLock, Semaphore,
    SemaphoreGuard,
};

use super::CommandContext;
use crate::args::LockArgs;
use crate::duration;
use crate::report::{CliFailure, one_line};

/// A wait that is shorter than this is not reported.
const SILENT: Duration = Duration::from_secs(1);

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
    patiently(context, name, lock.read(), obstacle(context, name)).await
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
    patiently(context, name, lock.lock(), obstacle(context, name)).await
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
    let obstacle = obstacle(context, name);
    patiently(context, name, election.campaign(), obstacle).await
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
    let obstacle = async || match quarantine(context).await {
        Some(why) => format!(": {why}"),
        None => ", of which no permit is free".to_owned(),
    };
    patiently(context, name, semaphore.acquire(), obstacle()).await
}

/// Waits for `taken`. After [`SILENT`], warns once with the obstacle.
async fn patiently<T>(
    context: &CommandContext,
    name: &str,
    taken: impl Future<Output = Result<T, AcquireError>>,
    obstacle: impl Future<Output = String>,
) -> Result<T, CliFailure> {
    let mut taken = pin!(taken);
    tokio::select! {
        taken = &mut taken => return Ok(taken?),
        () = tokio::time::sleep(SILENT) => {}
    }
    tokio::select! {
        taken = &mut taken => return Ok(taken?),
        why = obstacle => {
            let name = one_line(name);
            context.report.warn(&format!("waiting for `{name}`{why}"));
        }
    }
    Ok(taken.await?)
}

/// Why the lock cannot be taken now, as far as a majority knows.
async fn obstacle(context: &CommandContext, name: &str) -> String {
    let inspection = match context.locks.inspect(name).await {
        Ok(inspection) => inspection,
        Err(error) => return format!(": {error}"),
    };
    if let Some(who) = holder(&inspection) {
        return format!(", {who}");
    }
    let why = quarantine(context).await;
    why.map_or_else(String::new, |why| format!(": {why}"))
}

/// If too few nodes vote because some are new or were restarted: which nodes, and for how long.
async fn quarantine(context: &CommandContext) -> Option<String> {
    let nodes = context.locks.nodes().await;
    let young = nodes.iter().filter(|node| node.quarantine.is_some());
    let young: Vec<&str> = young.map(|node| node.node.as_str()).collect();
    let answering = nodes.iter().filter(|node| node.facts.is_ok());
    let mut left: Vec<Duration> = answering
        .map(|node| node.quarantine.unwrap_or_default())
        .collect();
    left.sort_unstable();
    // The time after which a majority votes.
    let left = left.get(nodes.len() / 2).filter(|left| !left.is_zero())?;
    Some(format!(
        "nodes {} are new or restarted and may vote in {} s; for a new cluster run \
         `ringfence init`",
        young.join(", "),
        left.as_millis().div_ceil(1000)
    ))
}

/// A description of the holder; `None` if the lock is free.
pub(super) fn holder(inspection: &Inspection) -> Option<String> {
    let Inspection {
        label, holder_id, ..
    } = inspection;
    // Labels come from other processes: escape their control characters.
    let who = match (label, holder_id) {
        _ if !inspection.held => return None,
        (Some(label), _) => label.escape_debug().to_string(),
        (None, Some(id)) => id.escape_debug().to_string(),
        (None, None) => "another client".to_owned(),
    };
    Some(match inspection.remaining {
        Some(left) if inspection.kept => {
            format!("kept for {} after {who} released it", duration::show(left))
        }
        Some(left) => format!("held by {who} for up to {}", duration::show(left)),
        None => format!("held by {who} without an expiry"),
    })
}
