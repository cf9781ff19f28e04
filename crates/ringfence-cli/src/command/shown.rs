//! What the commands show of a lock, for tests that compare all of them.

use std::time::Duration;

use ringfence::{ListError, Locks, NameInspection};
use serde_json::Value;

use super::ls::RoundList;
use super::status::{self, exit_of};
use super::watch::changes::{Changes, Look};
use crate::exit::Exit;

/// What `status NAME` shows.
pub(crate) struct ShownStatus {
    pub(crate) text: String,
    pub(crate) json: Value,
    /// The exit code without and with `--exit-code`.
    pub(crate) exits: [Exit; 2],
}

pub(crate) fn status(seen: &NameInspection) -> ShownStatus {
    ShownStatus {
        text: status::text::name(seen),
        json: status::json::name(seen),
        exits: [false, true].map(|flag| exit_of(seen.state(), flag)),
    }
}

/// The first line of `watch NAME --json`.
pub(crate) fn watch(seen: &NameInspection) -> Value {
    let changes = Changes::default().handle_look(Duration::ZERO, Look::of(seen));
    changes.first().expect("a line").json(Duration::ZERO)
}

/// What `ls` shows.
pub(crate) struct ShownList {
    pub(crate) text: String,
    pub(crate) json: Vec<Value>,
    pub(crate) has_quorum: bool,
}

pub(crate) async fn ls(locks: &Locks) -> Result<ShownList, ListError> {
    let (list, json) = RoundList::collect(locks).await?;
    Ok(ShownList {
        text: list.text(80),
        json,
        has_quorum: list.has_quorum,
    })
}
