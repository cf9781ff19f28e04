//! `ringfence acquire`: a lock that outlives this process.

use serde_json::json;

use super::{Session, take};
use crate::args::Acquire;
use crate::exit::Exit;
use crate::report::Failure;

pub(super) async fn acquire(session: &Session, args: Acquire) -> Result<Exit, Failure> {
    let mut lock = take::lock(session, &args.name, &args.terms).renew(false);
    if let Some(label) = &args.label {
        lock = lock.label(label);
    }
    let guard = take::take(session, lock, &args.name, &args.terms).await?;
    let token = guard.receipt().expose();
    let value = json!({
        "name": args.name,
        "token": token,
        "fence": guard.fence(),
        "valid_for_ms": super::millis(guard.remaining()),
        "durability": guard.durability().to_string(),
    });
    // A token that nobody got is a lock that nobody can free: the guard frees it if this fails.
    session.report.result(&token, &value)?;
    guard.leave();
    Ok(Exit::Success)
}
