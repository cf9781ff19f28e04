//! Runs many schedules on all cores, until one breaks an invariant or the time is over.

use std::fmt;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::history::{History, What};
use crate::invariants::{self, Violation, liveness};

use super::plan::{Parts, Plan};
use super::planner::{Clocks, Layout};
use super::shrink;
use super::world::{self, Changes};

/// The schedules to run, by their seeds.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// How many; their seeds are consecutive.
    pub schedules: u64,
    /// How the clocks run.
    pub clocks: Clocks,
    /// What the nodes are.
    pub layout: Layout,
}

/// The counts of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Schedules that were run to their end.
    pub schedules: u64,
    /// Calls in these schedules.
    pub calls: u64,
    /// Calls that were granted.
    pub grants: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Messages, alarms and everything else that happened.
    pub happenings: u64,
    /// Changes of roles and addresses.
    pub changes: Changes,
    /// Schedules that were stopped because too much happened in them. Their open calls were not
    /// judged.
    pub stopped: u64,
    /// The first schedule that broke an invariant, if one did.
    pub failure: Option<Box<ViolatedSchedule>>,
}

/// A schedule that broke an invariant.
#[derive(Debug, Clone)]
pub struct ViolatedSchedule {
    /// The whole plan.
    pub plan: Plan,
    /// How the clocks ran.
    pub clocks: Clocks,
    /// What the nodes were.
    pub layout: Layout,
    /// The violation.
    pub violation: Violation,
    /// The smallest parts found that break the same invariant.
    pub parts: Parts,
    /// The violation of these parts.
    pub shrunk: Violation,
}

impl Campaign {
    /// Runs them. Calls `on_schedule` after each; it returns whether to continue.
    pub fn run(&self, on_schedule: impl Fn() -> bool + Sync) -> Report {
        let next = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let total = Mutex::new(Report::default());
        let broken = Mutex::new(None::<(u64, Violation)>);
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
                scope.spawn(|| {
                    let mut report = Report::default();
                    while !stop.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= self.schedules {
                            break;
                        }
                        let seed = self.first + at;
                        if let Err(violation) = self.one(seed, &mut report) {
                            stop.store(true, Ordering::Relaxed);
                            let mut broken = lock(&broken);
                            if broken.as_ref().is_none_or(|(other, _)| seed < *other) {
                                *broken = Some((seed, violation));
                            }
                        }
                        if !on_schedule() {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    lock(&total).add(&report);
                });
            }
        });
        let mut report = total.into_inner().unwrap_or_default();
        let broken = broken.into_inner().unwrap_or_default();
        report.failure = broken.map(|(seed, violation)| Box::new(self.fail(seed, violation)));
        report
    }

    fn one(&self, seed: u64, report: &mut Report) -> Result<(), Violation> {
        let plan = self.layout.plan(seed, self.clocks);
        let run = world::run(&plan, &plan.all(), false);
        report.schedules += 1;
        report.happenings += run.happenings;
        report.faults += plan.faults.len() as u64;
        report.changes.add(&run.changes);
        report.count(&run.history);
        invariants::check(&run.history)
    }

    fn fail(&self, seed: u64, violation: Violation) -> ViolatedSchedule {
        let plan = self.layout.plan(seed, self.clocks);
        let (parts, shrunk) = shrink(&plan, &violation);
        ViolatedSchedule {
            plan,
            clocks: self.clocks,
            layout: self.layout,
            violation,
            parts,
            shrunk,
        }
    }
}

impl Report {
    /// Counts the events of one run.
    fn count(&mut self, history: &History) {
        self.calls += count(history, |what| {
            matches!(what, What::Invoked { .. } | What::Turned { .. })
        });
        self.grants += count(history, |what| matches!(what, What::Granted { .. }));
        self.stopped += u64::from(liveness::not_judged(history).is_some());
    }

    fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.calls += other.calls;
        self.grants += other.grants;
        self.faults += other.faults;
        self.happenings += other.happenings;
        self.changes.add(&other.changes);
        self.stopped += other.stopped;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} schedules: {} calls, {} grants, {} faults, {} happenings; {}; {} stopped early, \
             their open calls were not judged; {}",
            self.schedules,
            self.calls,
            self.grants,
            self.faults,
            self.happenings,
            self.changes,
            self.stopped,
            match &self.failure {
                None => "no violation".to_owned(),
                Some(failure) => failure.to_string(),
            }
        )
    }
}

impl fmt::Display for ViolatedSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.plan.seed;
        writeln!(f, "VIOLATION of seed {seed}: {}", self.violation)?;
        writeln!(
            f,
            "the smallest part that breaks the same invariant: {}",
            self.shrunk
        )?;
        f.write_str(&self.plan.describe(&self.parts))?;
        let clocks = match self.clocks {
            Clocks::Usual => "",
            Clocks::Debate => " --clocks debate",
            Clocks::DebateUnprepared => " --clocks debate-unprepared",
        };
        let layout = match self.layout {
            Layout::Nodes => "",
            Layout::OneEndpoint => " --layout one-endpoint",
            Layout::Sentinels => " --layout sentinels",
        };
        writeln!(f, "to repeat it with every message:")?;
        write!(
            f,
            "  cargo run --release -p ringfence-verify -- simulate --seed {seed}{clocks}{layout} \
             --steps {} --faults {} --trace",
            numbers(&self.parts.steps),
            numbers(&self.parts.faults)
        )
    }
}

fn numbers(of: &[usize]) -> String {
    match of.is_empty() {
        true => "none".to_owned(),
        false => of
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(","),
    }
}

fn count(history: &History, wanted: fn(&What) -> bool) -> u64 {
    history
        .events
        .iter()
        .filter(|event| wanted(&event.what))
        .count() as u64
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::exclusive;

    #[test]
    fn a_stopped_run_is_counted_and_printed() {
        let mut report = Report::default();
        let mut history = History::default();
        history.invoke(3, 1, exclusive("x"));
        report.count(&history);
        history.push(9, What::Over);
        report.count(&history);
        assert_eq!((report.calls, report.stopped), (2, 1));
        let mut total = Report::default();
        total.add(&report);
        let text = total.to_string();
        assert!(text.contains("1 stopped early"), "{text}");
    }
}
