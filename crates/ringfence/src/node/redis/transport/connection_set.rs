//! Several futures in one task, each polled only when it was woken. One that panics ends by itself, as
//! it would in a task of its own.
//!
//! A lock asks all its nodes in one breath, and the links of a client share a task for that. Were there
//! a task for each, the runtime would rouse other threads to share the work, which takes longer than
//! the work does. For the same reason what is woken while the task runs is polled at once, and the task
//! is not put back in the runtime's queue.
//!
//! A member can be polled from outside, too, for one purpose: to have it write at once what it was
//! given to send ([`ConnectionTask::flush`]). The task may never run again, if its runtime is about to end.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::time::Timestamp;

/// How often those are polled that were woken meanwhile, before other tasks get their turn.
const ROUNDS: usize = 4;

/// How long a flush waits for another thread that polls the same future at this moment, and would
/// write it a moment later: no longer than a short lock is waited for. Outside of a runtime a bit
/// longer, since no task is kept waiting.
const MOMENT: Duration = Duration::from_millis(1);
const MOMENT_OUTSIDE: Duration = Duration::from_millis(20);

/// How long a runtime that ends waits for the replies to what was sent: see
/// [`crate::node::redis::last_words::Remainder::read_missing`].
const LINGER: Duration = Duration::from_millis(100);

/// Completes when all its members have.
pub(crate) struct ConnectionSet {
    members: Vec<Arc<ConnectionTask>>,
    task_waker: Arc<TaskWaker>,
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One of several futures.
pub(crate) struct ConnectionTask {
    /// `None` once it has completed, or its task is gone.
    future: Mutex<Option<TaskFuture>>,
    signal: Arc<ConnectionWaker>,
    waker: Waker,
    flush: Arc<FlushFlag>,
    /// The runtime of the task: timers are made there, whichever thread polls.
    runtime: Option<Handle>,
}

/// What wakes one member.
struct ConnectionWaker {
    woken: AtomicBool,
    task_waker: Arc<TaskWaker>,
}

/// What wakes the task.
#[derive(Default)]
struct TaskWaker {
    /// The task is being polled, and looks at the members before it returns.
    polling: AtomicBool,
    task: AtomicWaker,
}

impl ConnectionSet {
    /// Of futures, each with the flag through which it is told to write at once. To be polled on
    /// `runtime`.
    pub(crate) fn new<F>(
        futures: impl IntoIterator<Item = (F, Arc<FlushFlag>)>,
        runtime: Option<Handle>,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task_waker = Arc::<TaskWaker>::default();
        let members = futures.into_iter().map(|(future, flush)| {
            let signal = Arc::new(ConnectionWaker {
                woken: AtomicBool::new(true),
                task_waker: Arc::clone(&task_waker),
            });
            Arc::new(ConnectionTask {
                future: Mutex::new(Some(Box::pin(future))),
                waker: Waker::from(Arc::clone(&signal)),
                signal,
                flush,
                runtime: runtime.clone(),
            })
        });
        Self {
            members: members.collect(),
            task_waker,
        }
    }

    /// The members, in the order of their futures.
    pub(crate) fn members(&self) -> Vec<Arc<ConnectionTask>> {
        self.members.clone()
    }
}

impl Future for ConnectionSet {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = self.poll_rounds(cx);
        // The task has one budget for all its sockets. Next time another member is the first to use it.
        if !self.members.is_empty() {
            self.members.rotate_left(1);
        }
        polled
    }
}

impl ConnectionSet {
    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.task_waker.task.register(cx.waker());
        for _ in 0..ROUNDS {
            self.task_waker.polling.store(true, Ordering::SeqCst);
            self.members.retain(|member| !member.is_done());
            if self.members.is_empty() {
                return Poll::Ready(());
            }
            self.task_waker.polling.store(false, Ordering::SeqCst);
            // A wake from now on finds the task at rest, and wakes it too.
            let woken = |member: &Arc<ConnectionTask>| member.signal.woken.load(Ordering::SeqCst);
            if !self.members.iter().any(woken) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for ConnectionSet {
    /// The runtime ends, and has dropped the task: what is queued is written now, while the
    /// runtime's sockets still work.
    fn drop(&mut self) {
        let until = Clock::System.now() + LINGER;
        for member in &self.members {
            member.end(until);
        }
    }
}

impl ConnectionTask {
    /// Has the future write what it was given to send, on the calling thread, as far as that goes
    /// without waiting. If another thread polls the future right now, that thread does it.
    pub(crate) fn flush(&self) {
        let moment = match Handle::try_current() {
            Ok(_) => MOMENT,
            // A thread that is ending has no place for the runtime's context any more.
            Err(error) if error.is_thread_local_destroyed() => return,
            Err(_) => MOMENT_OUTSIDE,
        };
        let number = self.flush.ask();
        // Between the flag and the lock, as in `try_poll` between the lock and the flag: either we
        // get the lock, or its holder sees the flag.
        fence(Ordering::SeqCst);
        match self.try_poll() {
            None => self.wait_for_holder(number, moment),
            // The task may have come by meanwhile and found the future taken.
            Some(done) if done || self.signal.woken.load(Ordering::SeqCst) => {
                self.signal.woken.store(true, Ordering::SeqCst);
                self.signal.task_waker.task.wake();
            }
            Some(_) => {}
        }
    }

    /// Another thread polls the future and sees to the flush: the process may end before it has.
    fn wait_for_holder(&self, number: u64, moment: Duration) {
        let until = Clock::System.now() + moment;
        while !self.flush.is_done(number) && Clock::System.now() < until {
            // Free again: it looked before we asked, or is in no state to write.
            if self.try_lock().is_some() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Ends the future, which may use the occasion to write and to leave its connection behind.
    fn end(&self, until: Timestamp) {
        let context = !is_thread_ending();
        self.flush.ask_to_leave(until);
        // Not for long: another thread that polls it does so for a flush.
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        if context {
            self.poll_once(&mut future);
        }
        let ended = future.take();
        drop(future);
        // After the lock: what a future answers when it is dropped may come back here.
        drop(ended);
    }

    /// Polls the future if it was woken. Whether it has completed.
    fn is_done(&self) -> bool {
        self.signal.woken.load(Ordering::SeqCst) && self.try_poll().unwrap_or(false)
    }

    /// Polls the future. Whether it has completed; `None` if another thread polls it.
    fn try_poll(&self) -> Option<bool> {
        // A second time for another thread that wanted a flush and found the future taken.
        for _ in 0..2 {
            let mut future = self.try_lock()?;
            self.signal.woken.store(false, Ordering::SeqCst);
            if self.poll_once(&mut future) {
                return Some(true);
            }
            drop(future);
            fence(Ordering::SeqCst);
            if !self.flush.is_asked() {
                break;
            }
        }
        Some(false)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<TaskFuture>>> {
        match self.future.try_lock() {
            Ok(future) => Some(future),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Polls the future. Whether it has completed; then it is gone.
    fn poll_once(&self, work: &mut Option<TaskFuture>) -> bool {
        let Some(future) = work.as_mut() else {
            return true;
        };
        let _context = self.runtime.as_ref().map(Handle::enter);
        let mut cx = Context::from_waker(&self.waker);
        // After a panic it is never polled again, so nobody sees what it left behind.
        let done = catch_unwind(AssertUnwindSafe(|| {
            future.as_mut().poll(&mut cx).is_ready()
        }));
        let done = done.unwrap_or_else(|_| {
            tracing::error!(
                target: "ringfence",
                "a connection's task panicked, which is a mistake in ringfence; its node has no vote from now on"
            );
            true
        });
        if done {
            *work = None;
        }
        done
    }
}

/// Whether the thread's local data is being torn down.
fn is_thread_ending() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.woken.swap(true, Ordering::SeqCst);
        if !woken && !self.task_waker.polling.load(Ordering::SeqCst) {
            self.task_waker.task.wake();
        }
    }
}

/// How a connection is told to write at once what it was given to send, by a thread that may be the
/// last to run: without gathering, reading or waiting.
#[derive(Debug, Default)]
pub(crate) struct FlushFlag {
    /// How many flushes were asked for.
    asked: AtomicU64,
    /// How many of them are done.
    done: AtomicU64,
    leave: OnceLock<Timestamp>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flush {
    number: u64,
    /// The runtime ends: the connection is left to threads without one, after its replies have been
    /// waited for until then.
    pub(crate) leave: Option<Timestamp>,
}

impl FlushFlag {
    /// Asks for a flush of what is queued by now. Its number.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The same, and that the connection is left by `until`: the runtime ends.
    pub(crate) fn ask_to_leave(&self, until: Timestamp) {
        // A runtime ends once.
        let _ = self.leave.set(until);
        self.ask();
    }

    /// Whether a flush was asked for and is not done.
    pub(crate) fn is_asked(&self) -> bool {
        !self.is_done(self.asked.load(Ordering::SeqCst))
    }

    /// Whether the flush of this number is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::SeqCst) >= number
    }

    /// Completes if a flush is asked for when it is polled. It wakes nobody: a thread that asks also
    /// polls.
    pub(crate) async fn asked(&self) -> Flush {
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
    pub(crate) fn finish(&self, flush: Flush) {
        self.done.fetch_max(flush.number, Ordering::SeqCst);
    }
}

/// Ends one poll and asks for the next, on the task's own thread.
pub(crate) async fn rest_of_this_poll() {
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

#[cfg(test)]
mod tests;
