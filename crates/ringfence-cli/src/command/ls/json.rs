//! The JSON of `ls`: a line for each lock, and one at the end. `docs/cli.md` documents the fields.

use ringfence::{ListedBreak, ListedLock};
use serde_json::{Value, json};

use super::super::millis;
use super::super::status::json::{holder, kind, latch, reported, semaphore};
use super::RoundList;
use super::table::votes;

pub(super) fn lock(listed: &ListedLock) -> Value {
    let lock = listed.lock.as_ref();
    let nodes = lock.map(|lock| lock.reported.iter().map(reported).collect::<Vec<_>>());
    let holders = lock.map(|lock| lock.holders.iter().map(holder).collect::<Vec<_>>());
    json!({
        "name": listed.name,
        "state": lock.map(|lock| lock.state.to_string()),
        "kind": lock.and_then(|lock| lock.kind).map(kind),
        "kept": lock.is_some_and(|lock| lock.kept),
        "label": lock.and_then(|lock| lock.label.as_ref()),
        "id": lock.and_then(|lock| lock.holder_id.as_ref()),
        "fence": lock.and_then(|lock| lock.fence),
        "remaining_ms": lock.and_then(|lock| lock.remaining).map(millis),
        "holders": holders.unwrap_or_default(),
        "holder_count": lock.map_or(0, |lock| lock.holder_count),
        "reported": nodes.unwrap_or_default(),
        "waiting": lock.map_or(0, |lock| lock.waiting),
        "votes": lock.map(votes),
        "semaphore": listed.semaphore.as_ref().map(semaphore),
        "latch": listed.latch.as_ref().map(latch),
        "age_ms": millis(listed.age()),
    })
}

/// The last line of a round.
pub(super) fn end(list: &RoundList) -> Value {
    let failed = list.nodes.iter().filter_map(|node| {
        let error = node.error.as_ref()?;
        Some(json!({"node": node.node, "error": error.to_string()}))
    });
    json!({
        "complete": true,
        "quorum": list.has_quorum,
        "locks": list.locks.len(),
        "unreadable": list.unreadable,
        "took_ms": millis(list.took),
        "failed": failed.collect::<Vec<_>>(),
        "not_listed": "plain locks and locks of other libraries",
    })
}

pub(super) fn broken(one: &ListedBreak) -> Value {
    json!({
        "name": one.name,
        "slot": one.slot,
        "ago_ms": millis(one.ago),
        "by": one.note.by,
        "reason": one.note.reason,
        "label": one.note.label,
        "id": one.note.id,
        "fence": one.note.ballot.get(),
        "new_fence": one.note.fence.get(),
        "nodes": one.nodes,
    })
}
