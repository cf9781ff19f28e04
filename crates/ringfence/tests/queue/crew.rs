//! Processes that take one lock again and again, and report when they held and released it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Locks, ReleaseError};
use ringfence_testkit::Process;

use crate::queue::witness::{Book, Stub};
use crate::queue::worker::{self, NAME, PATIENCE};

/// How long each caller holds the lock.
const HOLD: Duration = Duration::from_millis(1);

/// One hold of the lock, with times on the clock that all processes of a machine share.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) process: usize,
    pub(crate) held_ns: u64,
    pub(crate) left_ns: u64,
    pub(crate) fence: u64,
    /// The ticket with which it was granted; `None` if the caller found the queue empty.
    pub(crate) ticket: Option<Stub>,
}

/// Processes that work until they are dropped.
pub(crate) struct Crew {
    processes: Vec<Option<Process>>,
    turns: Receiver<Turn>,
}

impl Crew {
    pub(crate) fn start(nodes: &str, processes: usize, callers: usize) -> Self {
        let (sender, turns) = channel();
        let processes = (0..processes).map(|process| {
            let sender = sender.clone();
            let environment = worker::environment_for(nodes, callers);
            Some(worker::start(
                "queue::crew::member",
                environment,
                move |line| {
                    if let Some(turn) = read(process, line) {
                        // The test may have seen enough and have dropped the receiver.
                        let _ = sender.send(turn);
                    }
                },
            ))
        });
        Self {
            processes: processes.collect(),
            turns,
        }
    }

    /// The next `count` turns, in the order in which they were reported.
    pub(crate) fn turns(&self, count: usize) -> Vec<Turn> {
        let next = || self.turns.recv_timeout(Duration::from_secs(30));
        (0..count)
            .map(|done| next().unwrap_or_else(|_| panic!("stuck after {done} turns")))
            .collect()
    }

    pub(crate) fn kill(&mut self, process: usize) {
        self.processes[process] = None;
    }
}

/// A turn as [`member`] writes it, if `line` is one.
fn read(process: usize, line: &str) -> Option<Turn> {
    let words: Vec<&str> = line.strip_prefix("turn ")?.split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap();
    Some(Turn {
        process,
        held_ns: number(0),
        left_ns: number(1),
        fence: number(2),
        ticket: (words[3] != "-").then(|| Stub {
            since_us: number(3),
            id: words[4].to_owned(),
            on_majority_ns: words[5].parse().ok(),
        }),
    })
}

/// The work of one process of a crew.
#[test]
fn member() {
    let Some((nodes, callers)) = worker::assignment() else {
        return;
    };
    worker::run(async {
        let (nodes, book) = Book::open(&nodes);
        let builder = nodes
            .into_iter()
            .fold(Locks::builder(), |b, node| b.node(node));
        let locks = builder.connect().await.unwrap();
        println!();
        let callers = (0..callers).map(|caller| {
            let (locks, book) = (locks.clone(), Arc::clone(&book));
            tokio::spawn(async move { work(&locks, &book, &format!("caller {caller}")).await })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    });
}

async fn work(locks: &Locks, book: &Book, label: &str) {
    let now_ns = || Clock::System.now().as_nanos();
    loop {
        let lock = locks.mutex(NAME).label(label).no_quorum_after(PATIENCE);
        let guard = lock.lock().await.unwrap();
        let held_ns = now_ns();
        let ticket = match book.take(label) {
            None => "-".to_owned(),
            Some(stub) => {
                let on_majority_ns = stub
                    .on_majority_ns
                    .map_or("-".to_owned(), |ns| ns.to_string());
                format!("{} {} {on_majority_ns}", stub.since_us, stub.id)
            }
        };
        tokio::time::sleep(HOLD).await;
        let (left_ns, fence) = (now_ns(), guard.fence());
        // A holder on a node that has just died gets no confirmation from it; the others confirm.
        match guard.release().await {
            Ok(()) | Err(ReleaseError::Unconfirmed) => {}
            Err(error) => panic!("{error}"),
        }
        println!("turn {held_ns} {left_ns} {fence} {ticket}");
    }
}
