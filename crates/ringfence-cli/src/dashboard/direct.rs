//! Reads one lock directly, for a viewer that has it open. All viewers together read one lock at a
//! time, and the same one at most twice a second.

use std::collections::HashMap;

use ringfence::Locks;
use ringfence::admin::{InspectError, NameInspection, NodeInspection};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::collector::Moments;
use crate::report::said_after;
use crate::row::SeenName;

/// For how long an answer is given to other viewers too.
const SHARED_MS: u64 = 500;
/// The most answers that are kept.
const KEPT_MAX: usize = 64;

/// See the module.
pub(super) struct DirectReads {
    locks: Locks,
    moments: Moments,
    answers: Mutex<HashMap<String, (u64, Value)>>,
}

impl DirectReads {
    pub(super) fn new(locks: Locks, moments: Moments) -> Self {
        Self {
            locks,
            moments,
            answers: Mutex::default(),
        }
    }

    /// What the nodes have of `name` now, as JSON.
    pub(super) async fn read(&self, name: &str) -> Result<Value, InspectError> {
        let mut answers = self.answers.lock().await;
        let now_ms = self.moments.now_ms();
        answers.retain(|_, (at_ms, _)| now_ms.saturating_sub(*at_ms) < SHARED_MS);
        if let Some((_, answer)) = answers.get(name) {
            return Ok(answer.clone());
        }
        let seen = self.locks.inspect_all(name).await?;
        let at_ms = self.moments.now_ms();
        let answer = value(&seen, at_ms);
        if answers.len() < KEPT_MAX {
            answers.insert(name.to_owned(), (at_ms, answer.clone()));
        }
        Ok(answer)
    }
}

fn value(seen: &NameInspection, at_ms: u64) -> Value {
    let named = SeenName::inspected(seen, at_ms);
    json!({
        "now_ms": at_ms,
        "name": seen.name,
        "state": seen.lock.state.to_string(),
        "quorum": seen.lock.has_quorum(),
        "durability": seen.lock.durability.map(|tier| tier.to_string()),
        "rows": named.rows(),
        "nodes": seen.lock.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

/// What one node says of the lock.
fn node(node: &NodeInspection) -> Value {
    let holder = node
        .view
        .as_ref()
        .ok()
        .and_then(|view| view.holder.as_ref());
    json!({
        "node": node.node,
        "votes": node.votes(),
        "held": holder.is_some(),
        "label": holder.and_then(|holder| holder.label.as_ref()),
        "id": holder.and_then(|holder| holder.id.as_ref()),
        "remaining_ms": holder.and_then(|holder| holder.for_ms),
        "fence": node.view.as_ref().ok().and_then(|view| view.ballot).map(|ballot| ballot.get()),
        "why": match (&node.view, &node.discount) {
            (Err(error), _) => Some(said_after(&node.node, &error.to_string())),
            (Ok(_), Some(why)) => Some(why.to_string()),
            (Ok(_), None) => None,
        },
    })
}
