//! What can be asked of the proof, one file for each part of it.

mod model;

use std::process::ExitCode;

use clap::Subcommand;

/// A part of the proof.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Searches every state of the protocol's core, or of a variant that is known to be wrong.
    Model(model::Args),
}

impl Part {
    /// Runs it. The code says whether what was found is what should be.
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Model(args) => args.run(),
        }
    }
}
