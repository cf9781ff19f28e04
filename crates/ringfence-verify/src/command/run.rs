//! `ringfence-verify run` and `soak`: faults on real servers; and the client processes that a run starts.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use ringfence_testkit::Flavor;
use ringfence_verify::faults::{self, ClientProcess, Settings};

/// The arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// For how many minutes to inject faults
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed that decides which faults happen when, and which locks the clients ask for
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many servers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: u8,
    /// Which servers
    #[arg(long, value_enum, default_value_t = FlavorArg::Both)]
    flavor: FlavorArg,
    /// The folder for the histories and the picture
    #[arg(long, default_value = "target/faults")]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FlavorArg {
    Redis,
    Valkey,
    /// Redis and Valkey in turn
    Both,
}

impl FlavorArg {
    pub(super) fn flavors(self) -> Vec<Flavor> {
        match self {
            Self::Redis => vec![Flavor::Redis],
            Self::Valkey => vec![Flavor::Valkey],
            Self::Both => vec![Flavor::Redis, Flavor::Valkey],
        }
    }
}

impl RunArgs {
    /// `soak`: also checks that nothing grows.
    pub(crate) fn run(self, soak: bool) -> ExitCode {
        let Ok(program) = env::current_exe() else {
            eprintln!("cannot find the path of this program, which the client processes need");
            return ExitCode::FAILURE;
        };
        let span = Duration::from_secs_f64(self.minutes.clamp(0.1, 1e4) * 60.0);
        let settings = Settings {
            seed: self.seed,
            span,
            nodes: usize::from(self.nodes),
            flavors: self.flavor.flavors(),
            out: self.out.join(format!("seed-{}", self.seed)),
            program,
            soak,
        };
        let bar = ProgressBar::new(span.as_millis() as u64).with_style(style());
        let outcome = faults::run(&settings, |past, what| {
            bar.set_position(past.as_millis() as u64);
            bar.set_message(what.to_owned());
        });
        bar.finish_and_clear();
        match outcome {
            Ok(outcome) => {
                print!("{outcome}");
                match outcome.violations.is_empty() {
                    true => ExitCode::SUCCESS,
                    false => ExitCode::FAILURE,
                }
            }
            Err(error) => {
                eprintln!("the run failed: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

pub(super) fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:40} {elapsed_precise} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The arguments of one client process.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    number: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    nodes: String,
    #[arg(long)]
    store: String,
    #[arg(long)]
    journal: PathBuf,
    #[arg(long)]
    plain_journal: Option<PathBuf>,
    #[arg(long)]
    blocking: bool,
}

impl ClientArgs {
    pub(crate) fn run(self) -> ExitCode {
        let client = ClientProcess {
            number: self.number,
            seed: self.seed,
            nodes: self.nodes,
            store: self.store,
            journal: self.journal,
            plain_journal: self.plain_journal,
            blocking: self.blocking,
        };
        match client.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("client {}: {error}", client.number);
                ExitCode::FAILURE
            }
        }
    }
}
