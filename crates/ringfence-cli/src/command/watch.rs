//! `ringfence watch NAME`: a line whenever the lock changes hands. Changes nothing.

mod changes;

use std::time::Duration;

use ringfence::clock::Clock;

use super::CommandContext;
use crate::args::watch::WatchArgs;
use crate::exit::Exit;
use crate::report::{CliFailure, reader_has_gone};

use changes::{Changes, Look};

/// How often the lock is inspected.
const INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn watch(context: &CommandContext, args: WatchArgs) -> Result<Exit, CliFailure> {
    let began = Clock::System.now();
    let mut changes = Changes::default();
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        tick.tick().await;
        if reader_has_gone() {
            return Ok(Exit::Success);
        }
        let look = match context.locks.inspect_all(&args.name).await {
            Ok(seen) => Look::of(&seen),
            // A mistyped address is an error; a majority that is lost later is news.
            Err(error) if is_first => return Err(error.into()),
            Err(error) => Look::NoQuorum(error.to_string()),
        };
        let at = Clock::System.now().since(began);
        is_first = false;
        for change in changes.handle_look(at, look) {
            let written = context.report.stream(&change.text(at), &change.json(at))?;
            if written.is_break() {
                return Ok(Exit::Success);
            }
        }
    }
}
