//! `ringfence run`: holds a lock while a command runs.

use super::CommandContext;
use super::job::{self, Running, warn_of_self_deadlock};
use super::take::{TakeRequest, take};
use crate::args::RunArgs;
use crate::exit::Exit;
use crate::lease::Lease;
use crate::report::CliFailure;
use crate::supervise::Signals;

pub(super) async fn run(
    context: &CommandContext,
    args: RunArgs,
    signals: &mut Signals,
) -> Result<Exit, CliFailure> {
    if args.kind.permits.is_none() {
        warn_of_self_deadlock(context, &args.job.name);
    }
    let taken = taken(context, &args);
    let mut running = Running::wait_for(taken, context, &args.job, args.on_lost, signals).await?;
    let outcome = running.supervise(signals).await;
    running.end(outcome, args.lost_exit_code).await
}

async fn taken(context: &CommandContext, args: &RunArgs) -> Result<Lease, CliFailure> {
    let job = &args.job;
    let label = args.label.clone().unwrap_or_else(|| job::label(job));
    let request = TakeRequest {
        name: &job.name,
        terms: &job.terms,
        kind: &args.kind,
        lock_delay: job.lock_delay.unwrap_or_default(),
        max_hold: job.max_hold,
        label: Some(&label),
        renew: true,
    };
    Ok(take(context, request).await?.into())
}
