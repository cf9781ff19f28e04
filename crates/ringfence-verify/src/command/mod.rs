//! What can be asked of the proof, one file for each part of it.

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
    /// Searches every state of the protocol's core, or of a variant that is known to be wrong.
    Model(model::Args),
    /// Runs real clients on real servers under faults, and judges what happened.
    Run(run::Args),
    /// Judges the history of a run again.
    Judge(judge::Args),
    /// One client process of a run.
    #[command(hide = true)]
    Client(run::ClientArgs),
    /// Runs the product in a simulated world, schedule after schedule.
    Simulate(simulate::Args),
    /// Breaks one rule of the product after the other, and sees that the tests notice.
    Mutants(mutants::Args),
}

impl Part {
    /// Runs it. The code says whether what was found is what should be.
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Model(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Judge(args) => args.run(),
            Self::Client(args) => args.run(),
            Self::Simulate(args) => args.run(),
            Self::Mutants(args) => args.run(),
        }
    }
}
