//! Counts the jobs of the node's thread that are not done yet, and makes other threads wait for
//! them.
//!
//! A guard that is dropped sends its release to the node's thread and does not wait. If the process
//! ended right after, the release would be lost. So a thread that has dropped a guard waits when it
//! ends, in the destructor of a thread-local value; for the main thread that is the end of the
//! process. (If the platform runs no such destructors on the main thread, as musl does not, only
//! `Locks::close` is sure.)

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::environment::OwnerProcess;

/// How long an ending thread waits at most, if another process keeps the file locked.
const PATIENCE: Duration = Duration::from_millis(200);

/// The number of jobs that were sent and are not done.
#[derive(Debug, Default)]
pub(super) struct Pending {
    process: OwnerProcess,
    count: Mutex<Count>,
    none: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    jobs: usize,
    /// How many threads wait until there are no jobs. Without any, none is notified: that would be a
    /// system call for every job.
    waiting: usize,
}

impl Pending {
    /// Counts one more job. Returns whether it is the only one.
    pub(super) fn begin(&self) -> bool {
        let mut count = self.count();
        count.jobs += 1;
        count.jobs == 1
    }

    /// Notes that so many jobs are done.
    pub(super) fn end(&self, done: usize) {
        let mut count = self.count();
        count.jobs = count.jobs.saturating_sub(done);
        if count.jobs == 0 && count.waiting > 0 {
            self.none.notify_all();
        }
    }

    fn is_none(&self) -> bool {
        self.count().jobs == 0
    }

    /// Waits until all jobs are done, for at most `patience`.
    fn wait(&self, patience: Duration) {
        let mut count = self.count();
        count.waiting += 1;
        let waited = self
            .none
            .wait_timeout_while(count, patience, |count| count.jobs > 0);
        let (mut count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        count.waiting -= 1;
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static ON_THREAD_EXIT: RefCell<WaitOnThreadExit> =
        const { RefCell::new(WaitOnThreadExit(Vec::new())) };
}

/// The jobs that this thread waits for when it ends.
struct WaitOnThreadExit(Vec<Weak<Pending>>);

impl Drop for WaitOnThreadExit {
    fn drop(&mut self) {
        for pending in self.0.iter().filter_map(Weak::upgrade) {
            // A forked child has not the thread that would do the jobs.
            match pending.process.is_ours() {
                true => pending.wait(PATIENCE),
                false => std::mem::forget(pending),
            }
        }
    }
}

/// Makes the calling thread wait for `pending` when it ends.
pub(super) fn wait_at_end(pending: &Arc<Pending>) {
    if !pending.process.is_ours() || pending.is_none() {
        return;
    }
    // A thread that is already ending has no thread-local values any more: it waits now.
    let known = ON_THREAD_EXIT.try_with(|on_exit| {
        let Ok(mut on_exit) = on_exit.try_borrow_mut() else {
            return;
        };
        on_exit.0.retain(|other| other.strong_count() > 0);
        let pending = Arc::downgrade(pending);
        if !on_exit.0.iter().any(|other| other.ptr_eq(&pending)) {
            on_exit.0.push(pending);
        }
    });
    if known.is_err() {
        pending.wait(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_ends_only_when_what_it_left_is_done() {
        let pending = Arc::<Pending>::default();
        pending.begin();
        pending.begin();
        let (ended, has_ended) = mpsc::channel::<()>();
        let leaves = Arc::clone(&pending);
        let thread = thread::spawn(move || {
            // Dropped after the thread's function, with the other thread-local values.
            thread_local!(static ENDED: RefCell<Option<mpsc::Sender<()>>> = const { RefCell::new(None) });
            ENDED.with(|place| *place.borrow_mut() = Some(ended));
            wait_at_end(&leaves);
            wait_at_end(&leaves);
        });
        pending.end(1);
        let soon = has_ended.recv_timeout(Duration::from_millis(20));
        assert_eq!(soon, Err(mpsc::RecvTimeoutError::Timeout));
        pending.end(1);
        thread.join().unwrap();
        assert!(pending.is_none());
    }

    #[test]
    fn it_waits_for_a_while_only() {
        let pending = Arc::<Pending>::default();
        pending.begin();
        let leaves = Arc::clone(&pending);
        thread::spawn(move || wait_at_end(&leaves)).join().unwrap();
        assert!(!pending.is_none());
    }
}
