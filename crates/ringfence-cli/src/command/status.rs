//! `ringfence status`: shows who holds a lock, or the state of the nodes. Changes nothing.

pub(super) mod json;
pub(super) mod text;

use ringfence::{LockState, NodeStatus};

use super::CommandContext;
use crate::args::StatusArgs;
use crate::exit::{self, Exit};
use crate::report::CliFailure;

/// Exits 69 if it is unknown whether the name is held: a script must not take that for *free*.
pub(super) async fn status(context: &CommandContext, args: StatusArgs) -> Result<Exit, CliFailure> {
    let Some(name) = args.name else {
        return nodes(context).await;
    };
    let seen = context.locks.inspect_all(&name).await?;
    context
        .report
        .result(&text::name(&seen), &json::name(&seen))?;
    Ok(exit_of(seen.state(), args.exit_code))
}

pub(super) fn exit_of(state: LockState, exit_code: bool) -> Exit {
    match state {
        LockState::Unknown => Exit::NoQuorum,
        LockState::Held if exit_code => Exit::Conflict(exit::CONFLICT),
        LockState::Held | LockState::Free => Exit::Success,
    }
}

/// Exits 69 if fewer than a majority vote, so that a monitor does not have to parse the output.
async fn nodes(context: &CommandContext) -> Result<Exit, CliFailure> {
    let nodes = context.locks.nodes().await;
    let voting = nodes.iter().filter(|node| votes(node)).count();
    let has_quorum = voting > nodes.len() / 2;
    let (text, value) = (text::nodes(&nodes), json::nodes(&nodes, has_quorum));
    context.report.result(&text, &value)?;
    Ok(if has_quorum {
        Exit::Success
    } else {
        Exit::NoQuorum
    })
}

fn votes(node: &NodeStatus) -> bool {
    node.facts.is_ok() && node.discount.is_none()
}
