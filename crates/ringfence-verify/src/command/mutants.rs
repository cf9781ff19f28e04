//! `ringfence-verify mutants`: breaks one rule after the other and sees that the suite notices.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, process};

use indicatif::{ProgressBar, ProgressStyle};
use ringfence::clock::Clock;
use ringfence_verify::mutants::{self, Build, Outcome, Suite};

/// What is hunted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only mutants with this in their name
    names: Vec<String>,
    /// Also with the slow tests of whole fleets
    #[arg(long)]
    all: bool,
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

    /// Whether every mutant was caught.
    fn hunt(&self) -> Result<bool, Box<dyn Error>> {
        let build = Build::make(self.all)?;
        let mut mutants = build.mutants()?;
        if !self.names.is_empty() {
            mutants.retain(|one| self.names.iter().any(|name| one.name.contains(name)));
        }
        let suites = build.suites()?;
        let scratch = Scratch::new()?;
        let limits = sound(&suites, &scratch)?;

        let (clock, style) = (Clock::System, "{bar:40} {pos}/{len} mutants, {wide_msg}");
        let began = clock.now();
        let bar =
            ProgressBar::new(mutants.len() as u64).with_style(ProgressStyle::with_template(style)?);
        let catches = mutants::hunt(&mutants, &suites, &limits, &scratch.0, |catch| {
            bar.inc(1);
            match &catch.by {
                Some((suite, _)) => bar.set_message(format!("{}: {suite}", catch.mutant.name)),
                None => bar.suspend(|| {
                    println!("NOT CAUGHT: {} ({})", catch.mutant.name, catch.mutant.rule);
                }),
            }
        });
        bar.finish_and_clear();
        if let Some(file) = &self.table {
            fs::write(file, mutants::table(&catches))?;
        }
        let caught = catches.iter().filter(|catch| catch.by.is_some()).count();
        let seconds = clock.now().since(began).as_secs_f64();
        println!(
            "{caught} of {} mutants caught in {seconds:.0} s",
            catches.len()
        );
        Ok(caught == catches.len())
    }
}

/// Sees every suite green on the sound product, and says how long each may take on a mutant.
fn sound(suites: &[Suite], scratch: &Scratch) -> Result<Vec<Duration>, Box<dyn Error>> {
    const PATIENCE: Duration = Duration::from_secs(600);
    let clock = Clock::System;
    let limit = |suite: &Suite| match suite.run(None, PATIENCE, &scratch.0) {
        Outcome::Green => Ok(()),
        Outcome::Red(check) => Err(format!("{}: {check} is red without a mutant", suite.name)),
    };
    let mut limits = Vec::new();
    for suite in suites {
        let began = clock.now();
        limit(suite)?;
        let took = clock.now().since(began);
        println!(
            "{} is green on the sound product ({:.1} s)",
            suite.name,
            took.as_secs_f64()
        );
        // Others run beside it on the same cores.
        limits.push(took * 4 + Duration::from_secs(30));
    }
    Ok(limits)
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
