//! `ringfence`: distributed locks from the command line.
//!
//! `main` parses the arguments, `command` executes them with the library, `supervise` runs a
//! command under a lock, and `exit` and `report` deliver the result.

// `fuzz/` builds this file as a fuzzer of what the command line reads.
#![cfg_attr(fuzzing, no_main, allow(dead_code))]

mod args;
mod command;
mod completion;
mod config;
mod dashboard;
mod duration;
mod exit;
#[cfg(any(test, fuzzing))]
mod fuzz_inputs;
mod help;
mod http;
mod lease;
mod manual;
mod metrics_file;
mod nodes;
mod report;
mod row;
mod secret;
mod serve;
mod supervise;
#[cfg(test)]
mod tests;
mod trace;

use std::io::{self, Write};
use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::Cli;
use crate::exit::Exit;
use crate::report::{CliFailure, Report, printable};

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_inputs::any(data));

fn main() -> ExitCode {
    if let Some(exit) = supervise::run_if_internal() {
        return exit.into();
    }
    completion::complete_if_asked();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let report = Report {
        json: cli.global.json,
        quiet: cli.global.quiet,
        verbose: cli.global.verbose > 0,
    };
    trace::show(&cli.global);
    let exit = match catch_unwind(|| run(cli, report)) {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            report.failure(&failure);
            failure.exit
        }
        // The panic handler has printed the message. Its usual exit code, 101, could be mistaken
        // for the exit code of the command.
        Err(_) => Exit::Internal,
    };
    if let Exit::Interrupted(signal, typed) = exit {
        // Returns only if it fails. Then the exit code is all that we can report.
        let _ = supervise::die_of(signal, typed);
    }
    exit.into()
}

fn run(cli: Cli, report: Report) -> Result<Exit, CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(command::run(cli, report));
    // Do not wait for a DNS lookup that still runs.
    runtime.shutdown_background();
    done
}

/// Prints what clap reports: help with exit code 0, or a usage error. clap would exit with 2, which
/// could be mistaken for the exit code of the command.
fn usage(error: &clap::Error) -> Exit {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let message = error.render().to_string();
    if !is_help && json_was_asked_for() {
        let report = Report {
            json: true,
            ..Report::default()
        };
        report.failure(&CliFailure::usage(message.trim_end()));
    } else if printable(&message) != message {
        // It quotes an argument, whose control characters must not reach the terminal.
        let _ = writeln!(io::stderr(), "{}", printable(&message).trim_end());
    } else {
        // Ignore a closed stdout or stderr.
        let _ = error.print();
    }
    if is_help { Exit::Success } else { Exit::Usage }
}

/// Whether `--json` is among our own arguments. They could not be parsed, so look at the raw list.
fn json_was_asked_for() -> bool {
    std::env::args_os()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}
