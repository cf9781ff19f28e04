//! `ringfence run`: a lock for as long as a command runs.

use super::job::{Running, warn_of_self_deadlock};
use super::{Session, take};
use crate::args::Run;
use crate::exit::Exit;
use crate::lease::Lease;
use crate::report::Failure;
use crate::supervise::Signals;

pub(super) async fn run(
    session: &Session,
    args: Run,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    if args.permits.is_none() {
        warn_of_self_deadlock(session, &args.job.name);
    }
    let taken = taken(session, &args);
    let mut running = Running::wait_for(taken, session, &args.job, args.on_lost, signals).await?;
    let outcome = running.supervise(signals).await;
    running.end(outcome, args.lost_exit_code).await
}

async fn taken(session: &Session, args: &Run) -> Result<Lease, Failure> {
    let (name, terms) = (&args.job.name, &args.job.terms);
    let lock_delay = args.job.lock_delay.unwrap_or_default();
    if let Some(permits) = args.permits {
        let permit = take::semaphore(session, name, permits, terms)
            .max_hold(args.job.max_hold)
            .lock_delay(lock_delay);
        let guard = take::permit(session, permit, name, terms).await?;
        return Ok(guard.into());
    }
    if args.shared {
        let lock = take::shared_lock(session, name, terms).max_hold(args.job.max_hold);
        let guard = take::take_shared(session, lock, name, terms).await?;
        return Ok(guard.into());
    }
    let lock = take::lock(session, name, terms)
        .max_hold(args.job.max_hold)
        .lock_delay(lock_delay)
        .hold_at_least(args.hold_at_least.unwrap_or_default());
    let guard = take::take(session, lock, name, terms).await?;
    Ok(guard.into())
}
