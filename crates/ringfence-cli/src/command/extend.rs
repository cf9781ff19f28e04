//! `ringfence extend`: prolongs a lock that `acquire` took.

use serde_json::json;

use super::CommandContext;
use crate::args::{DEFAULT_TTL, ExtendArgs, token};
use crate::duration;
use crate::exit::Exit;
use crate::report::CliFailure;

pub(super) async fn extend(context: &CommandContext, args: ExtendArgs) -> Result<Exit, CliFailure> {
    let receipt = token::receipt(&args.name, args.token.as_ref())?;
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
    let value = json!({"name": args.name, "valid_for_ms": super::millis(valid_for)});
    let text = format!("valid for {}", duration::show(valid_for));
    context.report.result(&text, &value)?;
    Ok(Exit::Success)
}
