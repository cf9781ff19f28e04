//! Whether holders were carried through the failovers of a run.
//!
//! A holder whose lock is renewed must keep it if enough of its validity is left when it can reach
//! the new master. What is left is taken from the history, not from the settings: a busy machine
//! needs more time for a failover. A machine on which nothing happens at all for a while proves
//! nothing about what is lost meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::history::{Event, What};
use crate::invariants::Violation;

use super::super::journal::{Note, Record};
use super::servers::{OVERLAP, is_far};

/// What a holder needs beside `X + D`: the time to hear of the new master, to connect and to renew.
const MARGIN: Duration = Duration::from_millis(1_500);

/// What happened to the holders that met a failover.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CarriedFigures {
    /// Renewing holders that were inside their validity when they could reach a new master.
    pub met: usize,
    /// Those of them that had enough validity left.
    pub entitled: usize,
    /// How many were not lost, of all.
    pub kept: usize,
}

/// One failover, as a holder sees it.
struct Change {
    from_us: u64,
    promoted_us: u64,
    healed_us: u64,
    /// When the next one begins.
    next_us: u64,
    /// Whether the Sentinels began another one between this and the next, at an unknown time.
    blurred: bool,
}

/// One hold whose lock is renewed.
#[derive(Default)]
struct Held {
    client: u64,
    granted_us: u64,
    /// The deadlines, with the time at which each was set.
    deadlines: Vec<(u64, u64)>,
    ended_us: Option<u64>,
    lost_us: Option<u64>,
}

/// Counts, and finds holders that were entitled to their lock and lost it.
pub(super) fn check(record: &Record) -> (CarriedFigures, Vec<Violation>) {
    let (mut figures, mut violations) = (CarriedFigures::default(), Vec::new());
    let (changes, still) = (changes(record), standstills(record));
    let mut holds: Vec<(u64, Held)> = holds(record).into_iter().collect();
    holds.sort_by_key(|(op, _)| *op);
    for (op, held) in &holds {
        for change in &changes {
            let reached_us = match is_far(held.client) {
                true => change.healed_us,
                false => change.promoted_us,
            };
            let Some(left_us) = held.validity_left(change.from_us, reached_us) else {
                continue;
            };
            let lost = held.lost_us.is_some_and(|lost_us| lost_us < change.next_us);
            let enough = left_us >= (OVERLAP + MARGIN).as_micros() as u64;
            let until_us = held.lost_us.unwrap_or(reached_us);
            let stood_still = still.iter().any(|at| (reached_us..until_us).contains(at));
            let entitled = enough && !change.blurred && !stood_still;
            figures.met += 1;
            figures.entitled += usize::from(entitled);
            figures.kept += usize::from(!lost);
            if lost && entitled {
                violations.push(Violation {
                    invariant: "carried",
                    at_us: held.lost_us.unwrap_or(reached_us),
                    how: format!(
                        "op {op} lost its lock, although {} ms of its validity were left when it \
                         could reach the new master at {reached_us} µs",
                        left_us / 1_000
                    ),
                });
            }
        }
    }
    (figures, violations)
}

impl Held {
    /// How much validity is left at `reached_us` of a hold that was granted before `from_us`;
    /// nothing if it has ended by then.
    fn validity_left(&self, from_us: u64, reached_us: u64) -> Option<u64> {
        let ended = self.ended_us.is_some_and(|ended_us| ended_us <= reached_us);
        if self.granted_us >= from_us || ended {
            return None;
        }
        let known = self.deadlines.iter().rev();
        let (_, until_us) = { known }.find(|(at_us, _)| *at_us <= reached_us)?;
        until_us
            .checked_sub(reached_us)
            .filter(|left_us| *left_us > 0)
    }
}

/// When no process wrote anything for as long as [`MARGIN`]: the ends of these times.
fn standstills(record: &Record) -> Vec<u64> {
    let margin_us = MARGIN.as_micros() as u64;
    let mut last_us = 0;
    let mut ends = Vec::new();
    for Event { at_us, .. } in &record.history.events {
        if at_us.saturating_sub(last_us) >= margin_us {
            ends.push(*at_us);
        }
        last_us = *at_us;
    }
    ends
}

fn changes(record: &Record) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for (_, note) in &record.notes {
        match (note, changes.last_mut()) {
            (Note::Unplanned, Some(last)) => last.blurred = true,
            (
                Note::Failover {
                    from_us,
                    promoted_us,
                    healed_us,
                    ..
                },
                last,
            ) => {
                if let Some(last) = last {
                    last.next_us = *from_us;
                }
                changes.push(Change {
                    from_us: *from_us,
                    promoted_us: *promoted_us,
                    healed_us: *healed_us,
                    next_us: u64::MAX,
                    blurred: false,
                });
            }
            _ => {}
        }
    }
    changes
}

fn holds(record: &Record) -> HashMap<u64, Held> {
    let notes = record.notes.iter();
    let renews: HashSet<u64> = notes
        .filter_map(|(_, note)| match note {
            Note::Renews { op } => Some(*op),
            _ => None,
        })
        .collect();
    let mut clients = HashMap::new();
    let mut holds: HashMap<u64, Held> = HashMap::new();
    for Event { at_us, what } in &record.history.events {
        match what {
            What::Invoked { op, client, .. } if renews.contains(op) => {
                clients.insert(*op, *client);
            }
            What::Granted { op, until_us, .. } if renews.contains(op) => {
                let held = holds.entry(*op).or_default();
                held.client = clients.get(op).copied().unwrap_or_default();
                held.granted_us = *at_us;
                held.deadlines.push((*at_us, *until_us));
            }
            What::Deadline { op, until_us } => {
                if let Some(held) = holds.get_mut(op) {
                    held.deadlines.push((*at_us, *until_us));
                }
            }
            What::Ended { op } => {
                if let Some(held) = holds.get_mut(op) {
                    held.ended_us = Some(*at_us);
                }
            }
            _ => {}
        }
    }
    for (at_us, note) in &record.notes {
        if let Note::Lost { op, .. } = note
            && let Some(held) = holds.get_mut(op)
        {
            held.lost_us = Some(*at_us);
            // It ended because it was lost.
            held.ended_us = held.ended_us.filter(|ended_us| ended_us < at_us);
        }
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, grant};

    const S: u64 = 1_000_000;

    /// A failover from 10 s to 12 s, healed at 15 s, and a renewed hold of `client` from 5 s on
    /// that is valid until `until_us`.
    fn record(client: u64, until_us: u64, lost_us: Option<u64>) -> Record {
        let mut record = Record::default();
        record.history.invoke(0, 1, exclusive("x"));
        if let What::Invoked { client: one, .. } = &mut record.history.events[0].what {
            *one = client;
        }
        record.history.push(5 * S, grant(1, 7, until_us));
        record.notes.push((5 * S, Note::Renews { op: 1 }));
        record.notes.push((
            20 * S,
            Note::Failover {
                kind: "kill".to_owned(),
                promotions: 1,
                from_us: 10 * S,
                promoted_us: 12 * S,
                healed_us: 15 * S,
                granted_us: None,
            },
        ));
        if let Some(lost_us) = lost_us {
            let why = "gone".to_owned();
            record.notes.push((lost_us, Note::Lost { op: 1, why }));
            record.history.push(lost_us, What::Ended { op: 1 });
        }
        // Something happens every second.
        for second in 0..20 {
            record.history.push(second * S, What::Queued { op: 99 });
        }
        record.history.events.sort_by_key(|event| event.at_us);
        record
    }

    fn found(client: u64, until_us: u64, lost_us: Option<u64>) -> (usize, usize, usize, usize) {
        let (figures, violations) = check(&record(client, until_us, lost_us));
        (
            figures.met,
            figures.entitled,
            figures.kept,
            violations.len(),
        )
    }

    #[test]
    fn a_holder_that_had_time_and_lost_its_lock_is_found() {
        assert_eq!(found(1, 16 * S, Some(16 * S)), (1, 1, 0, 1));
        assert_eq!(found(1, 16 * S, None), (1, 1, 1, 0));
    }

    #[test]
    fn a_holder_without_enough_validity_may_lose_its_lock() {
        assert_eq!(found(1, 14 * S, Some(14 * S)), (1, 0, 0, 0));
        assert_eq!(
            found(1, 11 * S, Some(11 * S)),
            (0, 0, 0, 0),
            "it ended before"
        );
    }

    #[test]
    fn a_failover_that_the_sentinels_began_excuses_a_loss() {
        let mut record = record(1, 16 * S, Some(16 * S));
        record.notes.push((30 * S, Note::Unplanned));
        let (figures, violations) = check(&record);
        assert_eq!((figures.entitled, violations.len()), (0, 0));
    }

    #[test]
    fn a_machine_that_stood_still_excuses_a_loss() {
        for (from, entitled) in [(12, 0), (8, 1)] {
            let mut record = record(1, 16 * S, Some(16 * S));
            let still = from * S + 1..(from + 3) * S;
            let events = &mut record.history.events;
            events.retain(|event| !still.contains(&event.at_us));
            let (figures, violations) = check(&record);
            assert_eq!((figures.entitled, violations.len()), (entitled, entitled));
        }
    }

    #[test]
    fn a_client_that_was_cut_off_reaches_the_new_master_later() {
        assert_eq!(found(2, 16 * S, Some(16 * S)), (1, 0, 0, 0));
        assert_eq!(found(2, 19 * S, Some(19 * S)), (1, 1, 0, 1));
    }
}
