//! A command under a lock: what `run` and `elect` have in common.

use std::future::Future;
use std::{env, io};

use super::{Session, interruptible};
use crate::args::Job;
use crate::exit::Exit;
use crate::lease::Lease;
use crate::report::{Failure, one_line};
use crate::supervise::{Ended, OnLost, Outcome, Signals, Watchdog, Work, supervise};

/// The environment of the command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";
const FENCE: &str = "RINGFENCE_FENCE";
const SLOT: &str = "RINGFENCE_SLOT";

/// A command and the lock that it holds.
pub(super) struct Running<'a> {
    session: &'a Session,
    lease: Lease,
    work: Work,
    watchdog: Watchdog,
}

impl<'a> Running<'a> {
    /// Waits until `taken` has the lock of `job`. What happens if the lock is lost later is up to
    /// `on_lost`.
    pub(super) async fn wait_for(
        taken: impl Future<Output = Result<Lease, Failure>>,
        session: &'a Session,
        job: &Job,
        on_lost: OnLost,
        signals: &mut Signals,
    ) -> Result<Self, Failure> {
        // It starts while the nodes are asked, so that the command does not wait for it.
        let watchdog = Watchdog::start(session.report)?;
        let lease = match interruptible(signals, taken).await {
            Err(failure) if failure.is_conflict() => {
                return Err(failure.with_exit(Exit::Conflict(job.conflict_exit_code)));
            }
            taken => taken?,
        };
        let work = Work {
            lock: one_line(&job.name),
            argv: job.command.clone(),
            env: environment(session, &lease, &job.name),
            schedule: job.schedule(on_lost),
            leftovers: job.leftovers,
        };
        Ok(Self {
            session,
            lease,
            work,
            watchdog,
        })
    }

    /// Runs the command until nothing of it is left.
    pub(super) async fn supervise(&mut self, signals: &mut Signals) -> io::Result<Outcome> {
        let report = self.session.report;
        supervise(&self.work, &self.lease, &mut self.watchdog, signals, report).await
    }

    /// Frees the lock. A lock that was lost exits with `lost_exit_code`.
    pub(super) async fn end(
        self,
        outcome: io::Result<Outcome>,
        lost_exit_code: u8,
    ) -> Result<Exit, Failure> {
        let lock = &self.work.lock;
        let ignores_loss = self.work.schedule.on_lost() == OnLost::Ignore;
        // Looked at before the release, which may itself take longer than the lock would have
        // lasted.
        let lost_unnoticed = !ignores_loss && self.lease.check().is_err();
        let released = self.lease.release().await;
        let outcome = outcome?;
        if outcome.lost {
            return Ok(Exit::Lost(lost_exit_code));
        }
        if lost_unnoticed {
            return Err(Failure::new(
                Exit::Lost(lost_exit_code),
                format!("lost the lock `{lock}` before the command had ended"),
            ));
        }
        if let Err(error) = released {
            // The command was done in time, so its own result stands.
            let report = self.session.report;
            report.warn(&format!("releasing `{lock}`: {error}"));
        }
        Ok(exit_of(outcome))
    }
}

/// What the command sees of the lock `name`.
fn environment(session: &Session, lease: &Lease, name: &str) -> Vec<(&'static str, String)> {
    let mut env = vec![
        (NAME, name.to_owned()),
        (TOKEN, lease.token().to_owned()),
        (FENCE, lease.fence().to_string()),
        session.nodes.env(),
    ];
    env.extend(session.nodes.password_env());
    env.extend(lease.slot().map(|slot| (SLOT, slot.to_string())));
    env
}

fn exit_of(outcome: Outcome) -> Exit {
    match (outcome.ended, outcome.typed) {
        (Some(Ended::Code(code)), _) => Exit::Code(code),
        (Some(Ended::Signal(signal)), Some(typed)) => Exit::Interrupted(signal, typed),
        (Some(Ended::Signal(signal)), None) => Exit::Signal(signal),
        (None, _) => Exit::Internal,
    }
}

/// A `run` inside a `run` of the same lock waits for its own parent.
pub(super) fn warn_of_self_deadlock(session: &Session, name: &str) {
    let inherited = |key, value: &str| env::var_os(key).is_some_and(|given| given == *value);
    let (nodes, which) = session.nodes.env();
    if inherited(NAME, name) && inherited(nodes, &which) {
        let name = one_line(name);
        session.report.warn(&format!(
            "already running under the lock `{name}`: taking it again waits for ourselves"
        ));
    }
}
