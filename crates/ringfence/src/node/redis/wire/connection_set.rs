//! Several futures in one task, each polled only when it was woken. A future that panics ends
//! alone, as in a task of its own.
//!
//! A lock sends to all its nodes at once, so the links of a client share a task. With a task for
//! each, the tokio runtime would wake other threads to share the work, which takes longer than the
//! work itself. For the same reason a future that is woken while the task runs is polled at once,
//! and the task is not put back into the runtime's queue.
//!
//! Another thread can poll a member for one purpose: to write at once what the member has to send
//! ([`ConnectionTask::flush`]). The task may never run again if its runtime is about to end.

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
use crate::environment::OwnerProcess;
use crate::time::Timestamp;

/// How often members that were woken meanwhile are polled before other tasks run.
const ROUNDS: usize = 4;

/// How long a flush waits for another thread that polls the same future at this moment and will
/// write it: no longer than for a short lock. Longer outside of a tokio runtime, since no task is
/// kept waiting there.
const MOMENT: Duration = Duration::from_millis(1);
const MOMENT_OUTSIDE: Duration = Duration::from_millis(20);

/// How long a tokio runtime that ends waits for the replies to the calls in flight: see
/// [`crate::node::redis::detached::Remainder::read_missing`].
const LINGER: Duration = Duration::from_millis(100);

/// Completes when all its members have completed.
pub(crate) struct ConnectionSet {
    members: Vec<Arc<ConnectionTask>>,
    task_waker: Arc<TaskWaker>,
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One of the futures.
pub(crate) struct ConnectionTask {
    /// `None` once it has completed, or its task is gone.
    future: Mutex<Option<TaskFuture>>,
    signal: Arc<ConnectionWaker>,
    waker: Waker,
    flush: Arc<FlushFlag>,
    /// The tokio runtime of the task: timers belong to it, whichever thread polls.
    runtime: Option<Handle>,
    process: OwnerProcess,
}

/// Wakes one member.
struct ConnectionWaker {
    woken: AtomicBool,
    task_waker: Arc<TaskWaker>,
}

/// Wakes the task.
#[derive(Default)]
struct TaskWaker {
    /// The task is being polled, and checks the members before it returns.
    polling: AtomicBool,
    task: AtomicWaker,
}

impl ConnectionSet {
    /// A set of futures, each with the flag that requests a flush from it. To be polled on
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
                process: OwnerProcess::current(),
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
        // The task has one budget for all its sockets. Rotate, so that another member is first next
        // time.
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
            // A wake after this finds the task idle, and wakes it, too.
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
    /// The tokio runtime ends and has dropped the task: writes what is queued now, while the
    /// runtime's sockets still work.
    fn drop(&mut self) {
        let until = Clock::System.now() + LINGER;
        for member in &self.members {
            member.end(until);
        }
    }
}

impl ConnectionTask {
    /// Makes the future write what it has to send, on the calling thread, without waiting. If
    /// another thread polls the future right now, that thread does it.
    pub(crate) fn flush(&self) {
        // A forked child would write to its parent's socket.
        if !self.process.is_ours() {
            return;
        }
        let moment = match Handle::try_current() {
            Ok(_) => MOMENT,
            // A thread that is ending cannot hold the runtime's context any more.
            Err(error) if error.is_thread_local_destroyed() => return,
            Err(_) => MOMENT_OUTSIDE,
        };
        let number = self.flush.ask();
        // Between the flag and the lock, as in `try_poll` between the lock and the flag: either we
        // get the lock, or its holder sees the flag.
        fence(Ordering::SeqCst);
        match self.try_poll() {
            None => self.wait_for_holder(number, moment),
            // The task may have tried to poll meanwhile and found the future locked.
            Some(done) if done || self.signal.woken.load(Ordering::SeqCst) => {
                self.signal.woken.store(true, Ordering::SeqCst);
                self.signal.task_waker.task.wake();
            }
            Some(_) => {}
        }
    }

    /// Waits for the other thread that polls the future and does the flush: otherwise the process
    /// might end before that.
    fn wait_for_holder(&self, number: u64, moment: Duration) {
        let until = Clock::System.now() + moment;
        while !self.flush.is_done(number) && Clock::System.now() < until {
            // Unlocked: it checked the flag before we set it, or cannot write now.
            if self.try_lock().is_some() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Ends the future, after it has written its data and left its connection for later releases.
    fn end(&self, until: Timestamp) {
        let context = !is_thread_ending();
        self.flush.ask_to_leave(until);
        // A short wait: any other thread that polls it does so for a flush.
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        if context {
            self.poll_once(&mut future);
        }
        let ended = future.take();
        drop(future);
        // After unlocking: the answers of a dropped future may call back into this.
        drop(ended);
    }

    /// Polls the future if it was woken. Returns whether it has completed.
    fn is_done(&self) -> bool {
        self.signal.woken.load(Ordering::SeqCst) && self.try_poll().unwrap_or(false)
    }

    /// Polls the future. Returns whether it has completed; `None` if another thread polls it.
    fn try_poll(&self) -> Option<bool> {
        // A second time for another thread that requested a flush and found the future locked.
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

    /// Polls the future. Returns whether it has completed; then it is dropped.
    fn poll_once(&self, work: &mut Option<TaskFuture>) -> bool {
        let Some(future) = work.as_mut() else {
            return true;
        };
        let _context = self.runtime.as_ref().map(Handle::enter);
        let mut cx = Context::from_waker(&self.waker);
        // After a panic it is never polled again, so its broken state is never seen.
        let done = catch_unwind(AssertUnwindSafe(|| {
            future.as_mut().poll(&mut cx).is_ready()
        }));
        let done = done.unwrap_or_else(|_| {
            tracing::error!(
                target: "ringfence",
                "a connection's task panicked, which is a bug in ringfence; its node has no vote \
                 from now on"
            );
            true
        });
        if done {
            *work = None;
        }
        done
    }
}

/// Whether the thread-local values are being destroyed.
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

/// Requests that a connection writes at once, for a thread that may be the last to run: without
/// gathering more calls, reading or waiting.
#[derive(Debug, Default)]
pub(crate) struct FlushFlag {
    /// How many flushes were requested.
    asked: AtomicU64,
    /// How many of them are done.
    done: AtomicU64,
    leave: OnceLock<Timestamp>,
}

/// A requested flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flush {
    number: u64,
    /// The tokio runtime ends: the connection waits for replies until then, and is left for later
    /// releases.
    pub(crate) leave: Option<Timestamp>,
}

impl FlushFlag {
    /// Requests a flush of what is queued by now. Returns its number.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// As [`FlushFlag::ask`]; the tokio runtime ends, and replies may be awaited until `until`.
    pub(crate) fn ask_to_leave(&self, until: Timestamp) {
        // A runtime ends only once.
        let _ = self.leave.set(until);
        self.ask();
    }

    /// Whether a flush was requested and is not done.
    pub(crate) fn is_asked(&self) -> bool {
        !self.is_done(self.asked.load(Ordering::SeqCst))
    }

    /// Whether the flush of this number is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::SeqCst) >= number
    }

    /// Completes if a flush is requested when it is polled. It registers no waker: the thread that
    /// requests a flush also polls.
    pub(crate) async fn asked(&self) -> Flush {
        poll_fn(|_| {
            // Read before the queue: work that is queued later requests another flush.
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

    /// Notes that `flush` is done.
    pub(crate) fn finish(&self, flush: Flush) {
        self.done.fetch_max(flush.number, Ordering::SeqCst);
    }
}

/// Ends this poll and requests the next, on the task's own thread.
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
