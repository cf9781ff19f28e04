//! `ringfence acquire`, `extend` and `release`: a lock that outlives this process, and its token.

use serde_json::json;

use super::CommandContext;
use super::take::{TakeRequest, take};
use crate::args::{AcquireArgs, DEFAULT_TTL, ExtendArgs, ReleaseArgs, receipt};
use crate::duration;
use crate::exit::Exit;
use crate::report::{CliFailure, one_line, stdout_was_closed};
use crate::row::millis;

pub(super) async fn acquire(
    context: &CommandContext,
    args: AcquireArgs,
) -> Result<Exit, CliFailure> {
    if stdout_was_closed() {
        return Err(CliFailure::usage(
            "stdout is closed, so nobody could read the token; no lock was taken",
        ));
    }
    let request = TakeRequest {
        names: std::slice::from_ref(&args.name),
        terms: &args.terms,
        kind: &args.kind,
        lock_delay: args.lock_delay.unwrap_or_default(),
        max_hold: None,
        label: args.label.as_deref(),
        renew: false,
    };
    let taken = take(context, request).await?;
    let token = taken.receipt().with_ttl(args.terms.ttl()).expose();
    let held = taken.held();
    let value = json!({
        "name": args.name,
        "token": token,
        "fence": held.fence(),
        "slot": taken.slot(),
        "valid_for_ms": millis(held.remaining()),
        "durability": held.durability().to_string(),
    });
    // If the token cannot be printed, no client could release the lock: then the guard releases it.
    context.report.hand_over(&token, &value)?;
    taken.leave();
    Ok(Exit::Success)
}

pub(super) async fn extend(context: &CommandContext, args: ExtendArgs) -> Result<Exit, CliFailure> {
    let receipt = receipt(&args.name, args.token.as_ref())?;
    let ttl = args.ttl.or_else(|| receipt.ttl()).unwrap_or(DEFAULT_TTL);
    let valid_for = match receipt.permits() {
        Some(permits) => {
            let semaphore = context.locks.semaphore(&args.name, permits);
            semaphore.extend_receipt(&receipt, ttl).await?
        }
        None => {
            let lock = context.locks.mutex(&args.name);
            lock.extend_receipt(&receipt, ttl).await?
        }
    };
    let value = json!({"name": args.name, "valid_for_ms": millis(valid_for)});
    let text = format!("valid for {}", duration::show(valid_for));
    context.report.result(&text, &value)?;
    Ok(Exit::Success)
}

pub(super) async fn release(
    context: &CommandContext,
    args: ReleaseArgs,
) -> Result<Exit, CliFailure> {
    let receipt = receipt(&args.name, args.token.as_ref())?;
    match receipt.permits() {
        Some(permits) => {
            let semaphore = context.locks.semaphore(&args.name, permits);
            semaphore.release_receipt(&receipt).await?;
        }
        None => {
            let lock = context.locks.mutex(&args.name);
            lock.release_receipt(&receipt).await?;
        }
    }
    let text = format!("released {}", one_line(&args.name));
    context
        .report
        .result(&text, &json!({"name": args.name, "released": true}))?;
    Ok(Exit::Success)
}
