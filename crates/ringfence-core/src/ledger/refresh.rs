//! Refresh: keeps the tickets of waiting callers alive, and reports their positions.

use crate::message::{Answer, Request, Ticket, Turn};

use super::acquire::enter;
use super::{Entry, Moment, Rules};

pub(super) fn refresh(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    tickets: &[Ticket],
) -> Answer {
    let claims = &request.claims[..];
    for ticket in tickets {
        // An empty token equals no holder: a caller that waits holds nothing.
        enter(rules, now, entries, claims, "", ticket);
    }
    let turns = tickets.iter().map(|ticket| Turn {
        ahead: entries
            .iter()
            .zip(claims)
            .map(|(entry, claim)| entry.queue.count_ahead(Some(ticket), claim.mode))
            .max()
            .unwrap_or_default(),
        free: entries
            .iter()
            .zip(claims)
            .all(|(entry, claim)| !entry.conflicts_with(claim.mode)),
    });
    Answer::Turns(turns.collect())
}
