//! How a link is told to write at once what it was given to send, by a thread that may be the last
//! to run: without gathering, reading or waiting.

use std::future::poll_fn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use crate::time::Timestamp;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FlushFlag {
    /// How many flushes were asked for.
    asked: AtomicU64,
    /// How many of them are done.
    done: AtomicU64,
    leave: OnceLock<Timestamp>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flush {
    number: u64,
    /// The runtime ends: the connection is left to threads without one, after its replies have been
    /// waited for until then.
    pub(super) leave: Option<Timestamp>,
}

impl FlushFlag {
    /// Asks for a flush of what is queued by now. Its number.
    pub(super) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The same, and that the connection is left by `until`: the runtime ends.
    pub(super) fn ask_to_leave(&self, until: Timestamp) {
        // A runtime ends once.
        let _ = self.leave.set(until);
        self.ask();
    }

    /// Whether a flush was asked for and is not done.
    pub(super) fn is_asked(&self) -> bool {
        !self.is_done(self.asked.load(Ordering::SeqCst))
    }

    /// Whether the flush of this number is done.
    pub(super) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::SeqCst) >= number
    }

    /// Completes if a flush is asked for when it is polled. It wakes nobody: a thread that asks also
    /// polls.
    pub(super) async fn asked(&self) -> Flush {
        poll_fn(|_| {
            // Read before the queue is looked at: what is queued later asks for another.
            let number = self.asked.load(Ordering::SeqCst);
            match self.is_done(number) {
                true => Poll::Pending,
                false => Poll::Ready(Flush {
                    number,
                    leave: self.leave.get().copied(),
                }),
            }
        })
        .await
    }

    /// `flush` is done.
    pub(super) fn finish(&self, flush: Flush) {
        self.done.fetch_max(flush.number, Ordering::SeqCst);
    }
}

/// Ends one poll and asks for the next, on the task's own thread.
pub(super) async fn rest_of_this_poll() {
    let mut over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
