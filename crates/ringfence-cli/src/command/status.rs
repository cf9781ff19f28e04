//! `ringfence status`: shows who holds a lock, or the state of the nodes. Changes nothing.

pub(super) mod json;
pub(super) mod text;

use ringfence::NodeStatus;

use super::CommandContext;
use crate::args::StatusArgs;
use crate::exit::{self, Exit};
use crate::report::CliFailure;

pub(super) async fn status(context: &CommandContext, args: StatusArgs) -> Result<Exit, CliFailure> {
    let Some(name) = args.name else {
        return nodes(context).await;
    };
    let seen = context.locks.inspect_all(&name).await?;
    context
        .report
        .result(&text::name(&seen), &json::name(&seen))?;
    Ok(match args.exit_code {
        false => Exit::Success,
        true if !seen.lock.has_quorum() => Exit::NoQuorum,
        true if seen.is_taken() => Exit::Conflict(exit::CONFLICT),
        true => Exit::Success,
    })
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
