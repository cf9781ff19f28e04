//! `ringfence-verify failovers`: failovers of real Sentinels under real clients.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::ProgressBar;
use ringfence_verify::faults::failovers::{self, FailoverSettings};

use super::run::{FlavorArg, style};

/// The arguments of `failovers`.
#[derive(Debug, clap::Args)]
pub(crate) struct FailoversArgs {
    /// How many failovers, at least
    #[arg(long, default_value_t = 10)]
    failovers: usize,
    /// How many client processes
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(2..=64))]
    clients: u8,
    /// The seed that decides the order of the failovers, and which locks the clients ask for
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which servers: with both, half of the failovers are on each
    #[arg(long, value_enum, default_value_t = FlavorArg::Both)]
    flavor: FlavorArg,
    /// The folder for the histories
    #[arg(long, default_value = "target/failovers")]
    out: PathBuf,
}

impl FailoversArgs {
    pub(crate) fn run(self) -> ExitCode {
        let Ok(program) = env::current_exe() else {
            eprintln!("cannot find the path of this program, which the client processes need");
            return ExitCode::FAILURE;
        };
        let flavors = self.flavor.flavors();
        let mut code = ExitCode::SUCCESS;
        for flavor in &flavors {
            let name = format!("{flavor:?}").to_lowercase();
            let settings = FailoverSettings {
                seed: self.seed,
                failovers: self.failovers.div_ceil(flavors.len()),
                clients: usize::from(self.clients),
                flavor: *flavor,
                out: self.out.join(format!("seed-{}-{name}", self.seed)),
                program: program.clone(),
            };
            let bar = ProgressBar::new(settings.failovers as u64).with_style(style());
            let outcome = failovers::run(&settings, |done, what| {
                bar.set_position(done as u64);
                bar.set_message(what.to_owned());
            });
            bar.finish_and_clear();
            match outcome {
                Ok(outcome) => {
                    println!("{outcome}");
                    if !outcome.violations.is_empty() {
                        code = ExitCode::FAILURE;
                    }
                }
                Err(error) => {
                    eprintln!("the run failed: {error}");
                    code = ExitCode::FAILURE;
                }
            }
        }
        code
    }
}
