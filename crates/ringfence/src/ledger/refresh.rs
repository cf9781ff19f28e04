//! Refresh: callers in line say that they still wait, and learn how they stand.

use crate::message::{Answer, Place, Turn};

use super::acquire::enter;
use super::{Entry, Moment, Rules};

pub(super) fn refresh(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    places: &[Place],
) -> Answer {
    for place in places {
        // Nobody's token: whoever waits holds nothing.
        enter(rules, now, entries, "", place);
    }
    let turns = places.iter().map(|place| Turn {
        ahead: entries
            .iter()
            .map(|entry| entry.line.ahead_of(Some(place)).len() as u64)
            .max()
            .unwrap_or_default(),
        free: entries.iter().all(|entry| entry.key.is_none()),
    });
    Answer::Turns(turns.collect())
}
