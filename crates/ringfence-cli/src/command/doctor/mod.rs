//! `ringfence doctor`: checks the nodes, and reports what is wrong and what to do. Changes nothing
//! unless `--try` is given.
//!
//! The library collects facts (`Builder::examine`). `diagnosis.rs` turns them into findings, with
//! `server.rs`, `rights.rs`, `file.rs` and `cluster.rs`. `page.rs` formats the findings. With `--try`, `trial.rs` takes a lock.

mod cluster;
mod diagnosis;
mod durability;
mod file;
mod finding;
mod page;
mod rights;
mod server;
mod service;
#[cfg(test)]
mod tests;
mod trial;

use std::io::{self, IsTerminal};

use ringfence::Locks;

use crate::args::DoctorArgs;
use crate::exit::Exit;
use crate::report::{CliFailure, Report, wants_colour};

use diagnosis::Diagnosis;
use finding::FindingVerdict;
use page::Style;

/// Exits 1 if there is a problem, so that a monitor does not have to parse the output.
pub(super) async fn doctor(
    args: DoctorArgs,
    nodes: &str,
    report: Report,
) -> Result<Exit, CliFailure> {
    let name = args.name.as_deref();
    let builder = Locks::builder().nodes(nodes);
    let found = builder.examine_replica_clocks(args.replicas);
    let found = found.examine(name).await?;
    let mut diagnosis = Diagnosis::of(&found, name);
    if args.try_lock {
        let tried = trial::take_lock(nodes, name, diagnosis.has_quorum()).await;
        diagnosis.add_trial(tried);
    }
    let style = Style {
        colour: io::stdout().is_terminal() && wants_colour(),
        quiet: report.quiet,
    };
    let text = page::render(&diagnosis, style);
    report.result(&text, &page::json(&diagnosis, &found))?;
    Ok(match diagnosis.verdict() {
        FindingVerdict::Problem => Exit::Problem,
        FindingVerdict::Ok | FindingVerdict::Note | FindingVerdict::Warning => Exit::Success,
    })
}
