//! `ringfence run`: a lock for as long as a command runs.

use std::env;
use std::ffi::OsString;

use super::held::Held;
use super::{Session, interruptible, take};
use crate::args::Run;
use crate::exit::Exit;
use crate::report::Failure;
use crate::supervise::{Ended, Leftovers, OnLost, Outcome, Schedule, Signals, Work, supervise};

/// The environment of the command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";
const FENCE: &str = "RINGFENCE_FENCE";
const SLOT: &str = "RINGFENCE_SLOT";
const NODES: &str = "RINGFENCE_NODES";

pub(super) async fn run(
    session: &Session,
    args: Run,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let guard = match interruptible(signals, take(session, &args)).await {
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

/// Takes the lock, or a permit of the semaphore.
async fn take(session: &Session, args: &Run) -> Result<Held, Failure> {
    if let Some(permits) = args.permits {
        let permit = take::semaphore(session, &args.name, permits, &args.terms);
        let permit = permit.max_hold(args.max_hold);
        let taken = take::permit(session, permit, &args.name, &args.terms).await?;
        return Ok(Held::Permit(taken));
    }
    warn_of_self_deadlock(session, &args.name);
    let lock = take::lock(session, &args.name, &args.terms)
        .max_hold(args.max_hold)
        .lock_delay(args.lock_delay.unwrap_or_default())
        .hold_at_least(args.hold_at_least.unwrap_or_default());
    let taken = take::take(session, lock, &args.name, &args.terms).await?;
    Ok(Held::Lock(taken))
}

/// The command `argv` as it runs under `guard`.
pub(super) fn work_under(
    session: &Session,
    guard: &Held,
    name: &str,
    argv: Vec<OsString>,
    schedule: Schedule,
    leftovers: Leftovers,
) -> Work {
    let slot = guard.slot().map(|slot| (SLOT, slot.to_string()));
    let env = [
        (NAME, name.to_owned()),
        (TOKEN, guard.token()),
        (FENCE, guard.fence().to_string()),
        (NODES, session.nodes.clone()),
    ];
    Work {
        schedule,
        leftovers,
        env: env.into_iter().chain(slot).collect(),
        lock: name.to_owned(),
        argv,
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
