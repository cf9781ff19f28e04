//! `ringfence extend`: more time for a lock that `acquire` took.

use serde_json::json;

use super::Session;
use crate::args::Extend;
use crate::duration;
use crate::exit::Exit;
use crate::report::Failure;

pub(super) async fn extend(session: &Session, args: Extend) -> Result<Exit, Failure> {
    let lock = session.locks.mutex(&args.name);
    let valid_for = lock.extend_receipt(args.token.get()?, args.ttl).await?;
    let value = json!({"name": args.name, "valid_for_ms": super::millis(valid_for)});
    let text = format!("valid for {}", duration::show(valid_for));
    session.report.result(&text, &value)?;
    Ok(Exit::Success)
}
