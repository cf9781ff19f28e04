//! `ringfence run` and `elect`: a command under a lock.

use std::future::Future;
use std::path::Path;
use std::time::Duration;
use std::{env, io};

use super::take::{TakeRequest, election, lead, take};
use super::{CommandContext, interruptible, leader, until_signal};
use crate::args::{ElectArgs, JobArgs, RunArgs};
use crate::exit::{self, Exit};
use crate::lease::Lease;
use crate::report::{CliFailure, one_line};
use crate::supervise::{
    CommandOutcome, Ended, OnLost, Signals, SupervisedCommand, Watchdog, supervise,
};

/// The environment of the command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";
const FENCE: &str = "RINGFENCE_FENCE";
const SLOT: &str = "RINGFENCE_SLOT";

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
    let label = args.label.clone().unwrap_or_else(|| label(job));
    let request = TakeRequest {
        names: std::slice::from_ref(&job.name),
        terms: &job.terms,
        kind: &args.kind,
        lock_delay: job.lock_delay.unwrap_or_default(),
        max_hold: job.max_hold,
        label: Some(&label),
        renew: true,
    };
    Ok(take(context, request).await?.into_lease())
}

pub(super) async fn elect(
    context: &CommandContext,
    args: ElectArgs,
    signals: &mut Signals,
) -> Result<Exit, CliFailure> {
    let ElectArgs { job, label, http } = args;
    let name = &job.name;
    warn_of_self_deadlock(context, name);
    let mut candidate = election(context, name, &job.terms)
        .max_hold(job.max_hold)
        .lock_delay(job.lock_delay.unwrap_or_default());
    if let Some(label) = &label {
        candidate = candidate.label(label);
    }
    if let Some(address) = http {
        let answers = leader::answer_on(address, context, candidate, name, &job.terms);
        return until_signal(signals, answers).await;
    }
    loop {
        let campaign = async {
            let leads = lead(context, &candidate, name, &job.terms).await?;
            let receipt = leads.receipt();
            Ok(Lease::new(leads, &receipt, None))
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
            candidate = candidate.no_quorum_after(Duration::MAX);
        }
    }
}

/// A command and the lock that it holds.
struct Running<'a> {
    context: &'a CommandContext,
    lease: Lease,
    work: SupervisedCommand,
    watchdog: Watchdog,
}

impl<'a> Running<'a> {
    /// Waits until `taken` has acquired the lock of `job`. `on_lost` decides what happens if the
    /// lock is lost later.
    async fn wait_for(
        taken: impl Future<Output = Result<Lease, CliFailure>>,
        context: &'a CommandContext,
        job: &JobArgs,
        on_lost: OnLost,
        signals: &mut Signals,
    ) -> Result<Self, CliFailure> {
        let watchdog = match context.watchdog.take() {
            Some(watchdog) => watchdog,
            // While the nodes answer, so that the command does not have to wait for it.
            None => Watchdog::start(context.report, &job.command)?,
        };
        let lease = match interruptible(signals, taken).await {
            Err(failure) if failure.is_conflict() => {
                return Err(failure.with_exit(Exit::Conflict(job.conflict_exit_code)));
            }
            taken => taken?,
        };
        if let Some(metrics) = &context.metrics {
            metrics.write_now();
        }
        lease.tell_absent_nodes(context.report);
        let work = SupervisedCommand {
            lock: one_line(&job.name),
            env: environment(context, &lease, &job.name),
            schedule: job.schedule(on_lost),
            leftovers: job.leftovers,
        };
        Ok(Self {
            context,
            lease,
            work,
            watchdog,
        })
    }

    /// Runs the command until it and all processes that must end with it have ended.
    async fn supervise(&mut self, signals: &mut Signals) -> io::Result<CommandOutcome> {
        let report = self.context.report;
        supervise(&self.work, &self.lease, &mut self.watchdog, signals, report).await
    }

    /// Releases the lock. If it was lost, ringfence exits with `lost_exit_code`.
    async fn end(
        self,
        outcome: io::Result<CommandOutcome>,
        lost_exit_code: u8,
    ) -> Result<Exit, CliFailure> {
        let lock = &self.work.lock;
        let ignores_loss = self.work.schedule.on_lost() == OnLost::Ignore;
        // Check before the release: it may take longer than the remaining time of the lock.
        let lost_unnoticed = !ignores_loss && self.lease.check().is_err();
        let released = self.lease.release().await;
        if released.is_ok() {
            self.context.report.tell(&format!("released `{lock}`"));
        }
        let outcome = outcome?;
        if outcome.lost {
            return Ok(Exit::Lost(lost_exit_code));
        }
        if lost_unnoticed {
            return Err(CliFailure::new(
                Exit::Lost(lost_exit_code),
                format!("lost the lock `{lock}` before the command had ended"),
            ));
        }
        if let Err(error) = released {
            // The command ended in time, so its own exit code counts.
            let report = self.context.report;
            report.warn(&format!("releasing `{lock}`: {error}"));
        }
        Ok(exit_of(outcome))
    }
}

/// The label of a holder that has none of its own: host, process number, and the name of the
/// command. A label may have 128 bytes.
fn label(job: &JobArgs) -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let program = job.command.first().map(Path::new).and_then(Path::file_name);
    let program = program.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let cut = |text: &str, most: usize| -> String {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= most).last().unwrap_or(0);
        text[..end].to_owned()
    };
    format!(
        "{}:{}:{}",
        cut(&host, 64),
        std::process::id(),
        cut(&program, 48)
    )
}

/// Finding the processes of the command needs `/proc`. Without it, they could not be ended before
/// the lock is lost.
pub(super) fn check_processes() -> Result<(), CliFailure> {
    if cfg!(target_os = "linux") && !Path::new("/proc/self/stat").exists() {
        return Err(CliFailure::usage(
            "/proc is not mounted, so ringfence cannot find the processes of the command to end \
             them before the lock is lost: mount it (`mount -t proc proc /proc`)",
        ));
    }
    Ok(())
}

/// The variables that tell the command about the lock `name`.
fn environment(context: &CommandContext, lease: &Lease, name: &str) -> Vec<(&'static str, String)> {
    let mut env = vec![
        (NAME, name.to_owned()),
        (TOKEN, lease.token().to_owned()),
        (FENCE, lease.fence().to_string()),
    ];
    env.extend(context.nodes.env());
    env.extend(lease.slot().map(|slot| (SLOT, slot.to_string())));
    env
}

fn exit_of(outcome: CommandOutcome) -> Exit {
    match (outcome.ended, outcome.typed) {
        (Some(Ended::Code(code)), _) => Exit::Code(code),
        (Some(Ended::Signal(signal)), Some(typed)) => Exit::Interrupted(signal, typed),
        (Some(Ended::Signal(signal)), None) => Exit::Signal(signal),
        (None, _) => Exit::Internal,
    }
}

/// Warns of a `run` inside a `run` of the same lock: it would wait for its own parent.
fn warn_of_self_deadlock(context: &CommandContext, name: &str) {
    let inherited = |key: &str, value: &str| env::var_os(key).is_some_and(|given| given == *value);
    let nodes = context.nodes.env();
    let same_nodes = nodes.iter().all(|(key, value)| inherited(key, value));
    if inherited(NAME, name) && same_nodes {
        let name = one_line(name);
        context.report.warn(&format!(
            "already running under the lock `{name}`: taking it again would wait for its own parent"
        ));
    }
}
