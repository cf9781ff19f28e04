//! `ringfence elect`: runs a command while this process is the leader.

use std::time::Duration;

use super::job::{Running, warn_of_self_deadlock};
use super::{CommandContext, take};
use crate::args::ElectArgs;
use crate::exit::{self, Exit};
use crate::lease::Lease;
use crate::report::CliFailure;
use crate::supervise::{CommandOutcome, OnLost, Signals};

pub(super) async fn elect(
    context: &CommandContext,
    args: ElectArgs,
    signals: &mut Signals,
) -> Result<Exit, CliFailure> {
    let ElectArgs { job, label } = args;
    let name = &job.name;
    warn_of_self_deadlock(context, name);
    let mut election = take::election(context, name, &job.terms)
        .max_hold(job.max_hold)
        .lock_delay(job.lock_delay.unwrap_or_default());
    if let Some(label) = &label {
        election = election.label(label);
    }
    loop {
        let campaign = async {
            let lead = take::lead(context, &election, name, &job.terms).await?;
            Ok(Lease::from(lead))
        };
        let mut running = Running::wait_for(campaign, context, &job, OnLost::Term, signals).await?;
        let outcome = running.supervise(signals).await;
        let campaigns_again = |outcome: &CommandOutcome| {
            outcome.lost && outcome.ended.is_some() && !outcome.told_to_end
        };
        if !outcome.as_ref().is_ok_and(campaigns_again) {
            return running.end(outcome, exit::LOST).await;
        }
        // Do not wait: the lock is released in the background on nodes that still have it.
        drop(running);
        // The nodes have answered before, so the addresses are right: wait until the outage ends.
        if job.terms.no_quorum_after.is_none() {
            election = election.no_quorum_after(Duration::MAX);
        }
    }
}
