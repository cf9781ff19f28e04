//! The failovers of a run as figures, and the report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::invariants::Violation;

use super::super::journal::{Note, Record};
use super::injector::FailoverKind;
use super::{CarriedFigures, FailoverOutcome, FailoverSettings, PlainFigures};

/// Two failovers within this time are close together.
const CLOSE_US: u64 = 8_000_000;

/// The failovers and their times.
#[derive(Debug, Clone, Default)]
pub struct FailoverFigures {
    /// How many of each kind.
    pub kinds: BTreeMap<&'static str, usize>,
    /// How many masters were promoted.
    pub promotions: u64,
    /// How many times two failovers were done within 8 s.
    pub close: usize,
    /// How many times the Sentinels began another failover by themselves.
    pub unplanned: usize,
    /// From the fault to the new master, for failovers with one promotion.
    pub promoted_after: Vec<Duration>,
    /// From the new master to the first lock of a newcomer.
    pub granted_after: Vec<Duration>,
    /// When there was a new master after which no newcomer was granted a lock.
    never_granted_us: Vec<u64>,
}

impl FailoverFigures {
    pub(super) fn of(record: &Record) -> Self {
        let mut figures = Self::default();
        for (_, note) in &record.notes {
            figures.unplanned += usize::from(*note == Note::Unplanned);
            let Note::Failover {
                kind,
                promotions,
                from_us,
                promoted_us,
                granted_us,
                ..
            } = note
            else {
                continue;
            };
            let known = FailoverKind::ALL.iter().find(|known| known.name() == kind);
            let name = known.map_or("other", |known| known.name());
            *figures.kinds.entry(name).or_default() += 1;
            figures.promotions += promotions;
            let took = Duration::from_micros(promoted_us.saturating_sub(*from_us));
            match promotions {
                1 => figures.promoted_after.push(took),
                _ => figures.close += usize::from(promoted_us - from_us <= CLOSE_US),
            }
            match granted_us {
                Some(granted_us) => {
                    let after_us = granted_us.saturating_sub(*promoted_us);
                    figures.granted_after.push(Duration::from_micros(after_us));
                }
                None => figures.never_granted_us.push(*promoted_us),
            }
        }
        figures
    }

    /// Newcomers that were never granted a lock again.
    pub(super) fn violations(&self) -> impl Iterator<Item = Violation> {
        self.never_granted_us.iter().map(|at_us| Violation {
            invariant: "newcomers",
            at_us: *at_us,
            how: "no newcomer was granted a lock within two minutes of this promotion".to_owned(),
        })
    }
}

/// Least, median and most.
struct Spread<'a>(&'a [Duration]);

impl fmt::Display for Spread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.to_vec();
        sorted.sort();
        let [first, .., last] = &sorted[..] else {
            return write!(f, "{sorted:.1?}");
        };
        let median = sorted[sorted.len() / 2];
        write!(
            f,
            "{first:.1?}, {median:.1?}, {last:.1?} (least, median, most)"
        )
    }
}

impl fmt::Display for FailoverFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} failovers:", self.promotions)?;
        for (kind, count) in &self.kinds {
            writeln!(f, "  {count:>4} {kind}")?;
        }
        writeln!(f, "two failovers within 8 s: {} times", self.close)?;
        writeln!(
            f,
            "failovers that the Sentinels began by themselves, on a busy machine: {}",
            self.unplanned
        )?;
        let (promoted, granted) = (Spread(&self.promoted_after), Spread(&self.granted_after));
        writeln!(f, "from the fault to the new master: {promoted}")?;
        writeln!(
            f,
            "from the new master to the first lock of a newcomer: {granted}"
        )
    }
}

impl fmt::Display for FailoverOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailoverSettings {
            seed,
            clients,
            flavor,
            ..
        } = &self.settings;
        writeln!(
            f,
            "seed {seed}: {flavor:?}, three servers, three Sentinels, {clients} clients"
        )?;
        write!(f, "{}{}", self.failovers, self.figures)?;
        let CarriedFigures {
            met,
            entitled,
            kept,
        } = self.carried;
        writeln!(
            f,
            "holders with renewal that met a failover: {met}, and {kept} of them kept their lock; \
             {entitled} of them had to keep it"
        )?;
        let PlainFigures {
            grants,
            double_holds,
        } = self.plain;
        writeln!(
            f,
            "the usual lock (SET NX PX) on the same servers: {grants} grants, {double_holds} of \
             them while another client held the same lock"
        )?;
        if !self.around.is_empty() {
            writeln!(f, "\nevents around the first violation:\n{}", self.around)?;
        }
        for violation in &self.violations {
            writeln!(f, "VIOLATION (seed {seed}): {violation}")?;
        }
        writeln!(f, "{} violations", self.violations.len())?;
        let history = self.settings.out.join("history.jsonl");
        writeln!(f, "history: {}", history.display())
    }
}
