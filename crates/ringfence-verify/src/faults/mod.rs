//! Faults on real servers. Client processes use the product like any user, on real Redis and Valkey
//! servers that are killed, stopped, flushed and cut off, whose syncs fail and whose clocks are set.
//! The history is judged at the end.
//!
//! `plan` decides which fault happens when, and `planned` is one of them. `servers` has the servers,
//! `processes` the client processes, and `injector` carries out the plan. `client` is what runs in
//! each process: `call` is what it asks for, `api` how it calls the product, and `unheld` has the
//! calls that hold nothing. `journal` records everything, `linear` and the [`invariants`] judge it,
//! `picture` shows it,
//! and `soak` checks that nothing grows.
//!
//! [`failovers`] is a run of its own, with real Sentinels.

mod api;
mod call;
mod client;
pub mod failovers;
mod figures;
mod injector;
mod journal;
mod lanes;
mod linear;
mod picture;
mod plan;
mod planned;
mod processes;
mod servers;
mod soak;
mod store;
mod unheld;

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_testkit::{Flavor, Server};

use crate::history::{History, What};
use crate::invariants::{self, Violation};

pub use client::ClientProcess;
pub use figures::Figures;
pub use journal::{Note, Record};
pub use plan::{Targets, plan};
pub use planned::{FaultKind, PlannedFault};
pub use soak::Growth;

use injector::Injector;
use journal::{Journal, now_us};
use processes::ClientProcesses;
use servers::Servers;
use soak::Samples;

/// How long clients continue after the last fault.
const CALM: Duration = Duration::from_secs(3);
/// How long keys of the last clients may remain: their longest TTL or the lease of a ticket, and
/// the time that a clock which was set back adds.
const LEFTOVERS_LIMIT: Duration = Duration::from_secs(20);

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Decides which faults happen when, and what the clients ask for.
    pub seed: u64,
    /// For how long faults are injected.
    pub span: Duration,
    /// How many servers.
    pub nodes: usize,
    /// Redis or Valkey, used in turn.
    pub flavors: Vec<Flavor>,
    /// The folder for all output.
    pub out: PathBuf,
    /// The program to start for each client, with the command `client`.
    pub program: PathBuf,
    /// Whether to check that nothing grows. Then two clients live as long as the run.
    pub soak: bool,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The settings.
    pub settings: Settings,
    /// The counts.
    pub figures: Figures,
    /// All violations; empty if all is well.
    pub violations: Vec<Violation>,
    /// A violation that does not count, because clocks no longer kept what exclusion needs.
    pub excused: Option<Violation>,
    /// How much more was used at the end than early in the run, if that was to be checked.
    pub growth: Option<Growth>,
    /// For an incomplete run: how many calls were open. Their ends were not judged.
    pub not_judged: Option<usize>,
    /// The events around the first violation.
    pub around: String,
}

/// Runs it and calls `progress` with the time passed and the current action.
///
/// # Errors
/// If the run cannot be made. Violations are not errors.
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
    let servers = Servers::start(settings.nodes, &settings.flavors)?;
    let journal = Journal::create(&journals.join("faults.jsonl"))?;
    let processes = ClientProcesses::start(
        settings.program.clone(),
        journals.clone(),
        settings.seed,
        servers.launches(),
    )?;
    let (ended, samples) = inject_sampled(settings, &servers, processes, &journal, &mut progress)?;
    note_leftovers(&journal, || servers.remains());
    journal.event(now_us(), What::Over);

    progress(settings.span, "judging");
    let mut record = Record::read(&journals)?;
    unheld::add_seats(&mut record.history);
    let mut figures = add_writes(&mut record, &servers.store, &resources());
    record.count_from_zero();
    let (groups, mut violations) = judge(&record.history);
    figures.groups = groups;
    let growth = samples.map(|samples| samples.growth());
    violations.extend(growth.iter().flat_map(Growth::violations));
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
        growth,
        not_judged: invariants::liveness::not_judged(&record.history),
        around: around.unwrap_or_default(),
    })
}

/// [`inject`], and meanwhile the samples of a soak.
#[expect(
    clippy::type_complexity,
    reason = "the result of `inject` and one thing more"
)]
fn inject_sampled(
    settings: &Settings,
    servers: &Servers,
    processes: ClientProcesses,
    journal: &Journal,
    progress: &mut impl FnMut(Duration, &str),
) -> Result<(Result<(), String>, Option<Samples>), Box<dyn Error>> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watched = processes.first_ids(&servers::LASTING);
        let sampling = settings.soak.then(|| {
            let over = &over;
            scope.spawn(move || Samples::take(&watched, servers, over))
        });
        let ended = inject(settings, servers, processes, journal, progress);
        over.store(true, Ordering::SeqCst);
        let samples = sampling.and_then(|sampling| sampling.join().ok());
        Ok((ended?, samples))
    })
}

/// Injects all faults, waits, and ends all clients. The inner result is an error if a client
/// failed.
fn inject(
    settings: &Settings,
    servers: &Servers,
    mut processes: ClientProcesses,
    journal: &Journal,
    progress: &mut impl FnMut(Duration, &str),
) -> Result<Result<(), String>, Box<dyn Error>> {
    let begun_us = now_us();
    let past = || Duration::from_micros(now_us() - begun_us);
    let faults = plan(
        settings.seed,
        settings.span,
        &servers.targets(settings.soak),
    );
    let mut injector = Injector {
        servers,
        processes: &mut processes,
        journal,
    };
    injector.inject(&faults, |what| progress(past(), what))?;
    journal.event(now_us(), What::Healed);
    progress(past(), "clients continue without faults");
    thread::sleep(CALM);
    progress(past(), "waiting for all clients to end");
    Ok(processes.end())
}

fn note_leftovers(journal: &Journal, look: impl Fn() -> Vec<(usize, String)>) {
    let until_us = now_us() + LEFTOVERS_LIMIT.as_micros() as u64;
    let mut remains = look();
    while !remains.is_empty() && now_us() < until_us {
        thread::sleep(Duration::from_millis(100));
        remains = look();
    }
    for (node, name) in remains {
        let what = "a key".to_owned();
        journal.event(now_us(), What::Remains { node, name, what });
    }
}

/// The resources that the locks of a run protect.
fn resources() -> Vec<String> {
    let slots = (0..call::PERMITS).map(|slot| format!("{}-{slot}", call::POOL));
    let names = call::NAMES.iter().chain([&call::LEAD]);
    names.map(|&name| name.to_owned()).chain(slots).collect()
}

/// Adds the writes that the fenced resources accepted, in their order, and counts everything.
fn add_writes(record: &mut Record, server: &Server, resources: &[String]) -> Figures {
    for resource in resources {
        let mut at_us = 0;
        for write in store::writes(server, resource, true) {
            // The order is the resource's, even if a write overtook another on the way.
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
    for resource in resources {
        figures.count_lost_updates(&store::writes(server, resource, false));
    }
    figures
}

/// The number of groups of grants that were checked, and all violations.
pub fn judge(history: &History) -> (usize, Vec<Violation>) {
    let (groups, mut violations) = linear::check(history);
    let checks = invariants::ALL.iter();
    violations.extend(checks.filter_map(|(_, check)| check(history).err()));
    violations.sort_by_key(|violation| violation.at_us);
    (groups, violations)
}

/// What the invariants that need clocks would have found after the clocks broke.
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
        if let Some(growth) = &self.growth {
            write!(f, "{growth}")?;
        }
        if let Some(excused) = &self.excused {
            writeln!(
                f,
                "excused by a clock jump that the client could not notice: {excused}"
            )?;
        }
        if let Some(open) = self.not_judged {
            writeln!(
                f,
                "incomplete run: the ends of {open} open calls were not checked"
            )?;
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
