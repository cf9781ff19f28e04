//! Blocking code under a guard, on every kind of tokio runtime. The tests with Sentinels use it, too.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ringfence::{AcquireError, Locks};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// The TTL of the locks. A busy machine may stop a process for a second.
pub(crate) const SHORT_TTL: Duration = Duration::from_secs(2);

/// How long the code blocks: several TTLs, or a minute in a long run.
pub(crate) fn blocked_for() -> Duration {
    match std::env::var_os("RINGFENCE_LONG") {
        None => SHORT_TTL * 3,
        Some(_) => Duration::from_secs(60),
    }
}

/// The tokio runtimes in which the code blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    /// Several threads, of which all but one are idle.
    MultiThread,
    CurrentThread,
    LocalSet,
}

impl On {
    pub(crate) fn run<F>(self, work: F) -> F::Output
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self {
            Self::MultiThread => {
                several_threads().block_on(async { tokio::spawn(work).await.unwrap() })
            }
            Self::CurrentThread => one_thread().block_on(work),
            Self::LocalSet => LocalSet::new().block_on(&one_thread(), async {
                tokio::task::spawn_local(work).await.unwrap()
            }),
        }
    }
}

pub(crate) fn several_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(8).enable_all().build().unwrap()
}

pub(crate) fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// On each kind of tokio runtime, code that blocks right after `lock()` keeps its lock. Another client
/// tries to get it all the time.
pub(crate) fn keeps_its_lock_everywhere(urls: &str) {
    thread::scope(|scope| {
        for on in [On::MultiThread, On::CurrentThread, On::LocalSet] {
            scope.spawn(move || keeps_its_lock(on, urls));
        }
    });
}

fn keeps_its_lock(on: On, urls: &str) {
    let name = format!("blocked-{on:?}");
    let (over, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let nodes = urls.to_owned();
        let lock = name.clone();
        let (over, tried) = (&over, &tried);
        let (held, is_held) = std::sync::mpsc::channel();
        let name = &name;
        scope.spawn(move || {
            is_held.recv().unwrap();
            let rival = one_thread();
            let locks = rival.block_on(Locks::connect(urls)).unwrap();
            while !over.load(Ordering::SeqCst) {
                let tried_now = rival.block_on(locks.mutex(name).try_lock());
                let refused = matches!(tried_now, Err(AcquireError::Held { .. }));
                // After the last check it may be released.
                let is_over = over.load(Ordering::SeqCst);
                assert!(refused || is_over, "{on:?}: {tried_now:?}");
                tried.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let kept = on.run(async move {
            let locks = Locks::connect(&nodes).await.unwrap();
            let guard = locks.mutex(lock).ttl(SHORT_TTL).lock().await.unwrap();
            held.send(()).unwrap();
            thread::sleep(blocked_for());
            let kept = guard.check();
            (kept, guard, locks)
        });
        let (kept, guard, locks) = kept;
        over.store(true, Ordering::SeqCst);
        assert_eq!(kept, Ok(()), "{on:?}");
        // Its tokio runtime has ended.
        drop((guard, locks));
    });
    assert!(tried.load(Ordering::SeqCst) > 5, "{on:?}");
}
