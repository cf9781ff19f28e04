//! Many callers and many guards at once.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence::{Guard, Locks};
use ringfence_testkit::{Fleet, wait_until_async};
use tokio::task::JoinSet;

use crate::fleet::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_tasks_one_holds_at_a_time_and_fences_rise_in_grant_order() {
    let fleet = Fleet::start(3);
    let clients = [client_of(&fleet).await, client_of(&fleet).await];
    let inside = Arc::new(AtomicBool::new(false));
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let locks = clients[task % clients.len()].clone();
        let (inside, fences) = (Arc::clone(&inside), Arc::clone(&fences));
        tasks.spawn(async move {
            let guard = locks.mutex("n").lock().await.unwrap();
            assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
            fences.lock().unwrap().push(guard.fence());
            tokio::task::yield_now().await;
            assert!(inside.swap(false, Ordering::SeqCst));
            guard.release().await.unwrap();
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let fences = fences.lock().unwrap().clone();
    assert_eq!(fences.len(), 64);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    no_key_remains(fleet.iter()).await;
}

/// If the machine gives the client no processor time for most of a TTL, locks are lost, and must
/// be. Then the test is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_guards_are_renewed_and_none_is_lost() {
    for _ in 0..3 {
        let machine = Machine::watch();
        let lost = lost_of_a_thousand().await;
        let spent = machine.spent();
        if lost == 0 {
            return;
        }
        assert!(spent.is_starvation(), "{lost} lost: {spent:?}");
    }
    panic!("the machine was too busy every time");
}

/// Holds a thousand locks with a TTL of three seconds for five, and counts the locks that were
/// lost.
async fn lost_of_a_thousand() -> usize {
    let fleet = Fleet::start(3);
    // A third of the TTL to answer: with a tenth, every call would be sent twice on a busy machine.
    let patient = Locks::builder().node_timeout(Duration::from_secs(1));
    let locks = patient
        .nodes(&fleet.urls_without_quarantine())
        .ttl(Duration::from_secs(3))
        .connect()
        .await
        .unwrap();
    let mut guards = Vec::new();
    // Not all at the same instant, so that the renewals are spread, too.
    for number in 0..1_000 {
        guards.push(locks.mutex(format!("n{number}")).lock().await.unwrap());
    }
    let end = now() + Duration::from_secs(5);
    // The nodes confirmed it, not only the clock. A lost lock stays lost.
    wait_until_async("five seconds of holding", PATIENCE, async || {
        let is_over = |guard: &Guard| guard.exact_deadline() > end || guard.check().is_err();
        guards.iter().all(is_over)
    })
    .await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    if lost == 0 {
        for server in fleet.iter() {
            assert_eq!(lock_keys(server).len(), 1_000);
        }
    }
    drop(guards);
    locks.close().await;
    no_key_remains(fleet.iter()).await;
    lost
}

/// Measures whether the machine let the client work.
struct Machine {
    before: Spent,
    stop: mpsc::Sender<()>,
    pulse: JoinHandle<Duration>,
}

#[derive(Debug, Default)]
struct Spent {
    /// How long the threads of tokio ran, and how long they were ready but got no processor.
    running: Duration,
    waiting: Duration,
    /// The longest pause of a thread that only looks at the clock.
    pause: Duration,
}

impl Machine {
    fn watch() -> Self {
        const BEAT: Duration = Duration::from_millis(10);
        let (stop, stopped) = mpsc::channel();
        let pulse = thread::spawn(move || {
            let (mut longest, mut last) = (Duration::ZERO, now());
            while stopped.recv_timeout(BEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
                longest = longest.max(now().since(last));
                last = now();
            }
            longest
        });
        let before = Spent::by_workers();
        Self {
            before,
            stop,
            pulse,
        }
    }

    fn spent(self) -> Spent {
        drop(self.stop);
        let after = Spent::by_workers();
        Spent {
            running: after.running.saturating_sub(self.before.running),
            waiting: after.waiting.saturating_sub(self.before.waiting),
            pause: self.pulse.join().unwrap(),
        }
    }
}

impl Spent {
    /// On an idle machine the threads run longer than they wait. A client that blocks, spins or
    /// forgets does not wait for a processor, so its losses are not excused.
    fn is_starvation(&self) -> bool {
        self.waiting > self.running * 3 || self.pause > Duration::from_millis(300)
    }

    /// What the system reports of all threads of tokio so far.
    fn by_workers() -> Self {
        let mut sum = Self::default();
        for thread in fs::read_dir("/proc/self/task").unwrap() {
            let folder = thread.unwrap().path();
            // A thread may have ended meanwhile.
            let read = |file| fs::read_to_string(folder.join(file)).unwrap_or_default();
            if read("comm").starts_with("tokio") {
                let times = read("schedstat");
                let mut times = times.split(' ').filter_map(|nanos| nanos.parse().ok());
                sum.running += Duration::from_nanos(times.next().unwrap_or(0));
                sum.waiting += Duration::from_nanos(times.next().unwrap_or(0));
            }
        }
        sum
    }
}
