//! `ringfence elect`: a command that runs wherever the leader is.

use std::time::Duration;

use super::run::{exit_of, warn_of_self_deadlock, work_under};
use super::{Session, interruptible, take};
use crate::args::Elect;
use crate::exit::{self, Exit};
use crate::report::Failure;
use crate::supervise::{OnLost, Signals, Watchdog, supervise};

pub(super) async fn elect(
    session: &Session,
    args: Elect,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let Elect { job, label } = args;
    let name = &job.name;
    warn_of_self_deadlock(session, name);
    let mut lock = take::lock(session, name, &job.terms)
        .max_hold(job.max_hold)
        .lock_delay(job.lock_delay.unwrap_or_default());
    if let Some(label) = &label {
        lock = lock.label(label);
    }
    loop {
        // It starts while this process stands, so that the command does not wait for it.
        let mut watchdog = Watchdog::start(session.report)?;
        let campaign = take::take(session, lock.clone(), name, &job.terms);
        let guard = match interruptible(signals, campaign).await {
            Err(failure) if failure.is_conflict() => {
                return Err(failure.with_exit(Exit::Conflict(job.conflict_exit_code)));
            }
            elected => elected?,
        };
        let command = job.command.clone();
        let work = work_under(
            session,
            (guard.receipt().expose(), guard.fence()),
            name,
            command,
            job.schedule(OnLost::Term),
            job.leftovers,
        );
        let outcome = supervise(&work, &guard, &mut watchdog, signals, session.report).await?;
        // Looked at before the release, which may itself take longer than the lead would have.
        let lost_unnoticed = !outcome.lost && guard.check().is_err();
        if outcome.lost && outcome.ended.is_some() && !outcome.told_to_end {
            // Not waited for: whatever the nodes still have of it is freed in the background.
            drop(guard);
            // The nodes were there once, so the address is right: an outage is to be outlasted.
            if job.terms.no_quorum_after.is_none() {
                lock = lock.no_quorum_after(Duration::MAX);
            }
            continue;
        }
        let resigned = guard.release().await;
        if outcome.lost {
            return Ok(Exit::Lost(exit::LOST));
        }
        if lost_unnoticed {
            return Err(Failure::new(
                Exit::Lost(exit::LOST),
                format!("lost the lock `{}` before the command had ended", work.lock),
            ));
        }
        if let Err(error) = resigned {
            let lock = &work.lock;
            session.report.warn(&format!("releasing `{lock}`: {error}"));
        }
        return Ok(exit_of(outcome));
    }
}
