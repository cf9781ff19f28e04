//! `ringfence acquire`: takes a lock that outlives this process.

use serde_json::json;

use super::CommandContext;
use super::take::{TakeRequest, take};
use crate::args::AcquireArgs;
use crate::exit::Exit;
use crate::report::{CliFailure, stdout_was_closed};

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
        name: &args.name,
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
        "valid_for_ms": super::millis(held.remaining()),
        "durability": held.durability().to_string(),
    });
    // If the token cannot be printed, no client could release the lock: then the guard releases it.
    context.report.hand_over(&token, &value)?;
    taken.leave();
    Ok(Exit::Success)
}
