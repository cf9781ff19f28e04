//! Several futures in one task, each polled only when it was woken. One that panics ends by itself, as
//! it would in a task of its own.
//!
//! A lock asks all its nodes in one breath, and the links of a client share a task for that. Were there
//! a task for each, the runtime would rouse other threads to share the work, which takes longer than
//! the work does. For the same reason what is woken while the task runs is polled at once, and the task
//! is not put back in the runtime's queue.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// How often those are polled that were woken meanwhile, before other tasks get their turn.
const ROUNDS: usize = 4;

/// Completes when all its members have.
pub(super) struct Together {
    members: Vec<Member>,
    desk: Arc<Desk>,
}

struct Member {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    bell: Arc<Bell>,
    waker: Waker,
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
    pub(super) fn new<F>(futures: impl IntoIterator<Item = F>) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let desk = Arc::<Desk>::default();
        let members = futures.into_iter().map(|future| {
            let bell = Arc::new(Bell {
                rung: AtomicBool::new(true),
                desk: Arc::clone(&desk),
            });
            Member {
                future: Box::pin(future),
                waker: Waker::from(Arc::clone(&bell)),
                bell,
            }
        });
        Self {
            members: members.collect(),
            desk,
        }
    }
}

impl Future for Together {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.desk.task.register(cx.waker());
        for _ in 0..ROUNDS {
            this.desk.attended.store(true, Ordering::SeqCst);
            this.members.retain_mut(|member| !member.is_done());
            if this.members.is_empty() {
                return Poll::Ready(());
            }
            this.desk.attended.store(false, Ordering::SeqCst);
            // Whoever rings from now on finds nobody there and wakes the task.
            let rung = |member: &Member| member.bell.rung.load(Ordering::SeqCst);
            if !this.members.iter().any(rung) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Member {
    /// Polls the future if it was woken. Whether it has completed.
    fn is_done(&mut self) -> bool {
        if !self.bell.rung.swap(false, Ordering::SeqCst) {
            return false;
        }
        let future = self.future.as_mut();
        let mut cx = Context::from_waker(&self.waker);
        // After a panic it is never polled again, so nobody sees what it left behind.
        match catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx).is_ready())) {
            Ok(done) => done,
            Err(_) => {
                tracing::error!(
                    "a connection's task panicked, which is a mistake in ringfence; its node has no vote from now on"
                );
                true
            }
        }
    }
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
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

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
        let mut together = Together::new(probes.iter().map(Probe::future));
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
        let mut together = Together::new(futures);
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
        let mut together = Together::new([busy]);
        let task = Arc::<Task>::default();
        let waker = Waker::from(Arc::clone(&task));
        let polled = Pin::new(&mut together).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn who_panics_ends_alone() {
        let other = Arc::<Probe>::default();
        let panics = poll_fn(|_| -> Poll<()> { panic!("as a test wants it") });
        let futures: [Pin<Box<dyn Future<Output = ()> + Send>>; 2] =
            [Box::pin(panics), Box::pin(other.future())];
        let mut together = Together::new(futures);
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
        assert!(Pin::new(&mut Together::new(none)).poll(&mut cx).is_ready());
        assert!(
            Pin::new(&mut Together::new([ready(())]))
                .poll(&mut cx)
                .is_ready()
        );
        assert!(
            Pin::new(&mut Together::new([pending()]))
                .poll(&mut cx)
                .is_pending()
        );
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
        let together = tokio::spawn(Together::new(receivers.into_iter().map(member)));
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
