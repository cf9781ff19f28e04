//! The clients of a cluster that a test plays: they hold, share, wait, arrive and release on demand.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ringfence::{Held, Locks};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};

const TTL: Duration = Duration::from_secs(10);
/// The longest that the cluster allows, for thousands of locks: on a busy machine none may miss its
/// renewal.
const TTL_OF_MANY: Duration = Duration::from_secs(30);

/// See the module. Everything is released when it is dropped.
pub(super) struct Cast {
    demands: Option<UnboundedSender<Demand>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What to do, and where to answer.
type Demand = (Vec<String>, mpsc::Sender<String>);

/// The guards that are held, by name.
type Guards = Rc<RefCell<Vec<(String, Box<dyn Held>)>>>;

impl Cast {
    /// Clients of these nodes.
    pub(super) fn on(urls: &str) -> Self {
        let (demands, demanded) = unbounded_channel();
        let urls = urls.to_owned();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let tasks = LocalSet::new();
            let play = tasks.run_until(play(urls, demanded));
            runtime.expect("a runtime").block_on(play);
        });
        Self {
            demands: Some(demands),
            thread: Some(thread),
        }
    }

    /// Does what the words say, and returns once it is done.
    #[track_caller]
    pub(super) fn act(&mut self, words: &[&str]) -> String {
        let (answer, answered) = mpsc::channel();
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let demands = self.demands.as_ref().expect("not dropped");
        demands.send((words, answer)).expect("the thread runs");
        answered.recv().expect("the demand can be met")
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        self.demands = None;
        let ended = self.thread.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            ended.expect("joined once").expect("no client panicked");
        }
    }
}

async fn play(urls: String, mut demanded: UnboundedReceiver<Demand>) {
    let locks = Locks::connect(&urls).await.expect("a cluster");
    let guards = Guards::default();
    while let Some((words, answer)) = demanded.recv().await {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = meet(&locks, &guards, &words).await;
        // The test may have ended meanwhile.
        let _ = answer.send(said);
    }
    guards.borrow_mut().clear();
    locks.close().await;
}

async fn meet(locks: &Locks, guards: &Guards, words: &[&str]) -> String {
    let guard: Box<dyn Held> = match words {
        ["hold", name, label] => {
            let lock = locks.mutex(*name).label(label).ttl(TTL);
            Box::new(lock.lock().await.expect("free"))
        }
        ["share", name, label] => {
            let lock = locks.rw_lock(*name).label(label).ttl(TTL);
            Box::new(lock.read().await.expect("not held by a writer"))
        }
        ["permit", name, label] => {
            let semaphore = locks.semaphore(*name, 3).label(label).ttl(TTL);
            Box::new(semaphore.acquire().await.expect("a permit"))
        }
        ["lead", name, label] => {
            let election = locks.election(*name).label(label).ttl(TTL);
            Box::new(election.campaign().await.expect("no other leader"))
        }
        ["queue", name, label] => {
            let lock = locks.mutex(*name).label(label).ttl(TTL);
            let (guards, name) = (Rc::clone(guards), (*name).to_owned());
            spawn_local(async move {
                // Fails if the test ends before its turn comes.
                if let Ok(guard) = lock.lock().await {
                    guards.borrow_mut().push((name, Box::new(guard)));
                }
            });
            return String::new();
        }
        ["arrive", name, party] => {
            let latch = locks.latch(*name, 8).party(party);
            latch.arrive().await.expect("arrived");
            return String::new();
        }
        ["release", name] => {
            guards.borrow_mut().retain(|(held, _)| held != name);
            return String::new();
        }
        ["lost", name] => {
            let guard = taken_out(guards, name);
            let why = guard.lost().await;
            return format!("{why}: {}", guard.votes());
        }
        ["many", count] => {
            let count: usize = count.parse().expect("a number");
            hold_many(locks, guards, count).await;
            return String::new();
        }
        words => panic!("{words:?}"),
    };
    guards.borrow_mut().push((words[1].to_owned(), guard));
    String::new()
}

/// The guard of `name`, which is no longer among the guards.
fn taken_out(guards: &Guards, name: &str) -> Box<dyn Held> {
    let mut guards = guards.borrow_mut();
    let at = guards.iter().position(|(held, _)| held == name);
    guards.remove(at.expect("held")).1
}

async fn hold_many(locks: &Locks, guards: &Guards, count: usize) {
    for first in (0..count).step_by(100) {
        let tasks: Vec<_> = (first..count.min(first + 100))
            .map(|number| {
                let name = format!("lock {number}");
                let lock = locks
                    .mutex(&name)
                    .label(&format!("client {number}"))
                    .ttl(TTL_OF_MANY);
                spawn_local(async move { (name, lock.lock().await.expect("free")) })
            })
            .collect();
        for task in tasks {
            let (name, guard) = task.await.expect("no panic");
            guards.borrow_mut().push((name, Box::new(guard)));
        }
    }
}
