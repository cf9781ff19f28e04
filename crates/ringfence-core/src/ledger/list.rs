//! List: which of the names in a portion are held or queued for, or have broken holds. Changes
//! nothing.
//!
//! The store chooses the names of a portion, and puts them into the claims of the request.

use crate::message::{Answer, BREAKS_SHOWN, Claim, List, Portion, Request};
use crate::name::Name;

use super::Entry;

/// Everything expired has been dropped from `entries`. The store adds where the next portion
/// begins.
pub(super) fn list(entries: &[Entry], request: &Request, op: &List) -> Answer {
    let claims = || entries.iter().zip(&*request.claims);
    let mut portion = Portion::default();
    if op.breaks {
        for (entry, claim) in claims() {
            let notes = entry.broken.iter().flat_map(|breaks| &breaks.notes);
            let older = notes.clone().count().saturating_sub(BREAKS_SHOWN);
            let notes = notes.skip(older).cloned();
            portion
                .breaks
                .extend(notes.map(|note| (claim.name.clone(), note)));
        }
    } else {
        let alive = claims().filter(|(entry, claim)| is_alive(entry, &claim.name));
        let names = alive.map(|(_, Claim { name, .. })| name.clone());
        portion.names = names.collect();
    }
    Answer::Listed(portion)
}

/// Whether the name is held or queued for. A holder without a record is not found: no key of ours
/// leads to it. The key of an admission record is no holder.
fn is_alive(entry: &Entry, name: &Name) -> bool {
    let holds = match name.part_word() {
        None => entry.key.is_some() && entry.record.is_some(),
        Some("slot") => entry.key.is_some(),
        Some("latch") => entry.latch.is_some(),
        Some(_) => false,
    };
    holds || !entry.queue.entries.is_empty()
}
