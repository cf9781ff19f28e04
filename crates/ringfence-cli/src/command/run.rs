//! `ringfence run`: a lock for as long as a command runs.

use std::env;
use std::ffi::OsString;

use ringfence::Guard;
use ringfence::time::Timestamp;

use super::{Session, interruptible, take};
use crate::args::Run;
use crate::exit::Exit;
use crate::report::Failure;
use crate::supervise::{
    Ended, Lease, Leftovers, OnLost, Outcome, Schedule, Signals, Work, supervise,
};

/// The environment of the command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";
const FENCE: &str = "RINGFENCE_FENCE";
const NODES: &str = "RINGFENCE_NODES";

pub(super) async fn run(
    session: &Session,
    args: Run,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    warn_of_self_deadlock(session, &args.name);
    let lock = take::lock(session, &args.name, &args.terms)
        .max_hold(args.max_hold)
        .lock_delay(args.lock_delay.unwrap_or_default())
        .hold_at_least(args.hold_at_least.unwrap_or_default());
    let taking = take::take(session, lock, &args.name, &args.terms);
    let guard = match interruptible(signals, taking).await {
        Err(failure) if failure.is_conflict() => {
            return Err(failure.with_exit(Exit::Conflict(args.conflict_exit_code)));
        }
        taken => taken?,
    };
    let (schedule, leftovers) = (args.schedule(), args.leftovers);
    let work = work_under(
        session,
        &guard,
        &args.name,
        args.command,
        schedule,
        leftovers,
    );
    let outcome = supervise(&work, &guard, signals, session.report).await;
    // Looked at before the release, which may itself take longer than the lock would have lasted.
    let lost_unnoticed = guard.check().is_err() && args.on_lost != OnLost::Ignore;
    let released = guard.release().await;
    let outcome = outcome?;
    if outcome.lost {
        return Ok(Exit::Lost(args.lost_exit_code));
    }
    if lost_unnoticed {
        return Err(Failure::new(
            Exit::Lost(args.lost_exit_code),
            format!("lost the lock `{}` before the command had ended", work.lock),
        ));
    }
    if let Err(error) = released {
        // The command was done in time, so its own result stands.
        let lock = &work.lock;
        session.report.warn(&format!("releasing `{lock}`: {error}"));
    }
    Ok(exit_of(outcome))
}

/// The command `argv` as it runs under `guard`.
pub(super) fn work_under(
    session: &Session,
    guard: &Guard,
    name: &str,
    argv: Vec<OsString>,
    schedule: Schedule,
    leftovers: Leftovers,
) -> Work {
    Work {
        schedule,
        leftovers,
        env: vec![
            (NAME, name.to_owned()),
            (TOKEN, guard.receipt().expose()),
            (FENCE, guard.fence().to_string()),
            (NODES, session.nodes.clone()),
        ],
        lock: name.to_owned(),
        argv,
    }
}

impl Lease for Guard {
    fn deadline(&self) -> Timestamp {
        Guard::deadline(self)
    }

    async fn lost(&self) -> String {
        Guard::lost(self).await.to_string()
    }
}

pub(super) fn exit_of(outcome: Outcome) -> Exit {
    match outcome.ended {
        Some(Ended::Code(code)) => Exit::Code(code),
        Some(Ended::Signal(signal)) => Exit::Signal(signal),
        None => Exit::Internal,
    }
}

/// A `run` inside a `run` of the same lock waits for its own parent.
pub(super) fn warn_of_self_deadlock(session: &Session, name: &str) {
    let inherited = |key, value: &str| env::var_os(key).is_some_and(|given| given == *value);
    if inherited(NAME, name) && inherited(NODES, &session.nodes) {
        session.report.warn(&format!(
            "already running under the lock `{name}`: taking it again waits for ourselves"
        ));
    }
}
