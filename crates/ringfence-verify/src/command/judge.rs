//! `ringfence-verify judge`: checks the invariants on a recorded history again.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_verify::faults;
use ringfence_verify::history::History;
use ringfence_verify::invariants::liveness;

/// The arguments of `judge`.
#[derive(Debug, clap::Args)]
pub(crate) struct JudgeArgs {
    /// A history as JSON lines, such as the `history.jsonl` of a run.
    history: PathBuf,
}

impl JudgeArgs {
    pub(crate) fn run(self) -> ExitCode {
        let read = fs::read_to_string(&self.history).map_err(|error| error.to_string());
        let history = read.and_then(|text| {
            History::from_json_lines(&text).map_err(|bad_line| bad_line.to_string())
        });
        let history = match history {
            Ok(history) => history,
            Err(why) => {
                eprintln!("{}: {why}", self.history.display());
                return ExitCode::FAILURE;
            }
        };
        let (groups, violations) = faults::judge(&history);
        for violation in &violations {
            println!("VIOLATION: {violation}");
        }
        if let Some(open) = liveness::not_judged(&history) {
            println!("incomplete history: the ends of {open} open calls were not checked");
        }
        let (events, found) = (history.events.len(), violations.len());
        println!("{events} events, {groups} groups of grants, {found} violations");
        match violations.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}
