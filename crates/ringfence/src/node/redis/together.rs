//! Several futures in one task, each polled only when it was woken. One that panics ends by itself, as
//! it would in a task of its own.
//!
//! A lock asks all its nodes in one breath, and the links of a client share a task for that. Were there
//! a task for each, the runtime would rouse other threads to share the work, which takes longer than
//! the work does. For the same reason what is woken while the task runs is polled at once, and the task
//! is not put back in the runtime's queue.

//!
//! A member can be polled from outside, too, for one purpose: to have it write at once what it was
//! given to send ([`Member::flush`]). The task may never run again, if its runtime is about to end.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::time::Timestamp;

use super::flush::FlushFlag;

/// How often those are polled that were woken meanwhile, before other tasks get their turn.
const ROUNDS: usize = 4;

/// How long a flush waits for another thread that polls the same future at this moment, and would
/// write it a moment later: no longer than a short lock is waited for. Outside of a runtime a bit
/// longer, since no task is kept waiting.
const MOMENT: Duration = Duration::from_millis(1);
const MOMENT_OUTSIDE: Duration = Duration::from_millis(20);

/// How long a runtime that ends waits for the replies to what was sent: see
/// [`super::last_words::Remainder::read_missing`].
const LINGER: Duration = Duration::from_millis(100);

/// Completes when all its members have.
pub(super) struct Together {
    members: Vec<Arc<Member>>,
    desk: Arc<Desk>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One of several futures.
pub(super) struct Member {
    /// `None` once it has completed, or its task is gone.
    future: Mutex<Option<Work>>,
    bell: Arc<Bell>,
    waker: Waker,
    flush: Arc<FlushFlag>,
    /// The runtime of the task: timers are made there, whichever thread polls.
    runtime: Option<Handle>,
}

/// What wakes one member.
struct Bell {
    rung: AtomicBool,
    desk: Arc<Desk>,
}

/// What wakes the task.
#[derive(Default)]
struct Desk {
    /// Somebody is there, and looks at the bells before leaving.
    attended: AtomicBool,
    task: AtomicWaker,
}

impl Together {
    /// Of futures, each with the flag through which it is told to write at once. To be polled on
    /// `runtime`.
    pub(super) fn new<F>(
        futures: impl IntoIterator<Item = (F, Arc<FlushFlag>)>,
        runtime: Option<Handle>,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let desk = Arc::<Desk>::default();
        let members = futures.into_iter().map(|(future, flush)| {
            let bell = Arc::new(Bell {
                rung: AtomicBool::new(true),
                desk: Arc::clone(&desk),
            });
            Arc::new(Member {
                future: Mutex::new(Some(Box::pin(future))),
                waker: Waker::from(Arc::clone(&bell)),
                bell,
                flush,
                runtime: runtime.clone(),
            })
        });
        Self {
            members: members.collect(),
            desk,
        }
    }

    /// The members, in the order of their futures.
    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.members.clone()
    }
}

impl Future for Together {
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

impl Together {
    fn poll_rounds(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.desk.task.register(cx.waker());
        for _ in 0..ROUNDS {
            self.desk.attended.store(true, Ordering::SeqCst);
            self.members.retain(|member| !member.is_done());
            if self.members.is_empty() {
                return Poll::Ready(());
            }
            self.desk.attended.store(false, Ordering::SeqCst);
            // Whoever rings from now on finds nobody there and wakes the task.
            let rung = |member: &Arc<Member>| member.bell.rung.load(Ordering::SeqCst);
            if !self.members.iter().any(rung) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Together {
    /// The runtime ends, and has dropped the task: what is queued is written now, while the
    /// runtime's sockets still work.
    fn drop(&mut self) {
        let until = Clock::System.now() + LINGER;
        for member in &self.members {
            member.end(until);
        }
    }
}

impl Member {
    /// Has the future write what it was given to send, on the calling thread, as far as that goes
    /// without waiting. If another thread polls the future right now, that thread does it.
    pub(super) fn flush(&self) {
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
            Some(done) if done || self.bell.rung.load(Ordering::SeqCst) => {
                self.bell.rung.store(true, Ordering::SeqCst);
                self.bell.desk.task.wake();
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
        self.bell.rung.load(Ordering::SeqCst) && self.try_poll().unwrap_or(false)
    }

    /// Polls the future. Whether it has completed; `None` if another thread polls it.
    fn try_poll(&self) -> Option<bool> {
        // A second time for another thread that wanted a flush and found the future taken.
        for _ in 0..2 {
            let mut future = self.try_lock()?;
            self.bell.rung.store(false, Ordering::SeqCst);
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

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Work>>> {
        match self.future.try_lock() {
            Ok(future) => Some(future),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Polls the future. Whether it has completed; then it is gone.
    fn poll_once(&self, work: &mut Option<Work>) -> bool {
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

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let rung = self.rung.swap(true, Ordering::SeqCst);
        if !rung && !self.desk.attended.load(Ordering::SeqCst) {
            self.desk.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::task::ready;
    use std::time::Duration;

    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

    use super::*;
    use crate::node::redis::last_words::Detached;
    use crate::node::redis::limits::TURN_BYTES;
    use crate::node::redis::wire::{Stream, Wire};

    fn together<F>(futures: impl IntoIterator<Item = F>) -> Together
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let futures = futures.into_iter().map(|future| (future, Arc::default()));
        Together::new(futures, Handle::try_current().ok())
    }

    /// A future that counts its polls and leaves its waker, and completes when told.
    #[derive(Default)]
    struct Probe {
        polls: AtomicUsize,
        waker: Mutex<Option<Waker>>,
        done: AtomicBool,
    }

    impl Probe {
        fn future(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
            let probe = Arc::clone(self);
            poll_fn(move |cx| {
                probe.polls.fetch_add(1, Ordering::SeqCst);
                *probe.waker.lock().unwrap() = Some(cx.waker().clone());
                match probe.done.load(Ordering::SeqCst) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
        }

        fn wake(&self) {
            let waker = self.waker.lock().unwrap().clone();
            waker.unwrap().wake();
        }

        fn polls(&self) -> usize {
            self.polls.load(Ordering::SeqCst)
        }
    }

    /// Counts how often the task is woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn only_who_was_woken_is_polled_and_the_task_is_woken_once() {
        let probes: [Arc<Probe>; 3] = Default::default();
        let mut together = together(probes.iter().map(Probe::future));
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        let mut poll = || Pin::new(&mut together).poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        probes[1].wake();
        probes[1].wake();
        probes[2].wake();
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        assert!(poll().is_pending());
        assert_eq!(probes.each_ref().map(|probe| probe.polls()), [1, 2, 2]);
        for probe in &probes {
            probe.done.store(true, Ordering::SeqCst);
            assert!(poll().is_pending(), "nobody has woken it");
            probe.wake();
        }
        assert!(poll().is_ready());
    }

    #[test]
    fn who_is_woken_by_another_is_polled_without_waking_the_task() {
        let woken = Arc::<Probe>::default();
        let waking = {
            let woken = Arc::clone(&woken);
            poll_fn(move |_| {
                woken.wake();
                Poll::<()>::Pending
            })
        };
        let futures: [Pin<Box<dyn Future<Output = ()> + Send>>; 2] =
            [Box::pin(woken.future()), Box::pin(waking)];
        let mut together = together(futures);
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        let polled = Pin::new(&mut together).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!((woken.polls(), task.0.load(Ordering::SeqCst)), (2, 0));
    }

    #[test]
    fn who_always_wakes_itself_lets_others_have_their_turn() {
        let busy = poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let mut together = together([busy]);
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        let polled = Pin::new(&mut together).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
    }

    /// A server that does not stop sending before others have sent as much as `most` with it.
    struct Flood {
        unit: &'static [u8],
        sent: Arc<AtomicUsize>,
        most: usize,
    }

    impl AsyncRead for Flood {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.sent.load(Ordering::SeqCst) > self.most {
                return Poll::Pending;
            }
            // As a socket does it: part of what the task may do in one turn.
            let coop = ready!(tokio::task::coop::poll_proceed(cx));
            coop.made_progress();
            while room.remaining() >= self.unit.len() {
                room.put_slice(self.unit);
            }
            assert!(!room.filled().is_empty(), "a chunk has room for one");
            self.sent.fetch_add(room.filled().len(), Ordering::SeqCst);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Flood {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Stream for Flood {
        fn detach(self: Box<Self>) -> Option<Box<dyn Detached>> {
            None
        }
    }

    /// Of five connections four flood without end, and the last is asked and answers.
    #[tokio::test]
    async fn a_connection_is_served_beside_others_that_flood() {
        const QUESTIONS: usize = 20;
        // Each of the others has a turn or two between a question and its answer, and a push costs more
        // of a turn than its bytes.
        const MOST: usize = QUESTIONS * 2 * TURN_BYTES;
        for unit in [
            &b">2\r\n$7\r\nmessage\r\n:1\r\n"[..],
            b">1\r\n$40\r\n0123456789012345678901234567890123456789\r\n",
        ] {
            let sent = Arc::new(AtomicUsize::new(0));
            let floods = (0..4).map(|_| {
                let sent = Arc::clone(&sent);
                let flood = async move {
                    while sent.load(Ordering::SeqCst) < usize::MAX {
                        let sent = Arc::clone(&sent);
                        let most = MOST;
                        let flood = Flood { unit, sent, most };
                        let mut wire = Wire::new(flood, Some(Arc::default()));
                        // Until it is dropped for it, and then anew.
                        wire.send(&[redis::cmd("A")]);
                        let _ = wire.answers().await;
                    }
                };
                Box::pin(flood) as Work
            });
            let (ours, mut server) = tokio::io::duplex(1 << 10);
            let (to, mut answered) = tokio::sync::mpsc::unbounded_channel();
            let quiet = async move {
                let mut wire = Wire::new(ours, None);
                wire.send(&[redis::cmd("A")]);
                while let Ok(answers) = wire.answers().await {
                    to.send(answers).unwrap();
                    wire.send(&[redis::cmd("A")]);
                }
            };
            let members: Vec<Work> = floods.chain([Box::pin(quiet) as Work]).collect();
            let running = tokio::spawn(together(members));
            let conversation = async {
                for _ in 0..QUESTIONS {
                    let mut asked = [0; b"*1\r\n$1\r\nA\r\n".len()];
                    server.read_exact(&mut asked).await.unwrap();
                    server.write_all(b":1\r\n").await.unwrap();
                    answered.recv().await.unwrap();
                }
            };
            let within = Duration::from_secs(60);
            tokio::time::timeout(within, conversation).await.unwrap();
            let sent = sent.load(Ordering::SeqCst);
            assert!(sent <= MOST, "the others came first: {sent} bytes");
            running.abort();
        }
    }

    #[test]
    fn who_panics_ends_alone() {
        let other = Arc::<Probe>::default();
        let panics = poll_fn(|_| -> Poll<()> { panic!("as a test wants it") });
        let futures: [Pin<Box<dyn Future<Output = ()> + Send>>; 2] =
            [Box::pin(panics), Box::pin(other.future())];
        let mut together = together(futures);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut together).poll(&mut cx).is_pending());
        assert_eq!((together.members.len(), other.polls()), (1, 1));
        other.done.store(true, Ordering::SeqCst);
        other.wake();
        assert!(Pin::new(&mut together).poll(&mut cx).is_ready());
    }

    #[test]
    fn nobody_is_complete_at_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let none: [std::future::Ready<()>; 0] = [];
        assert!(Pin::new(&mut together(none)).poll(&mut cx).is_ready());
        assert!(
            Pin::new(&mut together([ready(())]))
                .poll(&mut cx)
                .is_ready()
        );
        assert!(
            Pin::new(&mut together([pending()]))
                .poll(&mut cx)
                .is_pending()
        );
    }

    /// A future that does what it is flushed for, and says how often.
    fn flushed(
        flag: &Arc<FlushFlag>,
        count: &Arc<AtomicUsize>,
    ) -> impl Future<Output = ()> + use<> {
        let (flag, count) = (Arc::clone(flag), Arc::clone(count));
        async move {
            loop {
                let flush = flag.asked().await;
                count.fetch_add(1, Ordering::SeqCst);
                flag.finish(flush);
                if flush.leave.is_some() {
                    return;
                }
            }
        }
    }

    #[test]
    fn a_flush_is_done_by_the_calling_thread_without_the_task() {
        let (flag, count) = (Arc::<FlushFlag>::default(), Arc::default());
        let future = flushed(&flag, &count);
        let together = Together::new([(future, Arc::clone(&flag))], None);
        let [member] = &together.members()[..] else {
            panic!("one member");
        };
        member.flush();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        member.flush();
        assert_eq!(count.load(Ordering::SeqCst), 2);
        // The runtime drops the task: once more, and the future is gone.
        drop(together);
        assert_eq!(count.load(Ordering::SeqCst), 3);
        member.flush();
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_flush_while_another_thread_polls_is_done_by_that_thread() {
        let (flag, count) = (Arc::<FlushFlag>::default(), Arc::default());
        let inner = flushed(&flag, &count);
        let inside = Arc::new(std::sync::Barrier::new(2));
        let asked = Arc::new(std::sync::Barrier::new(2));
        let (enters, waits) = (Arc::clone(&inside), Arc::clone(&asked));
        // Its first poll lasts until the other thread has asked.
        let busy = async move {
            let mut inner = Box::pin(inner);
            let mut first = true;
            poll_fn(move |cx| {
                let polled = inner.as_mut().poll(cx);
                if std::mem::take(&mut first) {
                    enters.wait();
                    waits.wait();
                }
                polled
            })
            .await;
        };
        let mut together = Together::new([(busy, Arc::clone(&flag))], None);
        let member = Arc::clone(&together.members[0]);
        let other = std::thread::spawn(move || {
            inside.wait();
            // As `flush` does it, up to where it finds the future taken.
            member.flush.ask();
            fence(Ordering::SeqCst);
            assert_eq!(member.try_poll(), None);
            asked.wait();
        });
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut together).poll(&mut cx).is_pending());
        other.join().unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_from_another_thread_is_missed() {
        const TURNS: usize = 20_000;
        let member = |mut turns: tokio::sync::mpsc::UnboundedReceiver<()>| async move {
            for _ in 0..TURNS {
                turns.recv().await;
            }
        };
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| tokio::sync::mpsc::unbounded_channel())
            .unzip();
        let together = tokio::spawn(together(receivers.into_iter().map(member)));
        let senders = senders.into_iter().map(|sender| {
            tokio::task::spawn_blocking(move || {
                for _ in 0..TURNS {
                    sender.send(()).unwrap();
                    std::hint::spin_loop();
                }
                // Kept: what a member waits for is the last turn, not the end of the channel.
                sender
            })
        });
        let senders: Vec<_> = senders.collect();
        let within = Duration::from_secs(60);
        tokio::time::timeout(within, together)
            .await
            .unwrap()
            .unwrap();
        for sender in senders {
            sender.await.unwrap();
        }
    }
}
