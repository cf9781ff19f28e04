//! The subcommands of `ringfence-verify`, one file for each.

mod failovers;
mod judge;
mod model;
mod mutants;
mod run;
mod simulate;

use std::process::ExitCode;

use clap::Subcommand;

/// A part of the proof.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Search all states of the protocol's core, or of a variant that is known to be wrong
    Model(model::ModelArgs),
    /// Run real clients on real servers, inject faults, and judge what happened
    Run(run::RunArgs),
    /// The same for a long time, and check that memory, descriptors, threads and keys do not grow
    Soak(run::RunArgs),
    /// Bring about failovers of real Sentinels under real clients, and judge what happened
    Failovers(failovers::FailoversArgs),
    /// Judge the recorded history of a run again
    Judge(judge::JudgeArgs),
    /// One client process of a run
    #[command(hide = true)]
    Client(run::ClientArgs),
    /// Run the product in a simulated world, one schedule after the other
    Simulate(simulate::SimulateArgs),
    /// Break the rules of the product one by one, and check that the tests notice
    Mutants(mutants::MutantsArgs),
}

impl Part {
    /// Runs the part. The exit code is a success if the result is the expected one.
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Model(args) => args.run(),
            Self::Run(args) => args.run(false),
            Self::Soak(args) => args.run(true),
            Self::Failovers(args) => args.run(),
            Self::Judge(args) => args.run(),
            Self::Client(args) => args.run(),
            Self::Simulate(args) => args.run(),
            Self::Mutants(args) => args.run(),
        }
    }
}
