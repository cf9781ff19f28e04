//! `ringfence status`: shows who holds a lock, or the state of the nodes. Changes nothing.

use ringfence::node::Facts;
use ringfence::{Inspection, NodeInspection, NodeStatus, SemaphoreInspection};
use ringfence_core::protocol::{Discount, Vote};
use serde_json::{Value, json};

use super::{CommandContext, failover, millis};
use crate::args::StatusArgs;
use crate::duration;
use crate::exit::Exit;
use crate::report::{CliFailure, one_line};

pub(super) async fn status(context: &CommandContext, args: StatusArgs) -> Result<Exit, CliFailure> {
    match (args.name, args.permits) {
        (Some(name), Some(permits)) => {
            let inspection = context.locks.semaphore(&name, permits).inspect().await?;
            let text = semaphore_text(&inspection);
            let value = semaphore_value(&inspection);
            context.report.result(&text, &value)?;
            Ok(Exit::Success)
        }
        (Some(name), None) => {
            let inspection = context.locks.inspect(&name).await?;
            let text = lock_text(&inspection);
            context.report.result(&text, &lock_value(&inspection))?;
            Ok(Exit::Success)
        }
        (None, _) => nodes(context).await,
    }
}

/// Exits 69 if fewer than a majority vote, so that a monitor does not have to parse the output.
async fn nodes(context: &CommandContext) -> Result<Exit, CliFailure> {
    let nodes = context.locks.nodes().await;
    let voting = nodes.iter().filter(|node| votes(node)).count();
    let has_quorum = voting > nodes.len() / 2;
    let lines: Vec<_> = nodes
        .iter()
        .map(|node| format!("{}: {}", node.node, one_line(&node_text(node))))
        .collect();
    let value = json!({
        "quorum": has_quorum,
        "nodes": nodes.iter().map(node_value).collect::<Vec<_>>(),
    });
    context.report.result(&lines.join("\n"), &value)?;
    Ok(if has_quorum {
        Exit::Success
    } else {
        Exit::NoQuorum
    })
}

/// How many permits are taken, in one line; then the holder of each taken slot.
fn semaphore_text(inspection: &SemaphoreInspection) -> String {
    let slots = || (0..).zip(&inspection.slots).filter(|(_, slot)| slot.held);
    let permits = inspection.slots.len();
    let mut text = format!("{} of {permits} permits taken", slots().count());
    text += &waiting_text(inspection.waiting);
    for (number, slot) in slots() {
        text += &format!("\n  slot {number}: {}", holder_text(slot));
    }
    text
}

fn semaphore_value(inspection: &SemaphoreInspection) -> Value {
    let slots = (0_u32..).zip(&inspection.slots).map(|(number, slot)| {
        let mut value = held_value(slot);
        value["slot"] = number.into();
        value
    });
    json!({
        "name": inspection.name,
        "permits": inspection.slots.len(),
        "taken": inspection.slots.iter().filter(|slot| slot.held).count(),
        "waiting": inspection.waiting,
        "slots": slots.collect::<Vec<_>>(),
    })
}

fn holder_text(inspection: &Inspection) -> String {
    let mut text = super::take::holder(inspection).unwrap_or_else(|| "free".to_owned());
    if let Some(fence) = inspection.fence.filter(|_| inspection.held) {
        text += &format!(", fence {fence}");
    }
    text
}

fn waiting_text(waiting: u64) -> String {
    match waiting {
        0 => String::new(),
        waiting => format!(", {waiting} waiting in the queue"),
    }
}

fn lock_text(inspection: &Inspection) -> String {
    let mut text = holder_text(inspection) + &waiting_text(inspection.waiting);
    for NodeInspection { node, view, .. } in &inspection.nodes {
        let said = match view {
            Ok(view) => match &view.holder {
                Some(holder) => holder.to_string(),
                None => "free".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        text += &format!("\n  {node}: {}", one_line(&said));
    }
    text
}

fn lock_value(inspection: &Inspection) -> Value {
    let nodes = inspection.nodes.iter().map(
        |NodeInspection {
             node, view, tier, ..
         }| match view {
            Ok(view) => {
                let holder = view.holder.as_ref();
                json!({
                    "node": node,
                    "held": holder.is_some(),
                    "label": holder.and_then(|holder| holder.label.as_ref()),
                    "id": holder.and_then(|holder| holder.id.as_ref()),
                    "remaining_ms": holder.and_then(|holder| holder.for_ms),
                    "fence": view.ballot.map(|ballot| ballot.get()),
                    "tier": tier.map(|tier| tier.to_string()),
                    "waiting": view.waiting,
                })
            }
            Err(error) => json!({"node": node, "error": error.to_string()}),
        },
    );
    let mut value = held_value(inspection);
    value["name"] = json!(inspection.name);
    value["kept"] = json!(inspection.kept);
    value["waiting"] = json!(inspection.waiting);
    value["nodes"] = nodes.collect();
    value
}

/// The holder of a lock or a slot.
fn held_value(inspection: &Inspection) -> Value {
    json!({
        "held": inspection.held,
        "label": inspection.label,
        "id": inspection.holder_id,
        "remaining_ms": inspection.remaining.map(millis),
        "fence": inspection.fence,
        "durability": inspection.durability.map(|tier| tier.to_string()),
    })
}

fn votes(node: &NodeStatus) -> bool {
    node.facts.is_ok() && node.discount.is_none()
}

fn node_text(node: &NodeStatus) -> String {
    let replicated = |facts: &Facts| facts.standing.is_some_and(|standing| standing.replicated);
    let facts = node.facts.as_ref().ok();
    let cost = facts.and_then(|facts| failover::cost(&facts.group?, replicated(facts)));
    let cost = cost.map(|cost| format!("; {cost}"));
    vote_text(node) + cost.as_deref().unwrap_or_default()
}

fn vote_text(node: &NodeStatus) -> String {
    match (&node.facts, node.discount) {
        (Err(error), _) => error.to_string(),
        (Ok(facts), Some(Discount::Quarantined { left })) => format!(
            "{}, {}; new or restarted, votes in {}",
            facts.version,
            facts.tier,
            duration::show(left)
        ),
        (Ok(facts), Some(why)) => format!("{}, {}; {}", facts.version, facts.tier, Vote::from(why)),
        (Ok(facts), None) => format!("{}, {}; votes", facts.version, facts.tier),
    }
}

fn node_value(node: &NodeStatus) -> Value {
    match &node.facts {
        Ok(facts) => json!({
            "node": node.node,
            "votes": votes(node),
            "quarantine_ms": node.quarantine.map(millis),
            "clock_jumps": node.clock_jumps,
            "version": facts.version,
            "tier": facts.tier.to_string(),
            "failover": facts.group.map(|group| group.failover.to_string()),
            "replicated": facts.standing.map(|standing| standing.replicated),
        }),
        Err(error) => json!({"node": node.node, "votes": false, "error": error.to_string()}),
    }
}
