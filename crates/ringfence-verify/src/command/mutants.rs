//! `ringfence-verify mutants`: breaks one rule after the other and sees that the suite notices.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, process};

use indicatif::{ProgressBar, ProgressStyle};
use ringfence::clock::Clock;
use ringfence_verify::mutants::{Build, Catch, Hunt, Mutant, Outcome, SUITES, Table, list};

/// Where it is written down what caught which, from the root of the workspace.
const TABLE: &str = "docs/mutants.md";

/// What is hunted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only mutants with this in their name
    names: Vec<String>,
    /// With the simulator alone; what it does not notice is no failure
    #[arg(long)]
    simulator: bool,
    /// Write the table of what caught which to this file
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> ExitCode {
        match self.hunt() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    /// Whether every mutant was caught that had to be.
    fn hunt(&self) -> Result<bool, Box<dyn Error>> {
        let clock = Clock::System;
        let began = clock.now();
        let known = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(TABLE);
        let mut table = Table::read(&fs::read_to_string(known).unwrap_or_default());
        let named = SUITES.into_iter().filter(|suite| table.names(suite));
        let build = Build::make(named)?;
        let mut mutants: Vec<Mutant> = list::all().into_iter().copied().collect();
        table.follow(&mutants);
        if !self.names.is_empty() {
            mutants.retain(|one| self.names.iter().any(|name| one.name.contains(name)));
        }
        let scratch = Scratch::new()?;
        let caught = match self.simulator {
            true => simulated(&build, &mutants, &mut table, &scratch)?,
            false => caught(&build, &mutants, &mut table, &scratch)?,
        };
        if let Some(file) = &self.table {
            fs::write(file, table.write())?;
        }
        let seconds = clock.now().since(began).as_secs();
        println!("{} mutants, {caught} caught, {seconds} s", mutants.len());
        Ok(self.simulator || caught == mutants.len())
    }
}

/// Hunts with what caught each of `mutants` the last time, and the rest with everything. How many were
/// caught.
fn caught(
    build: &Build,
    mutants: &[Mutant],
    table: &mut Table,
    scratch: &Scratch,
) -> Result<usize, Box<dyn Error>> {
    let suites = build.suites();
    let hunt = Hunt {
        suites: &suites,
        scratch: &scratch.0,
    };
    let bar = bar(mutants.len())?;
    let mut catches = caught_again(&hunt, mutants, table, &bar)?;
    // What was built first, then what takes longer to build and to run.
    let mut left = not_in(mutants, &catches);
    catches.extend(newly_caught(&hunt, &left, &bar));
    left = not_in(mutants, &catches);
    if !left.is_empty() {
        let mut slower = Build::make(SUITES)?.suites();
        slower.retain(|one| suites.iter().all(|tried| tried.name != one.name));
        let hunt = Hunt {
            suites: &slower,
            scratch: &scratch.0,
        };
        catches.extend(newly_caught(&hunt, &left, &bar));
        left = not_in(mutants, &catches);
    }
    bar.finish_and_clear();
    for one in &left {
        println!("NOT CAUGHT: {}, which breaks: {}", one.name, one.rule);
        table.note(one.name, |row| row.by = None);
    }
    for catch in &catches {
        table.note(catch.mutant.name, |row| {
            row.by.clone_from(&catch.by);
            row.took = catch.took;
        });
    }
    Ok(catches.len())
}

/// Those that the table's own test catches again, after every such test was seen green.
fn caught_again(
    hunt: &Hunt,
    mutants: &[Mutant],
    table: &Table,
    bar: &ProgressBar,
) -> Result<Vec<Catch>, String> {
    let row = |mutant: &Mutant| table.row(mutant.name);
    let checks: BTreeSet<_> = mutants
        .iter()
        .filter_map(|one| row(one)?.by.clone())
        .collect();
    let sound = hunt.sound(&checks)?;
    let known = mutants.iter().filter_map(|one| {
        let check = row(one)?.by.clone()?;
        let took = *sound.get(&check)?;
        Some((*one, check, took))
    });
    let mut known: Vec<_> = known.collect();
    // The long ones first, so that no core has to wait for the other at the end.
    known.sort_by_key(|(_, _, took)| std::cmp::Reverse(*took));
    println!("{} tests are green without a mutant", sound.len());

    let mut catches = hunt.known(&known, |catch| show(bar, catch));
    catches.retain(|catch| catch.by.is_some());
    Ok(catches)
}

/// Those of `mutants` that some other test catches, each of which is told: the table does not have it yet.
fn newly_caught(hunt: &Hunt, mutants: &[Mutant], bar: &ProgressBar) -> Vec<Catch> {
    let mut catches = hunt.everywhere(mutants, |catch| {
        show(bar, catch);
        if let Some((suite, test)) = &catch.by {
            bar.suspend(|| println!("{}: now caught by {suite}: {test}", catch.mutant.name));
        }
    });
    catches.retain(|catch| catch.by.is_some());
    catches
}

fn not_in(mutants: &[Mutant], catches: &[Catch]) -> Vec<Mutant> {
    let caught = |one: &&Mutant| catches.iter().any(|catch| catch.mutant.name == one.name);
    mutants.iter().filter(|one| !caught(one)).copied().collect()
}

/// Has the simulator alone look for each of `mutants`. How many it noticed.
fn simulated(
    build: &Build,
    mutants: &[Mutant],
    table: &mut Table,
    scratch: &Scratch,
) -> Result<usize, Box<dyn Error>> {
    const PATIENCE: Duration = Duration::from_secs(600);
    let (clock, simulator) = (Clock::System, build.simulator()?);
    let began = clock.now();
    if let Outcome::Red(why) | Outcome::Broken(why) = simulator.run(None, PATIENCE, &scratch.0) {
        return Err(format!("without a mutant, in the simulator: {why} is red").into());
    }
    // A broken rule may make a client go round for ever without any time passing.
    let limit = clock.now().since(began) * 8;
    let (bar, mut noticed) = (bar(mutants.len())?, 0);
    for one in mutants.iter().filter(|one| simulator.may_see(one.place())) {
        let said = match simulator.run(Some(one.name), limit, &scratch.0) {
            Outcome::Green(_) => "no".to_owned(),
            Outcome::Red(invariant) => format!("`{invariant}`"),
            Outcome::Broken(why) => why,
        };
        noticed += usize::from(said != "no");
        bar.inc(1);
        bar.suspend(|| println!("{}: {said}", one.name));
        table.note(one.name, |row| row.simulator = said);
    }
    bar.finish_and_clear();
    Ok(noticed)
}

fn show(bar: &ProgressBar, catch: &Catch) {
    bar.set_message(catch.mutant.name);
    bar.inc(u64::from(catch.by.is_some()));
}

fn bar(mutants: usize) -> Result<ProgressBar, Box<dyn Error>> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} mutants, {wide_msg}")?;
    Ok(ProgressBar::new(mutants as u64).with_style(style))
}

/// A folder for what the tests leave behind when they are ended in the middle.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let folder = env::temp_dir().join(format!("ringfence-mutants-{}", process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
