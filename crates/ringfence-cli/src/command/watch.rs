//! `ringfence watch NAME`: a line whenever the lock changes hands. Changes nothing.

pub(super) mod changes;

use std::time::Duration;

use ringfence::Inspection;
use ringfence::clock::Clock;

use super::CommandContext;
use crate::args::watch::WatchArgs;
use crate::exit::Exit;
use crate::report::{CliFailure, reader_has_gone, said_after};

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
        let seen = context.locks.inspect_all(&args.name).await?;
        // A mistyped address is an error; nodes that go away later are news.
        if is_first && seen.lock.nodes.iter().all(|node| node.view.is_err()) {
            return Err(no_node_answers(&seen.lock));
        }
        let look = Look::of(&seen);
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

fn no_node_answers(lock: &Inspection) -> CliFailure {
    let nodes = lock.nodes.iter().filter_map(|node| {
        let error = node.view.as_ref().err()?.to_string();
        Some((node.node.clone(), said_after(&node.node, &error)))
    });
    CliFailure {
        nodes: nodes.collect(),
        ..CliFailure::new(Exit::NoQuorum, "no node answers")
    }
}
