//! Inspect: reports the holder of each name on this node. Changes nothing.

use crate::message::{Answer, Request, View};

use super::{Entry, Moment, Rules};

pub(super) fn inspect(rules: &Rules, now: Moment, entries: &[Entry], request: &Request) -> Answer {
    let views = entries.iter().zip(&*request.claims).enumerate();
    let views = views.map(|(at, (entry, claim))| View {
        holder: entry.holder(at, now),
        ballot: entry.seat().map(|seat| seat.ballot),
        floor: entry.effective_fence(rules, now, claim.mode),
        waiting: entry.queue.entries.len() as u64,
    });
    Answer::Views(views.collect())
}
