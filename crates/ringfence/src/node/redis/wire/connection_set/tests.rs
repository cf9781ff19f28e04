use std::future::{pending, poll_fn, ready};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::task::ready;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use crate::node::redis::wire::stream::Detached;
use crate::node::redis::wire::stream::Stream;
use crate::node::redis::wire::{TURN_BYTES, Wire};

fn set<F>(futures: impl IntoIterator<Item = F>) -> ConnectionSet
where
    F: Future<Output = ()> + Send + 'static,
{
    let futures = futures.into_iter().map(|future| (future, Arc::default()));
    ConnectionSet::new(futures, Handle::try_current().ok())
}

/// A future that counts its polls, stores its waker, and completes on request.
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
fn only_woken_members_are_polled_and_the_task_is_woken_once() {
    let probes: [Arc<Probe>; 3] = Default::default();
    let mut set = set(probes.iter().map(Probe::future));
    let task = Arc::<Task>::default();
    let waker = Waker::from(Arc::clone(&task));
    let mut poll = || Pin::new(&mut set).poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    probes[1].wake();
    probes[1].wake();
    probes[2].wake();
    assert_eq!(task.0.load(Ordering::SeqCst), 1);
    assert!(poll().is_pending());
    assert_eq!(probes.each_ref().map(|probe| probe.polls()), [1, 2, 2]);
    for probe in &probes {
        probe.done.store(true, Ordering::SeqCst);
        assert!(poll().is_pending(), "it was not woken");
        probe.wake();
    }
    assert!(poll().is_ready());
}

#[test]
fn a_member_woken_by_another_is_polled_without_waking_the_task() {
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
    let mut set = set(futures);
    let task = Arc::<Task>::default();
    let waker = Waker::from(Arc::clone(&task));
    let polled = Pin::new(&mut set).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert_eq!((woken.polls(), task.0.load(Ordering::SeqCst)), (2, 0));
}

#[test]
fn a_member_that_always_wakes_itself_lets_other_tasks_run() {
    let busy = poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    let mut set = set([busy]);
    let task = Arc::<Task>::default();
    let waker = Waker::from(Arc::clone(&task));
    let polled = Pin::new(&mut set).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert_eq!(task.0.load(Ordering::SeqCst), 1);
}

/// A server that keeps sending until all such servers together have sent `most`.
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
        // Uses the budget of the task, like a socket.
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

/// Of five connections, four flood without end, and the last answers questions.
#[tokio::test]
async fn a_connection_is_served_beside_others_that_flood() {
    const QUESTIONS: usize = 20;
    // Each of the others has one or two turns between a question and its answer, and a push uses
    // more of a turn than its bytes.
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
                    // Until it is dropped for the excess, and then again.
                    wire.send(&[redis::cmd("A")]);
                    let _ = wire.answers().await;
                }
            };
            Box::pin(flood) as TaskFuture
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
        let members: Vec<TaskFuture> = floods.chain([Box::pin(quiet) as TaskFuture]).collect();
        let running = tokio::spawn(set(members));
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
fn a_panic_in_one_connection_leaves_the_others_running() {
    let other = Arc::<Probe>::default();
    let panics = poll_fn(|_| -> Poll<()> { panic!("on purpose") });
    let futures: [Pin<Box<dyn Future<Output = ()> + Send>>; 2] =
        [Box::pin(panics), Box::pin(other.future())];
    let mut set = set(futures);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut set).poll(&mut cx).is_pending());
    assert_eq!((set.members.len(), other.polls()), (1, 1));
    other.done.store(true, Ordering::SeqCst);
    other.wake();
    assert!(Pin::new(&mut set).poll(&mut cx).is_ready());
}

#[test]
fn an_empty_set_completes_at_once() {
    let mut cx = Context::from_waker(Waker::noop());
    let none: [std::future::Ready<()>; 0] = [];
    assert!(Pin::new(&mut set(none)).poll(&mut cx).is_ready());
    assert!(Pin::new(&mut set([ready(())])).poll(&mut cx).is_ready());
    assert!(Pin::new(&mut set([pending()])).poll(&mut cx).is_pending());
}

/// A future that carries out flushes and counts them.
fn flushed(flag: &Arc<FlushFlag>, count: &Arc<AtomicUsize>) -> impl Future<Output = ()> + use<> {
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
    let set = ConnectionSet::new([(future, Arc::clone(&flag))], None);
    let [member] = &set.members()[..] else {
        panic!("one member");
    };
    member.flush();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    member.flush();
    assert_eq!(count.load(Ordering::SeqCst), 2);
    // The runtime drops the task: one more flush, then the future is dropped.
    drop(set);
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
    // Its first poll lasts until the other thread has requested a flush.
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
    let mut set = ConnectionSet::new([(busy, Arc::clone(&flag))], None);
    let member = Arc::clone(&set.members[0]);
    let other = std::thread::spawn(move || {
        inside.wait();
        // The steps of `flush` up to where it finds the future locked.
        member.flush.ask();
        fence(Ordering::SeqCst);
        assert_eq!(member.try_poll(), None);
        asked.wait();
    });
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut set).poll(&mut cx).is_pending());
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
    let set = tokio::spawn(set(receivers.into_iter().map(member)));
    let senders = senders.into_iter().map(|sender| {
        tokio::task::spawn_blocking(move || {
            for _ in 0..TURNS {
                sender.send(()).unwrap();
                std::hint::spin_loop();
            }
            // Kept, so that the member waits for the last message, not for the end of the channel.
            sender
        })
    });
    let senders: Vec<_> = senders.collect();
    let within = Duration::from_secs(60);
    tokio::time::timeout(within, set).await.unwrap().unwrap();
    for sender in senders {
        sender.await.unwrap();
    }
}
