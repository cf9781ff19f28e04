//! The JSON of `status`. `docs/cli.md` documents the fields, and a test compares both.

use ringfence::{
    HolderInspection, HolderKind, LatchInspection, LockState, NameInspection, NodeInspection,
    NodeStatus, ReportedHolder, SemaphoreInspection, Vote, WaiterInspection,
};
use serde_json::{Value, json};

use super::super::millis;
use super::votes;

/// Everything with one name. The fields of the lock are at the top.
pub(in super::super) fn name(seen: &NameInspection) -> Value {
    let lock = &seen.lock;
    json!({
        "name": seen.name,
        "state": lock.state.to_string(),
        "taken": taken(seen.state()),
        "quorum": lock.has_quorum(),
        "kind": lock.kind.map(kind),
        "kept": lock.kept,
        "label": lock.label,
        "id": lock.holder_id,
        "fence": lock.fence,
        "held_ms": lock.holders.first().and_then(|one| one.held_for).map(millis),
        "remaining_ms": lock.remaining.map(millis),
        "durability": lock.durability.map(|tier| tier.to_string()),
        "holders": lock.holders.iter().map(holder).collect::<Vec<_>>(),
        "holder_count": lock.holder_count,
        "reported": lock.reported.iter().map(reported).collect::<Vec<_>>(),
        "waiting": lock.waiting,
        "queue": lock.queue.iter().map(waiter).collect::<Vec<_>>(),
        "semaphore": seen.semaphore.as_ref().map(semaphore),
        "latch": seen.latch.as_ref().map(latch),
        "nodes": lock.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

pub(in super::super) fn kind(kind: HolderKind) -> &'static str {
    match kind {
        HolderKind::Exclusive => "exclusive",
        HolderKind::Shared => "shared",
        _ => "plain",
    }
}

pub(in super::super) fn holder(holder: &HolderInspection) -> Value {
    json!({
        "label": holder.label,
        "id": holder.id,
        "fence": holder.fence,
        "held_ms": holder.held_for.map(millis),
        "remaining_ms": holder.remaining.map(millis),
    })
}

/// A holder that nodes have, whether or not a majority agrees.
pub(in super::super) fn reported(one: &ReportedHolder) -> Value {
    let mut value = holder(&one.holder);
    value["nodes"] = one.nodes.into();
    value
}

/// Whether something is taken; null if that is unknown.
fn taken(state: LockState) -> Option<bool> {
    match state {
        LockState::Held => Some(true),
        LockState::Free => Some(false),
        LockState::Unknown => None,
    }
}

pub(in super::super) fn waiter(waiter: &WaiterInspection) -> Value {
    json!({"id": waiter.id, "waited_ms": millis(waiter.waited), "shared": waiter.shared})
}

pub(in super::super) fn semaphore(seen: &SemaphoreInspection) -> Value {
    let slots = (0_u32..).zip(&seen.slots).map(|(number, slot)| {
        // If the state is unknown: the holder that most nodes have.
        let reported = slot.reported.first().map(|one| &one.holder);
        let reported = reported.filter(|_| slot.state == LockState::Unknown);
        let first = slot.holders.first().or(reported);
        let mut value = first.map_or_else(|| json!({}), holder);
        value["slot"] = number.into();
        value["state"] = slot.state.to_string().into();
        value
    });
    json!({
        "permits": seen.permits,
        "taken": seen.taken(),
        "unknown": seen.unknown(),
        "waiting": seen.waiting,
        "queue": seen.queue.iter().map(waiter).collect::<Vec<_>>(),
        "slots": slots.collect::<Vec<_>>(),
    })
}

pub(in super::super) fn latch(seen: &LatchInspection) -> Value {
    json!({
        "quorum": seen.quorum,
        "arrived": seen.arrived,
        "parties": seen.parties,
        "age_ms": seen.age.map(millis),
        "waiting": seen.waiting,
    })
}

fn node(node: &NodeInspection) -> Value {
    let mut value = json!({
        "node": node.node,
        "votes": node.votes(),
    });
    match &node.view {
        Ok(view) => {
            let holder = view.holder.as_ref();
            value["held"] = holder.is_some().into();
            value["label"] = json!(holder.and_then(|holder| holder.label.as_ref()));
            value["id"] = json!(holder.and_then(|holder| holder.id.as_ref()));
            value["remaining_ms"] = json!(holder.and_then(|holder| holder.for_ms));
            value["fence"] = json!(view.ballot.map(|ballot| ballot.get()));
            value["tier"] = json!(node.tier.map(|tier| tier.to_string()));
            value["waiting"] = view.waiting.into();
            value["why"] = json!(node.discount.map(|why| Vote::from(why).to_string()));
        }
        Err(error) => value["error"] = error.to_string().into(),
    }
    value
}

/// The state of the nodes.
pub(super) fn nodes(nodes: &[NodeStatus], has_quorum: bool) -> Value {
    json!({
        "quorum": has_quorum,
        "nodes": nodes.iter().map(node_status).collect::<Vec<_>>(),
    })
}

fn node_status(node: &NodeStatus) -> Value {
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
            "why": node.discount.map(|why| Vote::from(why).to_string()),
        }),
        Err(error) => json!({"node": node.node, "votes": false, "error": error.to_string()}),
    }
}
