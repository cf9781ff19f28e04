//! `ringfence run`: a lock for as long as a command runs.

use std::env;
use std::ffi::OsString;

use ringfence::time::Timestamp;
use ringfence::{Guard, Lost, ReadGuard, ReleaseError, SemaphoreGuard};

use super::{Session, interruptible, take};
use crate::args::Run;
use crate::exit::Exit;
use crate::report::{Failure, one_line};
use crate::supervise::{
    Ended, Lease, Leftovers, OnLost, Outcome, Schedule, Signals, Watchdog, Work, supervise,
};

/// The environment of the command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";
const FENCE: &str = "RINGFENCE_FENCE";
const SLOT: &str = "RINGFENCE_SLOT";

pub(super) async fn run(
    session: &Session,
    args: Run,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    if args.permits.is_none() {
        warn_of_self_deadlock(session, &args.job.name);
    }
    // It starts while the nodes are asked, so that the command does not wait for it.
    let mut watchdog = Watchdog::start(session.report)?;
    let guard = match interruptible(signals, taken(session, &args)).await {
        Err(failure) if failure.is_conflict() => {
            return Err(failure.with_exit(Exit::Conflict(args.job.conflict_exit_code)));
        }
        taken => taken?,
    };
    let (schedule, leftovers) = (args.job.schedule(args.on_lost), args.job.leftovers);
    let mut work = work_under(
        session,
        (guard.token(), guard.fence()),
        &args.job.name,
        args.job.command,
        schedule,
        leftovers,
    );
    work.env
        .extend(guard.slot().map(|slot| (SLOT, slot.to_string())));
    let outcome = supervise(&work, &guard, &mut watchdog, signals, session.report).await;
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

/// The command `argv` as it runs under the lock `name` with this token and fence.
pub(super) fn work_under(
    session: &Session,
    (token, fence): (String, u64),
    name: &str,
    argv: Vec<OsString>,
    schedule: Schedule,
    leftovers: Leftovers,
) -> Work {
    let mut env = vec![
        (NAME, name.to_owned()),
        (TOKEN, token),
        (FENCE, fence.to_string()),
        session.nodes.env(),
    ];
    env.extend(session.nodes.password_env());
    Work {
        schedule,
        leftovers,
        env,
        lock: one_line(name),
        argv,
    }
}

async fn taken(session: &Session, args: &Run) -> Result<Held, Failure> {
    let (name, terms) = (&args.job.name, &args.job.terms);
    if let Some(permits) = args.permits {
        let permit = take::semaphore(session, name, permits, terms)
            .max_hold(args.job.max_hold)
            .lock_delay(args.job.lock_delay.unwrap_or_default());
        let guard = take::permit(session, permit, name, terms).await?;
        return Ok(Held::Permit(guard));
    }
    if args.shared {
        let lock = take::shared_lock(session, name, terms).max_hold(args.job.max_hold);
        let guard = take::take_shared(session, lock, name, terms).await?;
        return Ok(Held::Shared(guard));
    }
    let lock = take::lock(session, name, terms)
        .max_hold(args.job.max_hold)
        .lock_delay(args.job.lock_delay.unwrap_or_default())
        .hold_at_least(args.hold_at_least.unwrap_or_default());
    let guard = take::take(session, lock, name, terms).await?;
    Ok(Held::Alone(guard))
}

/// The lock while the command runs.
enum Held {
    Alone(Guard),
    Shared(ReadGuard),
    Permit(SemaphoreGuard),
}

impl Held {
    fn fence(&self) -> u64 {
        match self {
            Self::Alone(guard) => guard.fence(),
            Self::Shared(guard) => guard.fence(),
            Self::Permit(guard) => guard.fence(),
        }
    }

    fn token(&self) -> String {
        match self {
            Self::Alone(guard) => guard.receipt().expose(),
            Self::Shared(guard) => format!("{}.{}", guard.token().expose(), guard.fence()),
            Self::Permit(guard) => format!("{}.{}", guard.token().expose(), guard.fence()),
        }
    }

    /// Which slot of a semaphore it is.
    fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            Self::Alone(_) | Self::Shared(_) => None,
        }
    }

    fn check(&self) -> Result<(), Lost> {
        match self {
            Self::Alone(guard) => guard.check(),
            Self::Shared(guard) => guard.check(),
            Self::Permit(guard) => guard.check(),
        }
    }

    async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
        }
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

impl Lease for Held {
    fn deadline(&self) -> Timestamp {
        match self {
            Self::Alone(guard) => guard.deadline(),
            Self::Shared(guard) => guard.deadline(),
            Self::Permit(guard) => guard.deadline(),
        }
    }

    async fn lost(&self) -> String {
        let why = match self {
            Self::Alone(guard) => guard.lost().await,
            Self::Shared(guard) => guard.lost().await,
            Self::Permit(guard) => guard.lost().await,
        };
        why.to_string()
    }
}

pub(super) fn exit_of(outcome: Outcome) -> Exit {
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
