//! What a run was made of, in numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::history::{Event, Mode, What};

use super::journal::{Note, Record};
use super::store::Entry;
use super::strike::Kind;

/// Counts of one run.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Calls for a lock.
    pub calls: usize,
    /// Grants, by what was asked for.
    pub grants: BTreeMap<&'static str, usize>,
    /// Calls that turned to a latch.
    pub turned: usize,
    /// Latches that somebody found open.
    pub opened: usize,
    /// Calls that ended without a grant.
    pub refused: usize,
    /// Calls of which nobody knows the outcome.
    pub unknown: usize,
    /// Holders that were told that they lost what they held.
    pub lost: usize,
    /// Faults, by sort.
    pub faults: BTreeMap<&'static str, usize>,
    /// Writes that the fenced resources accepted.
    pub writes: usize,
    /// What the fenced resources refused because it came too late.
    pub late: usize,
    /// Updates that the same resources lost where fences are not checked.
    pub lost_updates: usize,
    /// Groups of grants whose linearizability was checked.
    pub groups: usize,
    /// Events in the history.
    pub events: usize,
}

impl Figures {
    pub(super) fn of(record: &Record) -> Self {
        let mut figures = Self {
            events: record.history.events.len(),
            ..Self::default()
        };
        let mut asked = HashMap::new();
        let mut latches = HashMap::new();
        let mut opened: BTreeSet<&String> = BTreeSet::new();
        for Event { what, .. } in &record.history.events {
            match what {
                What::Invoked {
                    op, mode, names, ..
                } => {
                    figures.calls += 1;
                    asked.insert(*op, wanted(*mode, names.len()));
                }
                What::Granted { op, .. } => {
                    let wanted = asked.get(op).copied().unwrap_or("unasked");
                    *figures.grants.entry(wanted).or_default() += 1;
                }
                What::Turned { op, latch, .. } => {
                    figures.turned += 1;
                    latches.insert(*op, latch);
                }
                What::Found { op, open: true, .. } => opened.extend(latches.get(op)),
                What::Refused { .. } => figures.refused += 1,
                What::Unknown { .. } => figures.unknown += 1,
                What::Updated { .. } => figures.writes += 1,
                _ => {}
            }
        }
        for (_, note) in &record.notes {
            match note {
                Note::Lost { .. } => figures.lost += 1,
                Note::Late { .. } => figures.late += 1,
                Note::Strike { kind, .. } => {
                    let known = Kind::ALL.iter().find(|known| known.name() == kind);
                    let name = known.map_or("other", |known| known.name());
                    *figures.faults.entry(name).or_default() += 1;
                }
                Note::Votes { .. } | Note::Dead { .. } => {}
            }
        }
        figures.opened = opened.len();
        figures
    }

    /// Counts the updates that `writes` overwrote unseen.
    pub(super) fn count_lost_updates(&mut self, writes: &[Entry]) {
        let mut value = 0;
        for write in writes {
            self.lost_updates += usize::from(write.saw != value);
            value = write.wrote;
        }
    }

    /// All grants.
    pub fn granted(&self) -> usize {
        self.grants.values().sum()
    }
}

fn wanted(mode: Mode, names: usize) -> &'static str {
    match (mode, names) {
        (Mode::Shared, _) => "shared",
        (Mode::Permit { .. }, _) => "permits",
        (Mode::Exclusive, 1) => "exclusive",
        (Mode::Exclusive, _) => "several names",
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} calls: {} granted, {} about latches, {} refused, {} unknown; {} events",
            self.calls + self.turned,
            self.granted(),
            self.turned,
            self.refused,
            self.unknown,
            self.events
        )?;
        let grants = self
            .grants
            .iter()
            .map(|(of, count)| format!("{count} {of}"));
        writeln!(f, "grants: {}", grants.collect::<Vec<_>>().join(", "))?;
        writeln!(f, "{} latches were found open", self.opened)?;
        writeln!(f, "{} holders were told of a loss", self.lost)?;
        writeln!(
            f,
            "fenced resources accepted {} writes and refused {} late readers and writers; beside them, \
             without fences, {} updates were lost",
            self.writes, self.late, self.lost_updates
        )?;
        writeln!(
            f,
            "{} groups of grants are linearizable or named below",
            self.groups
        )?;
        writeln!(f, "{} faults:", self.faults.values().sum::<usize>())?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>4} {kind}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_that_was_overwritten_unseen_is_counted() {
        let write = |saw, wrote| Entry {
            op: 1,
            fence: 1,
            saw,
            wrote,
            sent_us: 0,
        };
        let mut figures = Figures::default();
        figures.count_lost_updates(&[write(0, 1), write(1, 2), write(1, 3), write(3, 4)]);
        assert_eq!(figures.lost_updates, 1);
    }
}
