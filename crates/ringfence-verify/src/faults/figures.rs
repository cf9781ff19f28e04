//! The numbers of a run: calls, grants, faults and writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::history::{Event, Mode, What};

use super::journal::{Note, Record};
use super::planned::FaultKind;
use super::store::Entry;

/// The counts of one run.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Calls for a lock.
    pub calls: usize,
    /// Grants, by kind of lock.
    pub grants: BTreeMap<&'static str, usize>,
    /// Calls of latches.
    pub turned: usize,
    /// Latches that a call found open.
    pub opened: usize,
    /// Grants through the blocking API.
    pub blocking: usize,
    /// Holds that a majority broke.
    pub broken: usize,
    /// Leaders and vacancies that observers reported.
    pub reports: usize,
    /// Votes that granted a lock, of each node from 0.
    pub votes: BTreeMap<u64, usize>,
    /// Calls that ended without a grant.
    pub refused: usize,
    /// Calls whose result is not known.
    pub unknown: usize,
    /// Holders that learned of the loss of their lock.
    pub lost: usize,
    /// Faults, by kind.
    pub faults: BTreeMap<&'static str, usize>,
    /// Writes that the fenced resources accepted.
    pub writes: usize,
    /// Late reads and writes that the fenced resources refused.
    pub late: usize,
    /// Updates that were lost in the copies that do not check fences.
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
                What::Broken { .. } => figures.broken += 1,
                What::Told { .. } | What::Vacant { .. } => figures.reports += 1,
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
                Note::Fault { kind, .. } => {
                    let known = FaultKind::ALL.iter().find(|known| known.name() == kind);
                    let name = known.map_or("other", |known| known.name());
                    *figures.faults.entry(name).or_default() += 1;
                }
                Note::Blocking { .. } => figures.blocking += 1,
                Note::Votes { nodes, .. } => {
                    for node in nodes {
                        *figures.votes.entry(*node).or_default() += 1;
                    }
                }
                Note::Dead { .. }
                | Note::Renews { .. }
                | Note::Failover { .. }
                | Note::Unplanned => {}
            }
        }
        figures.opened = opened.len();
        figures
    }

    /// Counts the updates that `writes` overwrote without having seen them.
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
        writeln!(f, "{} grants through the blocking API", self.blocking)?;
        let votes = self.votes.iter();
        let votes = votes.map(|(node, count)| format!("{count} of node {node}"));
        writeln!(f, "votes: {}", votes.collect::<Vec<_>>().join(", "))?;
        writeln!(
            f,
            "{} latches were found open, {} holds were broken, observers reported {} changes",
            self.opened, self.broken, self.reports
        )?;
        writeln!(f, "{} holders learned of a loss", self.lost)?;
        writeln!(
            f,
            "fenced resources accepted {} writes and refused {} late readers and writers; the same \
             resources without fences lost {} updates",
            self.writes, self.late, self.lost_updates
        )?;
        writeln!(
            f,
            "{} groups of grants were checked for linearizability",
            self.groups
        )?;
        if !self.faults.is_empty() {
            writeln!(f, "{} faults:", self.faults.values().sum::<usize>())?;
        }
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
    fn a_lost_update_is_counted() {
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
