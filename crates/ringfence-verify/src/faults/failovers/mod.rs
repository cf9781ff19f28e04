//! Failovers of real Sentinels under real clients. Three servers, three Sentinels and the client
//! processes are on hosts of a network that can be divided. Masters are killed, stopped, replaced
//! and cut off. The history is judged at the end.
//!
//! `stage` has the servers, `director` brings about the failovers, and `wish` decides what the
//! clients ask for. `carried` judges whether holders kept their locks; everything else is judged as
//! in every run. `plain` is the usual lock on the same servers, whose double holds are counted.

mod carried;
mod director;
mod plain;
mod report;
mod stage;
mod wish;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_testkit::Flavor;

use crate::history::What;
use crate::invariants::Violation;
use crate::random::Random;

use super::crew::Crew;
use super::journal::{Journal, Record, now_us};
use super::stage::remains_on;
use super::{Figures, add_writes, around, judge, note_leftovers};

pub use carried::CarriedFigures;
pub use director::{FailoverKind, plan};
pub(super) use plain::PlainClient;
pub use plain::PlainFigures;
pub use report::FailoverFigures;
pub(super) use wish::HABITS;

use director::Director;
use stage::FailoverStage;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct FailoverSettings {
    /// Decides the order of the failovers, and what the clients ask for.
    pub seed: u64,
    /// How many failovers, at least.
    pub failovers: usize,
    /// How many client processes.
    pub clients: usize,
    /// Redis or Valkey.
    pub flavor: Flavor,
    /// The folder for all output.
    pub out: PathBuf,
    /// The program to start for each client, with the command `client`.
    pub program: PathBuf,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct FailoverOutcome {
    /// The settings.
    pub settings: FailoverSettings,
    /// The counts of calls and grants.
    pub figures: Figures,
    /// The failovers and their times.
    pub failovers: FailoverFigures,
    /// What happened to holders.
    pub carried: CarriedFigures,
    /// What happened to the usual locks.
    pub plain: PlainFigures,
    /// All violations; empty if all is well.
    pub violations: Vec<Violation>,
    /// The events around the first violation.
    pub around: String,
}

/// Runs it and calls `progress` with the number of failovers so far and the current action.
///
/// # Errors
/// If the run cannot be made. Violations are not errors.
pub fn run(
    settings: &FailoverSettings,
    mut progress: impl FnMut(usize, &str),
) -> Result<FailoverOutcome, Box<dyn Error>> {
    let journals = settings.out.join("journals");
    let plain = settings.out.join("plain");
    for folder in [&journals, &plain] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
    }
    progress(0, "starting servers and Sentinels");
    let stage = FailoverStage::set(settings.flavor);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(stage.init())?;
    let probe = runtime.block_on(stage.builder().connect())?;
    let journal = Journal::create(&journals.join("failovers.jsonl"))?;
    let crew = Crew::start(
        settings.program.clone(),
        journals.clone(),
        settings.seed,
        stage.launches(settings.clients, &plain),
    )?;
    let mut director = Director {
        stage: &stage,
        journal: &journal,
        random: Random::apart(settings.seed, u64::MAX),
        runtime: &runtime,
        probe: &probe,
        epoch: None,
    };
    let directed = director.direct(&plan(settings.seed, settings.failovers), &mut progress);
    journal.event(now_us(), What::Healed);
    let ended = directed
        .map_err(|error| error.to_string())
        .and_then(|()| end(crew));
    if ended.is_ok() {
        let master = stage.master_host();
        let left = || remains_on(&stage.group.servers()[master]).into_iter();
        note_leftovers(&journal, || {
            let ours = left().filter(|key| is_ours(key));
            ours.map(|key| (master, key)).collect()
        });
        journal.event(now_us(), What::Over);
    }
    stage.save_logs(&settings.out)?;
    progress(settings.failovers, "judging");
    judged(settings, &stage, ended)
}

fn end(crew: Crew) -> Result<(), String> {
    std::thread::sleep(Duration::from_secs(2));
    crew.end()
}

/// The usual locks leave keys behind when their master is gone.
fn is_ours(key: &str) -> bool {
    !key.starts_with("plain-")
}

fn judged(
    settings: &FailoverSettings,
    stage: &FailoverStage,
    ended: Result<(), String>,
) -> Result<FailoverOutcome, Box<dyn Error>> {
    let mut record = Record::read(&settings.out.join("journals"))?;
    let mut figures = add_writes(&mut record, &stage.store, &wish::resources());
    record.count_from_zero();
    let (groups, mut violations) = judge(&record.history);
    figures.groups = groups;
    let failovers = FailoverFigures::of(&record);
    let (carried, lost) = carried::check(&record);
    violations.extend(lost);
    violations.extend(failovers.violations());
    if let Err(how) = ended {
        violations.push(Violation {
            invariant: "clients",
            at_us: record.history.events.last().map_or(0, |over| over.at_us),
            how,
        });
    }
    violations.sort_by_key(|violation| violation.at_us);
    let history = record.history.to_json_lines();
    fs::write(settings.out.join("history.jsonl"), history)?;
    let around = violations.first().map(|first| around(&record, first));
    let plain = Record::read(&settings.out.join("plain"))?;
    Ok(FailoverOutcome {
        settings: settings.clone(),
        figures,
        failovers,
        carried,
        plain: PlainFigures::of(&plain.history),
        violations,
        around: around.unwrap_or_default(),
    })
}
