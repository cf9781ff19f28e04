//! Failovers of real Sentinels under real clients. Three servers, three Sentinels and the client
//! processes are on hosts of a network that can be divided. Masters are killed, stopped, replaced
//! and cut off. The history is judged at the end.
//!
//! `servers` has the servers, `injector` brings about the failovers, and `call` decides what the
//! clients ask for. `carried` judges whether holders kept their locks; everything else is judged as
//! in every run. `plain` is the usual lock on the same servers, whose double holds are counted.

mod call;
mod carried;
mod injector;
mod plain;
mod report;
mod servers;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_testkit::Flavor;

use crate::history::What;
use crate::invariants::Violation;
use crate::random::Random;

use super::journal::{Journal, Record, now_us};
use super::processes::ClientProcesses;
use super::servers::remains_on;
use super::unheld::add_seats;
use super::{Figures, add_writes, around, judge, note_leftovers};

pub(super) use call::WORKLOAD;
pub use carried::CarriedFigures;
pub use injector::{FailoverKind, plan};
pub(super) use plain::PlainClient;
pub use plain::PlainFigures;
pub use report::FailoverFigures;

use injector::FailoverInjector;
use servers::SentinelServers;

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
    let servers = SentinelServers::start(settings.flavor);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(servers.init())?;
    let probe = runtime.block_on(servers.builder().connect())?;
    let journal = Journal::create(&journals.join("failovers.jsonl"))?;
    let processes = ClientProcesses::start(
        settings.program.clone(),
        journals.clone(),
        settings.seed,
        servers.launches(settings.clients, &plain),
    )?;
    let mut injector = FailoverInjector {
        servers: &servers,
        journal: &journal,
        random: Random::apart(settings.seed, u64::MAX),
        runtime: &runtime,
        probe: &probe,
        epoch: None,
    };
    let injected = injector.direct(&plan(settings.seed, settings.failovers), &mut progress);
    journal.event(now_us(), What::Healed);
    let ended = injected
        .map_err(|error| error.to_string())
        .and_then(|()| end(processes));
    if ended.is_ok() {
        let master = servers.master_host();
        let left = || remains_on(&servers.group.servers()[master]).into_iter();
        note_leftovers(&journal, || {
            let ours = left().filter(|key| is_ours(key));
            ours.map(|key| (master, key)).collect()
        });
        journal.event(now_us(), What::Over);
    }
    servers.save_logs(&settings.out)?;
    progress(settings.failovers, "judging");
    judged(settings, &servers, ended)
}

fn end(processes: ClientProcesses) -> Result<(), String> {
    std::thread::sleep(Duration::from_secs(2));
    processes.end()
}

/// The usual locks leave keys behind when their master is gone.
fn is_ours(key: &str) -> bool {
    !key.starts_with("plain-")
}

fn judged(
    settings: &FailoverSettings,
    servers: &SentinelServers,
    ended: Result<(), String>,
) -> Result<FailoverOutcome, Box<dyn Error>> {
    let mut record = Record::read(&settings.out.join("journals"))?;
    add_seats(&mut record.history);
    let mut figures = add_writes(&mut record, &servers.store, &call::resources());
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
