//! Who carries out the jobs of a file. The node's thread puts all waiting jobs into one transaction,
//! so that they share one write to the disk.
//!
//! If the node is idle and nothing has to be waited for, the thread of the caller does it: to hand a
//! job to the node's thread and its answer back takes two wake-ups of a sleeping thread, which is
//! longer than the transaction. The caller may be a thread of a tokio runtime, so a job is handed
//! over to the node's thread if it needs a sync, if another process has locked the file, or if it
//! reads many rows. A job never overtakes one that was sent before: it is carried out by its caller
//! only if all of those are done, and one that is handed over goes before those that came after it.

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::{iter, mem, slice};

use crate::message::{Act, Op, Wake};
use crate::node::CallError;
use crate::node::backlog::Backlog;
use crate::node::embedded::{Answered, Job};

use super::pending::Pending;
use super::store::{BeginError, SqliteStore, Transaction};
use super::sync::Durability;
use super::wake_socket::WakeSockets;

/// The most calls in one transaction: enough to share a write, few enough to let other processes
/// in.
const BATCH_MAX: usize = 256;

/// How many attempts to begin a transaction may fail before all its jobs fail. Each attempt takes
/// as long as SQLite itself waits. Expired calls are answered earlier.
const BEGIN_MAX: usize = 200;

/// A message to the node's thread.
pub(super) enum WorkerMessage {
    Job(Job),
    /// There is something to do at the desk.
    Look,
}

/// Carries out jobs until all clones of the node are dropped.
pub(super) fn run(
    desk: &Desk,
    wake_sockets: &WakeSockets,
    inbox: &Receiver<WorkerMessage>,
    pending: &Pending,
) {
    let mut backlog = Backlog::default();
    loop {
        // Without a lock: this may take long.
        let message = match backlog.len {
            0 => match inbox.recv() {
                Ok(message) => Some(message),
                Err(_) => break,
            },
            _ => None,
        };
        let mut work = desk.lock();
        let handed_over = mem::take(&mut work.first);
        let (batch, withdrawn) = next_batch(&mut backlog, handed_over, message, inbox);
        let count = batch.len();
        let (answered, wakes, crowded) = carry_out(&work.store, batch);
        work.crowded = crowded || count > 1;
        drop(work);
        pending.end(count + withdrawn);
        // Wakes first: waiters are idle until they arrive.
        wake_sockets.send(wakes);
        for answered in answered {
            answered.deliver();
        }
        copy_log(desk);
    }
}

fn copy_log(desk: &Desk) {
    let work = desk.lock();
    if work.store.copy_due.get() {
        work.store.copy_long_log();
    }
}

/// The jobs of the next transaction: all that wait, or if there are too many, releases first. Jobs
/// that were handed over were sent before those in the inbox, of which `message` is the first. Also
/// returns how many jobs were withdrawn because their callers have given up.
fn next_batch(
    backlog: &mut Backlog<Job>,
    handed_over: Vec<Job>,
    message: Option<WorkerMessage>,
    inbox: &Receiver<WorkerMessage>,
) -> (Vec<Job>, usize) {
    let sent = message.into_iter().chain(inbox.try_iter());
    for message in handed_over.into_iter().map(WorkerMessage::Job).chain(sent) {
        if let WorkerMessage::Job(job) = message {
            let urgency = job.urgency();
            backlog.push(job, urgency);
        }
    }
    let waiting = backlog.len;
    let jobs = iter::from_fn(|| backlog.pop()).filter_map(Job::if_wanted);
    let batch: Vec<Job> = jobs.take(BATCH_MAX).collect();
    let withdrawn = waiting - backlog.len - batch.len();
    (batch, withdrawn)
}

/// Carries out `batch`. The last value is whether it took long.
fn carry_out(store: &SqliteStore, mut batch: Vec<Job>) -> (Vec<Answered>, Vec<Wake>, bool) {
    let mut answered = Vec::with_capacity(batch.len());
    let mut wakes = Vec::new();
    let mut long = false;
    for tries in 1.. {
        let expired = batch.extract_if(.., |job| job.has_expired(store.clock()));
        answered.extend(expired.map(Job::expire));
        if batch.is_empty() {
            break;
        }
        match store.begin(Durability::of(&batch)) {
            Ok(transaction) => {
                let committed = commit(transaction, batch, &mut wakes);
                answered.extend(committed.0);
                long = committed.1;
                break;
            }
            Err(BeginError::Busy(_)) if tries < BEGIN_MAX => {}
            Err(BeginError::Busy(error) | BeginError::Failed(error)) => {
                answered.extend(batch.into_iter().map(|job| job.fail(error.clone())));
                break;
            }
        }
    }
    (answered, wakes, long)
}

/// Carries out `batch` in one transaction. A request reads everything before it writes, so a failed
/// read has changed nothing. A failed write fails the whole transaction. The second value is
/// whether it took long.
fn commit(
    mut transaction: Transaction<'_>,
    batch: Vec<Job>,
    wakes: &mut Vec<Wake>,
) -> (Vec<Answered>, bool) {
    let mut answered = Vec::with_capacity(batch.len());
    for job in batch {
        answered.push(match transaction.failure() {
            Some(error) => job.fail(error.clone()),
            None => job.run(&mut transaction),
        });
    }
    let long = transaction.has_long_queue();
    let outcome = match transaction.failure() {
        Some(error) => Err(error.clone()),
        None => transaction.commit(),
    };
    let answered = match outcome {
        Ok(to_be_told) => {
            wakes.extend(to_be_told);
            answered
        }
        Err(error) => but_all(answered, &error),
    };
    (answered, long)
}

fn but_all(answered: Vec<Answered>, error: &CallError) -> Vec<Answered> {
    answered
        .into_iter()
        .map(|answer| answer.or_error(error))
        .collect()
}

/// The most names in a job that is carried out here.
const CLAIMS_MAX: usize = 4;
/// One of so many jobs is handed over even if the node is idle. If other tasks send jobs meanwhile,
/// all of them share the next transaction: on one thread they would be carried out one by one.
const PROBE_EVERY: u32 = 256;

/// The store, which one thread uses at a time: the node's own or a caller's.
pub(super) struct Desk(Mutex<DeskWork>);

/// What the thread that uses the store needs.
pub(super) struct DeskWork {
    pub(super) store: SqliteStore,
    /// Jobs that were handed over. They go before all jobs in the inbox.
    pub(super) first: Vec<Job>,
    /// Whether jobs are better carried out together, or take long.
    pub(super) crowded: bool,
    /// How many jobs were carried out here since the last one that was handed over.
    direct: u32,
}

/// What became of a job.
pub(super) enum DirectOutcome {
    Done(Done),
    /// It was left to the node's thread, which has to look.
    HandedOver,
    /// Nothing was done.
    NotBegun(Job),
}

/// A job that was carried out.
pub(super) struct Done {
    pub(super) answered: Vec<Answered>,
    pub(super) wakes: Vec<Wake>,
    /// The node's thread has to look.
    pub(super) copy_due: bool,
}

impl Desk {
    pub(super) fn new(store: SqliteStore) -> Self {
        Self(Mutex::new(DeskWork {
            store,
            first: Vec::new(),
            crowded: false,
            direct: 0,
        }))
    }

    /// Waits until no other thread uses the store.
    pub(super) fn lock(&self) -> MutexGuard<'_, DeskWork> {
        // A transaction of a thread that panicked was rolled back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, DeskWork>> {
        match self.0.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Carries out `job`, if that takes no waiting. All jobs that were sent before must be done.
    pub(super) fn carry_out(&self, job: Job) -> DirectOutcome {
        if !is_short(&job) {
            return DirectOutcome::NotBegun(job);
        }
        let Some(mut work) = self.try_lock() else {
            return DirectOutcome::NotBegun(job);
        };
        match work.carry_out(job) {
            Ok(done) => DirectOutcome::Done(done),
            Err(job) => {
                work.direct = 0;
                work.first.push(job);
                DirectOutcome::HandedOver
            }
        }
    }
}

impl DeskWork {
    fn carry_out(&mut self, job: Job) -> Result<Done, Job> {
        if self.crowded || self.direct >= PROBE_EVERY || job.has_expired(self.store.clock()) {
            return Err(job);
        }
        let durability = Durability::of(slice::from_ref(&job));
        // If it fails, the node's thread waits or finds the same error.
        let transaction = match self.store.begin_at_once() {
            Ok(transaction) if transaction.needs_no_sync(durability) => transaction,
            _ => return Err(job),
        };
        let mut wakes = Vec::new();
        let (answered, crowded) = commit(transaction, vec![job], &mut wakes);
        self.crowded = crowded;
        self.direct += 1;
        Ok(Done {
            answered,
            wakes,
            copy_due: self.store.copy_due.get(),
        })
    }
}

/// Whether `job` reads few rows, and may need no sync.
fn is_short(job: &Job) -> bool {
    let Job::Call(call) = job else {
        return false;
    };
    let short = match call.request.op.facts().act {
        Act::Take | Act::Keep | Act::GiveUp => true,
        Act::Look => matches!(call.request.op, Op::Inspect),
        Act::Wait | Act::Latch | Act::Break => false,
    };
    short && call.request.claims.len() <= CLAIMS_MAX
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::message::PlainAcquire;
    use crate::node::backlog::tests::call_of;
    use crate::time::Timestamp;

    fn job(who: usize, op: Op) -> Job {
        Job::Call(call_of(who, op, Timestamp::ZERO))
    }

    fn is_release(job: &Job) -> bool {
        matches!(job, Job::Call(call) if matches!(call.request.op, Op::PlainRelease))
    }

    #[test]
    fn releases_go_into_the_first_transaction() {
        let (to, inbox) = channel();
        let send = |job| to.send(WorkerMessage::Job(job)).unwrap();
        let acquire = || Op::PlainAcquire(PlainAcquire { ttl_ms: 1 });
        for who in 0..2 * BATCH_MAX {
            send(job(who, acquire()));
        }
        send(job(5_000, Op::PlainRelease));
        // A release whose acquire still waits: it must not go before that.
        send(job(2 * BATCH_MAX - 1, Op::PlainRelease));
        let mut backlog = Backlog::default();
        let mut next = || next_batch(&mut backlog, Vec::new(), None, &inbox).0;
        let first = next();
        assert_eq!(first.len(), BATCH_MAX);
        assert!(is_release(&first[0]));
        assert_eq!(first.iter().filter(|job| is_release(job)).count(), 1);
        let (second, third) = (next(), next());
        assert_eq!((second.len(), third.len()), (BATCH_MAX, 2));
        assert!(!is_release(&third[0]) && is_release(&third[1]));
        assert!(next().is_empty());
    }

    #[test]
    fn a_job_that_was_handed_over_goes_before_those_that_were_sent_after_it() {
        let (to, inbox) = channel();
        // The acquire was begun on its caller's thread. Before it was handed over, another thread
        // sent its undo.
        let acquire = job(1, Op::PlainAcquire(PlainAcquire { ttl_ms: 1 }));
        let message = Some(WorkerMessage::Job(job(1, Op::PlainRelease)));
        to.send(WorkerMessage::Look).unwrap();
        to.send(WorkerMessage::Job(job(1, Op::PlainRelease)))
            .unwrap();
        let (batch, _) = next_batch(&mut Backlog::default(), vec![acquire], message, &inbox);
        let releases: Vec<_> = batch.iter().map(is_release).collect();
        assert_eq!(releases, [false, true, true]);
    }
}
