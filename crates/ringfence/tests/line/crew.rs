//! Processes that take one lock again and again, and tell each time when they asked, held and let go.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{env, thread};

use ringfence::Locks;
use ringfence::clock::Clock;

const NODES: &str = "RINGFENCE_TEST_NODES";
const TASKS: &str = "RINGFENCE_TEST_TASKS";

/// How long each holds.
const HOLD: Duration = Duration::from_millis(1);

/// One time that somebody held the lock, on the clock that all processes of a machine share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) process: usize,
    pub(crate) asked_ns: u64,
    pub(crate) held_ns: u64,
    pub(crate) left_ns: u64,
    pub(crate) fence: u64,
}

/// Processes that are at it until they are dropped.
pub(crate) struct Crew {
    children: Vec<Child>,
    turns: Receiver<Turn>,
}

impl Crew {
    pub(crate) fn start(nodes: &str, processes: usize, tasks: usize) -> Self {
        let (sender, turns) = channel();
        let children = (0..processes).map(|process| start(nodes, tasks, process, &sender));
        Self {
            children: children.collect(),
            turns,
        }
    }

    /// The next `count` turns, in the order in which they were told.
    pub(crate) fn turns(&self, count: usize) -> Vec<Turn> {
        let next = || self.turns.recv_timeout(Duration::from_secs(30));
        (0..count)
            .map(|done| next().unwrap_or_else(|_| panic!("stuck after {done} turns")))
            .collect()
    }

    pub(crate) fn kill(&mut self, process: usize) {
        self.children[process].kill().unwrap();
        self.children[process].wait().unwrap();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(nodes: &str, tasks: usize, process: usize, to: &Sender<Turn>) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crew::member", "--nocapture", "--test-threads=1"])
        .env(NODES, nodes)
        .env(TASKS, tasks.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let to = to.clone();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
            if let Ok([asked_ns, held_ns, left_ns, fence]) = numbers.as_deref() {
                // Whoever started the crew has seen enough.
                let _ = to.send(Turn {
                    process,
                    asked_ns: *asked_ns,
                    held_ns: *held_ns,
                    left_ns: *left_ns,
                    fence: *fence,
                });
            }
        }
    });
    child
}

/// What a member of a crew does. Nothing in a process that nobody started as one.
#[test]
fn member() {
    let (Ok(nodes), Ok(tasks)) = (env::var(NODES), env::var(TASKS)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&nodes).await.unwrap();
        let tasks = (0..tasks.parse().unwrap()).map(|_| tokio::spawn(work(locks.clone())));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

async fn work(locks: Locks) {
    let now_ns = || Clock::System.now().as_nanos();
    loop {
        let asked_ns = now_ns();
        let guard = locks.mutex("the-one").lock().await.unwrap();
        let held_ns = now_ns();
        tokio::time::sleep(HOLD).await;
        let (left_ns, fence) = (now_ns(), guard.fence());
        guard.release().await.unwrap();
        println!("{asked_ns} {held_ns} {left_ns} {fence}");
    }
}
