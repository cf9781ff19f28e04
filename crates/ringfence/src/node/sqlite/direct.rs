//! Carries out a job on the thread of its caller, if the node is idle and nothing has to be waited
//! for: to hand a job to the node's thread and its answer back takes two wake-ups of a sleeping
//! thread, which is longer than the transaction.
//!
//! The caller may be a thread of a tokio runtime, so a job is handed over to the node's thread
//! (`worker.rs`) if it needs a sync, if another process has locked the file, or if it reads many
//! rows. A job never overtakes one that was sent before: it is carried out here only if all of
//! those are done, and one that is handed over goes before those that came after it.

use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::message::{Op, Wake};
use crate::node::embedded::{Answered, Job};

use super::store::SqliteStore;
use super::sync::Durability;
use super::worker;

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
    /// Whether the node's thread is to copy the log.
    pub(super) copy_due: bool,
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
            copy_due: false,
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
        let (answered, crowded) = worker::commit(transaction, vec![job], &mut wakes);
        self.crowded = crowded;
        self.direct += 1;
        let copy_due = self.store.log.is_due();
        self.copy_due |= copy_due;
        Ok(Done {
            answered,
            wakes,
            copy_due,
        })
    }
}

/// Whether `job` reads few rows, and may need no sync.
fn is_short(job: &Job) -> bool {
    let Job::Call(call) = job else {
        return false;
    };
    let short = match &call.request.op {
        Op::Acquire(_)
        | Op::AcquireSlot(_)
        | Op::Extend(_)
        | Op::Release(_)
        | Op::ReleaseSlot(_)
        | Op::Restore(_)
        | Op::Downgrade(_)
        | Op::Inspect
        | Op::PlainAcquire(_)
        | Op::PlainExtend(_)
        | Op::PlainRelease => true,
        Op::List(_)
        | Op::Attend(_)
        | Op::Arrive(_)
        | Op::Refresh(_)
        | Op::RefreshSlots(_)
        | Op::Break(_) => false,
    };
    short && call.request.claims.len() <= CLAIMS_MAX
}
