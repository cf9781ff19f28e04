//! `ringfence acquire`: takes a lock that outlives this process.

use serde_json::json;

use super::{CommandContext, take};
use crate::args::AcquireArgs;
use crate::exit::Exit;
use crate::report::CliFailure;

pub(super) async fn acquire(
    context: &CommandContext,
    args: AcquireArgs,
) -> Result<Exit, CliFailure> {
    let mut lock = take::lock(context, &args.name, &args.terms).renew(false);
    if let Some(label) = &args.label {
        lock = lock.label(label);
    }
    let guard = take::take(context, lock, &args.name, &args.terms).await?;
    let token = guard.receipt().with_ttl(args.terms.ttl).expose();
    let value = json!({
        "name": args.name,
        "token": token,
        "fence": guard.fence(),
        "valid_for_ms": super::millis(guard.remaining()),
        "durability": guard.durability().to_string(),
    });
    // If the token cannot be printed, no client could release the lock: then the guard releases it.
    context.report.hand_over(&token, &value)?;
    guard.leave();
    Ok(Exit::Success)
}
