//! What the node's thread has not carried out yet, and threads that must not end before it has.
//!
//! A guard that is dropped hands its release to the node's thread and does not wait. If the process
//! ends right after, that thread ends with it. So a thread that has dropped a guard waits when it
//! ends itself, in the destructor of a thread-local value; for the main thread that is the end of the
//! process. (Where the platform runs no such destructors on the main thread, as musl does not,
//! `Locks::close` is the only way to be sure.)

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long an ending thread waits at most, if another process keeps the file locked.
const PATIENCE: Duration = Duration::from_millis(200);

/// How many jobs have been asked for and not been carried out.
#[derive(Debug, Default)]
pub(super) struct Pending {
    jobs: Mutex<usize>,
    none: Condvar,
}

impl Pending {
    /// One more was asked for.
    pub(super) fn begin(&self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// `count` of them are done.
    pub(super) fn end(&self, count: usize) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        *jobs = jobs.saturating_sub(count);
        if *jobs == 0 {
            self.none.notify_all();
        }
    }

    fn is_none(&self) -> bool {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) == 0
    }

    /// Waits until none is left, for `patience` at most.
    fn wait(&self, patience: Duration) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .none
            .wait_timeout_while(jobs, patience, |jobs| *jobs > 0);
        drop(waited);
    }
}

thread_local! {
    static AT_END: RefCell<AtEnd> = const { RefCell::new(AtEnd(Vec::new())) };
}

/// What this thread waits for when it ends.
struct AtEnd(Vec<Weak<Pending>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        for pending in self.0.iter().filter_map(Weak::upgrade) {
            pending.wait(PATIENCE);
        }
    }
}

/// Has the calling thread wait when it ends until `pending` is over.
pub(super) fn wait_at_end(pending: &Arc<Pending>) {
    if pending.is_none() {
        return;
    }
    // A thread that is ending already has no such place any more: it waits now.
    let known = AT_END.try_with(|at_end| {
        let Ok(mut at_end) = at_end.try_borrow_mut() else {
            return;
        };
        at_end.0.retain(|other| other.strong_count() > 0);
        let pending = Arc::downgrade(pending);
        if !at_end.0.iter().any(|other| other.ptr_eq(&pending)) {
            at_end.0.push(pending);
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
