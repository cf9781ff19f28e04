//! Refresh: keeps the tickets of waiting callers alive, and reports their positions.

use crate::message::{Answer, Place, Request, Turn};

use super::acquire::enter;
use super::{Entry, Moment, Rules};

pub(super) fn refresh(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    places: &[Place],
) -> Answer {
    let claims = &request.claims[..];
    for place in places {
        // An empty token equals no holder: a caller that waits holds nothing.
        enter(rules, now, entries, claims, "", place);
    }
    let turns = places.iter().map(|place| Turn {
        ahead: entries
            .iter()
            .zip(claims)
            .map(|(entry, claim)| entry.line.count_ahead(Some(place), claim.mode))
            .max()
            .unwrap_or_default(),
        free: entries
            .iter()
            .zip(claims)
            .all(|(entry, claim)| !entry.conflicts_with(claim.mode)),
    });
    Answer::Turns(turns.collect())
}
