//! Inspect and list, which change nothing. Inspect reports what this node has of each name: holders,
//! readers, waiters, permits, arrivals. List reports which names it has.

use std::cmp::Reverse;

use crate::message::{
    Answer, Arrivals, BREAKS_SHOWN, Claim, List, PARTIES_SHOWN, Portion, READERS_SHOWN, ReaderView,
    Request, TICKETS_SHOWN, TicketView, View,
};
use crate::name::Name;
use crate::token::public_half;

use super::{Entry, Moment, Rules, Seat, slots};

pub(super) fn inspect(rules: &Rules, now: Moment, entries: &[Entry], request: &Request) -> Answer {
    let views = entries.iter().zip(&*request.claims).enumerate();
    let views = views.map(|(at, (entry, claim))| view(rules, now, at, entry, claim));
    Answer::Views(views.collect())
}

fn view(rules: &Rules, now: Moment, at: usize, entry: &Entry, claim: &Claim) -> View {
    let readers = if entry.is_shared() {
        readers(entry, now)
    } else {
        Vec::new()
    };
    View {
        holder: entry.holder(at, now),
        ballot: entry.seat().map(|seat| seat.ballot),
        floor: entry.effective_fence(rules, now, claim.mode),
        waiting: entry.queue.entries.len() as u64,
        shared_by: readers.len() as u64,
        readers: readers.into_iter().take(READERS_SHOWN).collect(),
        tickets: tickets(entry),
        permits: match claim.name.part_word() {
            Some("admission") => slots::recorded_permits(entry),
            _ => None,
        },
        arrivals: match claim.name.part_word() {
            Some("latch") => arrivals(entry),
            _ => None,
        },
    }
}

/// The readers, latest end of the lease first.
fn readers(entry: &Entry, now: Moment) -> Vec<ReaderView> {
    let mut seats: Vec<&Seat> = entry.readers.iter().collect();
    seats.sort_by_key(|seat| Reverse((seat.until_ms, &seat.token)));
    let views = seats.into_iter().map(|seat| ReaderView {
        // The rest of the token is a secret.
        id: public_half(&seat.token).unwrap_or_default().to_owned(),
        label: seat.label.clone(),
        for_ms: seat.until_ms.saturating_sub(now.lease_ms),
        ballot: seat.ballot,
    });
    views.collect()
}

fn tickets(entry: &Entry) -> Vec<TicketView> {
    let tickets = entry.queue.entries.iter().take(TICKETS_SHOWN);
    let views = tickets.map(|ticket| TicketView {
        since_us: ticket.since_us,
        id: ticket.id.clone(),
        shared: ticket.shared,
        label: ticket.label.clone(),
    });
    views.collect()
}

fn arrivals(entry: &Entry) -> Option<Arrivals> {
    let latch = entry.latch.as_ref()?;
    let arrived = latch.parties.len();
    Some(Arrivals {
        since_us: Some(latch.since_us),
        arrived: arrived as u64,
        parties: match arrived <= PARTIES_SHOWN {
            true => latch.parties.iter().cloned().collect(),
            false => Vec::new(),
        },
    })
}

/// List: which of the names in a portion are held or queued for, or have broken holds. The store
/// chooses the names of a portion, puts them into the claims of the request, and adds where the next
/// portion begins. Everything expired has been dropped from `entries`.
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
