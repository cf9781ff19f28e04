//! Many at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence::{Guard, Locks};
use ringfence_testkit::{Fleet, wait_until_async};
use tokio::task::JoinSet;

use crate::stage::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_tasks_one_is_inside_and_fences_rise_in_grant_order() {
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

/// Where the machine itself stands still for most of a TTL, locks are lost and have to be; then it is
/// tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_guards_are_renewed_and_none_is_lost() {
    const STANDSTILL: Duration = Duration::from_millis(100);
    for _ in 0..5 {
        let pulse = Pulse::start();
        let lost = lost_of_a_thousand().await;
        let longest = pulse.longest_gap();
        if lost == 0 {
            return;
        }
        assert!(
            longest > STANDSTILL,
            "{lost} lost, and only {longest:?} of standstill"
        );
    }
    panic!("the machine stood still every time");
}

/// Holds a thousand locks with a TTL of one second for three, and counts those that were lost.
async fn lost_of_a_thousand() -> usize {
    let fleet = Fleet::start(3);
    // A third of the TTL to answer: on a busy machine a tenth would only make everybody ask twice.
    let patient = Locks::builder().node_timeout(Duration::from_secs(1));
    let locks = patient
        .nodes(&fleet.urls_without_quarantine())
        .ttl(Duration::from_secs(3))
        .connect()
        .await
        .unwrap();
    let mut guards = Vec::new();
    // Not all in one instant, so that they are not all renewed in one.
    for number in 0..1_000 {
        guards.push(locks.mutex(format!("n{number}")).lock().await.unwrap());
    }
    let end = now() + Duration::from_secs(5);
    // Past it by the nodes' word, not only by the clock. Whoever is lost stays lost.
    wait_until_async("five seconds of holding", PATIENCE, async || {
        let is_over = |guard: &Guard| guard.deadline() > end || guard.check().is_err();
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

/// Notices when the machine stands still: a thread that does nothing but look at the clock.
struct Pulse {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Pulse {
    fn start() -> Self {
        const BEAT: Duration = Duration::from_millis(10);
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let (mut longest, mut last) = (Duration::ZERO, now());
            while stopped.recv_timeout(BEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
                longest = longest.max(now().since(last));
                last = now();
            }
            longest
        });
        Self { stop, thread }
    }

    fn longest_gap(self) -> Duration {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}
