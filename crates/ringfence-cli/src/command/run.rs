//! `ringfence run`: holds a lock while a command runs.

use super::job::{self, Running, warn_of_self_deadlock};
use super::{CommandContext, take};
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
    if args.permits.is_none() {
        warn_of_self_deadlock(context, &args.job.name);
    }
    let taken = taken(context, &args);
    let mut running = Running::wait_for(taken, context, &args.job, args.on_lost, signals).await?;
    let outcome = running.supervise(signals).await;
    running.end(outcome, args.lost_exit_code).await
}

async fn taken(context: &CommandContext, args: &RunArgs) -> Result<Lease, CliFailure> {
    let (name, terms) = (&args.job.name, &args.job.terms);
    let lock_delay = args.job.lock_delay.unwrap_or_default();
    let label = args.label.clone().unwrap_or_else(|| job::label(&args.job));
    if let Some(permits) = args.permits {
        let permit = take::semaphore(context, name, permits, terms)
            .label(&label)
            .max_hold(args.job.max_hold)
            .lock_delay(lock_delay);
        let guard = take::permit(context, permit, name, terms).await?;
        return Ok(guard.into());
    }
    if args.shared {
        let lock = take::shared_lock(context, name, terms)
            .label(&label)
            .max_hold(args.job.max_hold);
        let guard = take::take_shared(context, lock, name, terms).await?;
        return Ok(guard.into());
    }
    let lock = take::lock(context, name, terms)
        .label(&label)
        .max_hold(args.job.max_hold)
        .lock_delay(lock_delay)
        .hold_at_least(args.hold_at_least.unwrap_or_default());
    let guard = take::take(context, lock, name, terms).await?;
    Ok(guard.into())
}
