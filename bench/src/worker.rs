//! Other processes that take a lock: this program, started again.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Lock, Locks};
use ringfence_core::time::Timestamp;
use ringfence_peers::serve::pause;
use ringfence_testkit::Process;

/// How many processes share the callers.
pub(crate) const PROCESSES: usize = 4;
/// How long each caller holds the lock.
const HOLD: Duration = Duration::from_millis(1);

/// One hold of the lock. All processes of a machine share the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) held: Timestamp,
    pub(crate) left: Timestamp,
}

/// Processes whose callers take one lock repeatedly until this is dropped.
pub(crate) struct Crew {
    _processes: Vec<Process>,
    turns: Receiver<Turn>,
}

impl Crew {
    pub(crate) fn start(nodes: &str, name: &str, callers: usize) -> Self {
        let (sender, turns) = channel();
        let processes = (0..PROCESSES).map(|_| {
            let callers = (callers / PROCESSES).to_string();
            let mut command = Command::new(env::current_exe().expect("this program"));
            command.args(["work", nodes, name, &callers]);
            let mut process = Process::spawn(command.stdout(Stdio::piped()));
            let lines = BufReader::new(process.take_stdout().expect("a pipe")).lines();
            let sender = sender.clone();
            thread::spawn(move || {
                for turn in lines.map_while(Result::ok).filter_map(|line| read(&line)) {
                    // The receiver may have ended already.
                    let _ = sender.send(turn);
                }
            });
            process
        });
        Self {
            _processes: processes.collect(),
            turns,
        }
    }

    /// The next `count` holds, in order.
    pub(crate) fn turns(&self, count: usize) -> Vec<Turn> {
        let turns = (0..count).map(|_| self.turns.recv().expect("the processes are running"));
        let mut turns: Vec<Turn> = turns.collect();
        turns.sort_unstable();
        turns
    }
}

fn read(line: &str) -> Option<Turn> {
    let (held, left) = line.split_once(' ')?;
    Some(Turn {
        held: Timestamp::from_nanos(held.parse().ok()?),
        left: Timestamp::from_nanos(left.parse().ok()?),
    })
}

/// The work of such a process.
pub(crate) async fn work(nodes: &str, name: &str, callers: usize) {
    let locks = Locks::connect(nodes).await.expect("a client");
    let callers = (0..callers).map(|_| tokio::spawn(take_turns(locks.mutex(name))));
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no panic");
    }
}

async fn take_turns(lock: Lock) {
    loop {
        let guard = lock.lock().await.expect("a lock");
        let held = Clock::System.now();
        pause(HOLD).await;
        let left = Clock::System.now();
        guard.release().await.expect("a release");
        println!("{} {}", held.as_nanos(), left.as_nanos());
    }
}
