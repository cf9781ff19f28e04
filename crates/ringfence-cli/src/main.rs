//! `ringfence`: distributed locks from the command line.
//!
//! `main` reads the arguments, `command` does what they say with the library, `supervise` looks
//! after a command that runs under a lock, `exit` and `report` tell the outcome.

mod args;
mod command;
mod duration;
mod exit;
mod help;
mod lease;
mod nodes;
mod report;
mod supervise;

use std::io::{self, Write};
use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Global};
use crate::exit::Exit;
use crate::report::{CliFailure, Report, printable};

fn main() -> ExitCode {
    if let Some(exit) = supervise::run_if_started_for_it() {
        return exit.into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let report = Report {
        json: cli.global.json,
        quiet: cli.global.quiet,
    };
    trace(&cli.global);
    let exit = match catch_unwind(|| run(cli, report)) {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            report.failure(&failure);
            failure.exit
        }
        // The panic has said what it had to; its exit code 101 could be a command's own.
        Err(_) => Exit::Internal,
    };
    if let Exit::Interrupted(signal, typed) = exit {
        // Returns only if it fails, and then the exit code tells what can be told.
        let _ = supervise::die_of(signal, typed);
    }
    exit.into()
}

fn run(cli: Cli, report: Report) -> Result<Exit, CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(command::run(cli, report));
    // A host whose name is still being looked up must not keep us from leaving.
    runtime.shutdown_background();
    done
}

/// Asking for help is no error; what clap calls one exits 2, which here is a command's own code.
fn usage(error: &clap::Error) -> Exit {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let message = error.render().to_string();
    if !is_help && json_was_asked_for() {
        let report = Report {
            json: true,
            quiet: false,
        };
        report.failure(&CliFailure::usage(message.trim_end()));
    } else if printable(&message) != message {
        // An argument that it quotes would reach the terminal as it is.
        let _ = writeln!(io::stderr(), "{}", printable(&message).trim_end());
    } else {
        // Nothing can be done about a closed stdout or stderr.
        let _ = error.print();
    }
    if is_help { Exit::Success } else { Exit::Usage }
}

/// Whether `--json` stands among our own arguments, which could not be parsed.
fn json_was_asked_for() -> bool {
    std::env::args_os()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}

/// The library says what happens through `tracing`; `-v` lets it be seen.
fn trace(global: &Global) {
    let level = match global.verbose {
        0 => return,
        1 => "ringfence=debug",
        _ => "trace",
    };
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(std::io::stderr)
        .init();
}
