//! Faults on real servers: client processes that use the product as anybody would, on real Redis and
//! Valkey servers that are killed, stopped, flushed and cut off and whose clocks are set, and a history
//! of all that happened, which is judged when it is over.
//!
//! `plan` decides which `strike` comes when; `stage` is the servers, `crew` the client processes, `nemesis`
//! carries the plan out; `client` is what runs in each process, and `meeting` what it does at latches; `journal` is what is written down,
//! `linear` and the [`invariants`] judge it, `picture` shows it.

mod client;
mod crew;
mod figures;
mod journal;
mod lanes;
mod linear;
mod meeting;
mod nemesis;
mod picture;
mod plan;
mod stage;
mod store;
mod strike;
mod wish;

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_testkit::Flavor;

use crate::history::{History, What};
use crate::invariants::{self, Violation};

pub use client::Seat;
pub use figures::Figures;
pub use journal::{Note, Record};
pub use plan::{Targets, plan};
pub use strike::{Kind, Strike};

use crew::Crew;
use journal::{Journal, now_us};
use nemesis::Nemesis;
use stage::Stage;

/// How long clients go on after the last fault.
const CALM: Duration = Duration::from_secs(3);
/// How long what the last clients left may stay: their longest TTL, or a ticket's lease, and what a
/// clock that was set back adds to it.
const LEFTOVERS_LIMIT: Duration = Duration::from_secs(20);

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Decides which faults come when, and what clients want.
    pub seed: u64,
    /// For how long faults come.
    pub span: Duration,
    /// How many servers.
    pub nodes: usize,
    /// Their makes, in turn.
    pub flavors: Vec<Flavor>,
    /// The folder that everything is written to.
    pub out: PathBuf,
    /// The program that is started for each client, with the command `client`.
    pub program: PathBuf,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The run.
    pub settings: Settings,
    /// What it was made of.
    pub figures: Figures,
    /// What must not have been: nothing, if all is well.
    pub violations: Vec<Violation>,
    /// What was not judged, because clocks were no longer what exclusion rests on.
    pub excused: Option<Violation>,
    /// If the run was cut short: how many calls were open, whose ends were not judged.
    pub not_judged: Option<usize>,
    /// The events around the first violation.
    pub around: String,
}

/// Runs it, telling `progress` how far it is.
///
/// # Errors
/// If it cannot be run. What it finds is no error.
pub fn run(
    settings: &Settings,
    mut progress: impl FnMut(Duration, &str),
) -> Result<Outcome, Box<dyn Error>> {
    let journals = settings.out.join("journals");
    if journals.exists() {
        fs::remove_dir_all(&journals)?;
    }
    fs::create_dir_all(&journals)?;
    progress(Duration::ZERO, "starting servers");
    let stage = Stage::set(settings.nodes, &settings.flavors)?;
    let journal = Journal::create(&journals.join("faults.jsonl"))?;
    let crew = Crew::start(
        settings.program.clone(),
        journals.clone(),
        settings.seed,
        &stage,
    )?;
    let ended = rage(settings, &stage, crew, &journal, &mut progress)?;
    note_leftovers(&stage, &journal);
    journal.event(now_us(), What::Over);

    progress(settings.span, "judging");
    let mut record = Record::read(&journals)?;
    let mut figures = add_writes(&mut record, &stage);
    record.count_from_zero();
    let (groups, mut violations) = judge(&record.history);
    figures.groups = groups;
    if let Err(how) = ended {
        violations.push(Violation {
            invariant: "clients",
            at_us: record.history.events.last().map_or(0, |over| over.at_us),
            how,
        });
    }
    fs::write(
        settings.out.join("history.jsonl"),
        record.history.to_json_lines(),
    )?;
    fs::write(
        settings.out.join("picture.html"),
        picture::draw(&record, &violations, settings.nodes),
    )?;
    let around = violations.first().map(|first| around(&record, first));
    Ok(Outcome {
        settings: settings.clone(),
        figures,
        violations,
        excused: excused(&record.history),
        not_judged: invariants::liveness::not_judged(&record.history),
        around: around.unwrap_or_default(),
    })
}

/// All faults, a calm, and the end of all clients: `Err` of the inner result if some did not end well.
fn rage(
    settings: &Settings,
    stage: &Stage,
    mut crew: Crew,
    journal: &Journal,
    progress: &mut impl FnMut(Duration, &str),
) -> Result<Result<(), String>, Box<dyn Error>> {
    let begun_us = now_us();
    let past = || Duration::from_micros(now_us() - begun_us);
    let strikes = plan(settings.seed, settings.span, &stage.targets());
    let mut nemesis = Nemesis {
        stage,
        crew: &mut crew,
        journal,
    };
    nemesis.rage(&strikes, |what| progress(past(), what))?;
    journal.event(now_us(), What::Healed);
    progress(past(), "letting clients go on in peace");
    std::thread::sleep(CALM);
    progress(past(), "waiting for all clients to end");
    Ok(crew.end())
}

fn note_leftovers(stage: &Stage, journal: &Journal) {
    let until_us = now_us() + LEFTOVERS_LIMIT.as_micros() as u64;
    let mut remains = stage.remains();
    while !remains.is_empty() && now_us() < until_us {
        std::thread::sleep(Duration::from_millis(100));
        remains = stage.remains();
    }
    for (node, name) in remains {
        let what = "a key".to_owned();
        journal.event(now_us(), What::Remains { node, name, what });
    }
}

/// Adds what the fenced resources accepted, in their own order, and counts everything.
fn add_writes(record: &mut Record, stage: &Stage) -> Figures {
    let slots = (0..wish::PERMITS).map(|slot| format!("{}-{slot}", wish::POOL));
    let names = wish::NAMES.iter().chain([&wish::LEAD]);
    let resources: Vec<String> = names.map(|&name| name.to_owned()).chain(slots).collect();
    for resource in &resources {
        let mut at_us = 0;
        for write in stage.writes(resource, true) {
            // A write that overtook another on the way is told after it, as the resource had it.
            at_us = write.sent_us.max(at_us);
            let what = What::Updated {
                resource: resource.clone(),
                op: write.op,
                fence: write.fence,
                saw: write.saw,
                wrote: write.wrote,
            };
            record.history.push(at_us, what);
        }
    }
    record.history.events.sort_by_key(|event| event.at_us);
    let mut figures = Figures::of(record);
    for resource in &resources {
        figures.count_lost_updates(&stage.writes(resource, false));
    }
    figures
}

/// How many groups of grants were looked at, and all that must not be.
pub fn judge(history: &History) -> (usize, Vec<Violation>) {
    let (groups, mut violations) = linear::check(history);
    let checks = invariants::ALL.iter();
    violations.extend(checks.filter_map(|(_, check)| check(history).err()));
    violations.sort_by_key(|violation| violation.at_us);
    (groups, violations)
}

/// What the invariants that need clocks would have found after these were no longer to be relied on.
fn excused(history: &History) -> Option<Violation> {
    let mut strict = history.clone();
    for event in &mut strict.events {
        if let What::Fault { timing, .. } = &mut event.what {
            *timing = false;
        }
    }
    let of_time = [
        invariants::exclusion::check,
        invariants::readers::check,
        invariants::permits::check,
    ];
    let found = of_time.iter().find_map(|check| check(&strict).err());
    found.filter(|violation| violation.at_us >= history.timing_until_us())
}

/// The events around a violation.
fn around(record: &Record, violation: &Violation) -> String {
    const MARGIN_US: u64 = 500_000;
    let near = record.history.events.iter().filter(|event| {
        event.at_us + MARGIN_US > violation.at_us && event.at_us < violation.at_us + MARGIN_US
    });
    let near = History {
        events: near.cloned().collect(),
    };
    near.to_json_lines()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings {
            seed, span, nodes, ..
        } = &self.settings;
        writeln!(f, "seed {seed}: {nodes} nodes, faults for {span:?}")?;
        write!(f, "{}", self.figures)?;
        if let Some(excused) = &self.excused {
            writeln!(f, "excused by clocks that no client could know: {excused}")?;
        }
        if let Some(open) = self.not_judged {
            writeln!(f, "cut short: whether {open} open calls end was not judged")?;
        }
        if !self.around.is_empty() {
            writeln!(f, "\nevents around the first violation:\n{}", self.around)?;
        }
        for violation in &self.violations {
            writeln!(f, "VIOLATION (seed {seed}): {violation}")?;
        }
        writeln!(f, "{} violations", self.violations.len())?;
        writeln!(
            f,
            "history and picture: {}",
            self.settings.out.join("picture.html").display()
        )
    }
}
