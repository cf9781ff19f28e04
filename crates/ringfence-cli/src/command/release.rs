//! `ringfence release`: releases a lock that `acquire` took.

use serde_json::json;

use super::CommandContext;
use crate::args::{ReleaseArgs, token};
use crate::exit::Exit;
use crate::report::{CliFailure, one_line};

pub(super) async fn release(
    context: &CommandContext,
    args: ReleaseArgs,
) -> Result<Exit, CliFailure> {
    let receipt = token::receipt(&args.name, args.token.as_ref())?;
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
