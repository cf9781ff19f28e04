//! `ringfence elect`: a command that runs wherever the leader is.

use std::time::Duration;

use super::job::{Running, warn_of_self_deadlock};
use super::{Session, take};
use crate::args::Elect;
use crate::exit::{self, Exit};
use crate::lease::Lease;
use crate::report::Failure;
use crate::supervise::{OnLost, Outcome, Signals};

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
        let campaign = async {
            let guard = take::take(session, lock.clone(), name, &job.terms).await?;
            Ok(Lease::from(guard))
        };
        let mut running = Running::wait_for(campaign, session, &job, OnLost::Term, signals).await?;
        let outcome = running.supervise(signals).await;
        let stands_again =
            |outcome: &Outcome| outcome.lost && outcome.ended.is_some() && !outcome.told_to_end;
        if !outcome.as_ref().is_ok_and(stands_again) {
            return running.end(outcome, exit::LOST).await;
        }
        // Not waited for: whatever the nodes still have of it is freed in the background.
        drop(running);
        // The nodes were there once, so the address is right: an outage is to be outlasted.
        if job.terms.no_quorum_after.is_none() {
            lock = lock.no_quorum_after(Duration::MAX);
        }
    }
}
