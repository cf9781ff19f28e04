//! The command line of the proof: one subcommand for each part.

mod command;

use std::process::ExitCode;

use clap::Parser;

/// Proves that ringfence keeps its promises, or shows how it does not.
#[derive(Debug, Parser)]
#[command(name = "ringfence-verify", version)]
struct Cli {
    #[command(subcommand)]
    part: command::Part,
}

fn main() -> ExitCode {
    Cli::parse().part.run()
}
