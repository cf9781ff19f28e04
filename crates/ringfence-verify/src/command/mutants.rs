//! `ringfence-verify mutants`: breaks one rule after the other, and checks that a test notices.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, process};

use indicatif::{ProgressBar, ProgressStyle};
use ringfence::clock::Clock;
use ringfence_verify::mutants::{Build, Catch, Hunt, Mutant, Outcome, Table, list};

/// The file that records which test caught which mutant, from the root of the workspace.
const TABLE: &str = "docs/mutants.md";

/// The arguments of `mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct MutantsArgs {
    /// Only mutants whose name contains this
    names: Vec<String>,
    /// Use only the simulator; a mutant that it does not notice is no failure
    #[arg(long)]
    simulator: bool,
    /// Write the table of mutants and the tests that caught them to this file
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

impl MutantsArgs {
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

    /// Whether every mutant that has to be caught was caught.
    fn hunt(&self) -> Result<bool, Box<dyn Error>> {
        let clock = Clock::System;
        let began = clock.now();
        let known = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(TABLE);
        let mut table = Table::read(&fs::read_to_string(known).unwrap_or_default());
        let build = Build::make()?;
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

/// Tries on each mutant the test that caught it last time, and on the rest all tests. Returns how
/// many were caught.
fn caught(
    build: &Build,
    mutants: &[Mutant],
    table: &mut Table,
    scratch: &Scratch,
) -> Result<usize, Box<dyn Error>> {
    let suites = build.suites()?;
    let hunt = Hunt {
        suites: &suites,
        scratch: &scratch.0,
    };
    let bar = bar(mutants.len())?;
    let mut catches = caught_again(&hunt, mutants, table, &bar)?;
    let mut left = not_in(mutants, &catches);
    catches.extend(newly_caught(&hunt, &left, &bar));
    left = not_in(mutants, &catches);
    bar.finish_and_clear();
    for one in &left {
        println!(
            "NOT CAUGHT: {}, which breaks the rule: {}",
            one.name, one.rule
        );
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

/// The mutants that are caught again by the test in the table. All these tests must pass without a
/// mutant first.
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
    // The longest tests first, so that all cores are busy until the end.
    known.sort_by_key(|(_, _, took)| std::cmp::Reverse(*took));
    println!("{} tests pass without a mutant", sound.len());

    let mut catches = hunt.known(&known, |catch| show(bar, catch));
    catches.retain(|catch| catch.by.is_some());
    Ok(catches)
}

/// The mutants that another test catches. Prints each, because the table does not have it yet.
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

/// Runs only the simulator on each of `mutants`. Returns how many it noticed.
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
        return Err(format!("the simulator fails without a mutant: {why}").into());
    }
    // A broken rule may make a client loop forever while the simulated time stands still.
    let limit = clock.now().since(began) * 8;
    let (bar, mut noticed) = (bar(mutants.len())?, 0);
    for one in mutants
        .iter()
        .filter(|one| simulator.may_see(one.runs_on()))
    {
        let result = match simulator.run(Some(one.name), limit, &scratch.0) {
            Outcome::Green(_) => "no".to_owned(),
            Outcome::Red(invariant) => format!("`{invariant}`"),
            Outcome::Broken(why) => why,
        };
        noticed += usize::from(result != "no");
        bar.inc(1);
        bar.suspend(|| println!("{}: {result}", one.name));
        table.note(one.name, |row| row.simulator = result);
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

/// A temporary folder for files of tests that are killed before their end.
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
