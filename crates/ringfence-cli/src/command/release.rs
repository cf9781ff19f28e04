//! `ringfence release`: frees a lock that `acquire` took.

use serde_json::json;

use super::Session;
use crate::args::Release;
use crate::exit::Exit;
use crate::report::{Failure, one_line};

pub(super) async fn release(session: &Session, args: Release) -> Result<Exit, Failure> {
    let lock = session.locks.mutex(&args.name);
    lock.release_receipt(args.token.get()?).await?;
    let text = format!("released {}", one_line(&args.name));
    session
        .report
        .result(&text, &json!({"name": args.name, "released": true}))?;
    Ok(Exit::Success)
}
