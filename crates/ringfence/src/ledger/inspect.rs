//! Inspect: who holds, as far as this node knows.

use crate::message::{Answer, View};

use super::{Entry, Moment, Rules};

pub(super) fn inspect(rules: &Rules, now: Moment, entries: &[Entry]) -> Answer {
    let views = entries.iter().enumerate().map(|(claim, entry)| View {
        holder: entry.holder(claim, now),
        ballot: entry.seat().map(|seat| seat.ballot),
        floor: entry.effective_fence(rules, now),
        waiting: entry.line.tickets.len() as u64,
    });
    Answer::Views(views.collect())
}
