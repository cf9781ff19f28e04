//! What is known of a name, as JSON for `status` and `ls`. `docs/cli.md` documents the fields, and a test
//! compares both.

use ringfence::Holder;
use ringfence::admin::{
    Inspection, LatchInspection, ListedLock, LockState, NameInspection, NodeInspection, NodeStatus,
    ReportedHolder, SemaphoreInspection, WaiterInspection,
};
use ringfence::votes::Vote;
use serde_json::{Value, json};

use super::status::votes;
use crate::row::{RowKind, agreeing, millis};

/// What `status NAME` knows. The fields of the lock are at the top.
pub(crate) fn name(seen: &NameInspection) -> Value {
    let lock = &seen.lock;
    let mut value = common(
        &seen.name,
        Some(lock),
        seen.semaphore.as_ref(),
        seen.latch.as_ref(),
    );
    value["taken"] = json!(taken(seen.state()));
    value["quorum"] = lock.has_quorum().into();
    let held_for = lock.holders.first().and_then(|one| one.held_for);
    value["held_ms"] = json!(held_for.map(millis));
    value["durability"] = json!(lock.durability.map(|tier| tier.to_string()));
    value["queue"] = lock.queue.iter().map(waiter).collect();
    value["nodes"] = lock.nodes.iter().map(node).collect();
    value
}

/// A line of `ls`.
pub(super) fn listed(listed: &ListedLock) -> Value {
    let lock = listed.lock.as_ref();
    let (semaphore, latch) = (listed.semaphore.as_ref(), listed.latch.as_ref());
    let mut value = common(&listed.name, lock, semaphore, latch);
    value["votes"] = json!(lock.map(agreeing));
    value["age_ms"] = millis(listed.age()).into();
    value
}

/// What both have.
fn common(
    name: &str,
    lock: Option<&Inspection>,
    in_use: Option<&SemaphoreInspection>,
    arrived: Option<&LatchInspection>,
) -> Value {
    let holders = lock.map(|lock| lock.holders.iter().map(holder).collect::<Vec<_>>());
    let nodes = lock.map(|lock| lock.reported.iter().map(reported).collect::<Vec<_>>());
    let kind = lock.and_then(|lock| lock.kind).map(RowKind::from);
    json!({
        "name": name,
        "state": lock.map(|lock| lock.state.to_string()),
        "kind": kind.map(RowKind::word),
        "kept": lock.is_some_and(|lock| lock.kept),
        "label": lock.and_then(|lock| lock.label.as_ref()),
        "id": lock.and_then(|lock| lock.holder_id.as_ref()),
        "fence": lock.and_then(|lock| lock.fence),
        "remaining_ms": lock.and_then(|lock| lock.remaining).map(millis),
        "holders": holders.unwrap_or_default(),
        "holder_count": lock.map_or(0, |lock| lock.holder_count),
        "reported": nodes.unwrap_or_default(),
        "waiting": lock.map_or(0, |lock| lock.waiting),
        "semaphore": in_use.map(semaphore),
        "latch": arrived.map(latch),
    })
}

fn holder(holder: &Holder) -> Value {
    json!({
        "label": holder.label,
        "id": holder.id,
        "fence": holder.fence,
        "held_ms": holder.held_for.map(millis),
        "remaining_ms": holder.remaining.map(millis),
    })
}

/// A holder that nodes have, whether or not a majority agrees.
fn reported(one: &ReportedHolder) -> Value {
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

fn waiter(waiter: &WaiterInspection) -> Value {
    json!({"id": waiter.id, "waited_ms": millis(waiter.waited), "shared": waiter.shared})
}

fn semaphore(seen: &SemaphoreInspection) -> Value {
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

fn latch(seen: &LatchInspection) -> Value {
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
            value["why"] = json!(node.discount.as_ref().map(Vote::to_string));
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
            "replicated": facts.replicated,
            "why": node.discount.as_ref().map(Vote::to_string),
        }),
        Err(error) => json!({"node": node.node, "votes": false, "error": error.to_string()}),
    }
}
