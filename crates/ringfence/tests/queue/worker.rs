//! Other processes that take the lock: this test program, started again for a single test that does
//! something only in a process that was started for it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs, thread};

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use ringfence_testkit::{Fleet, Process, WallClock, wait_until_async};

/// The name of the lock that all processes take.
pub(crate) const NAME: &str = "the-one";
/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const NODES: &str = "RINGFENCE_TEST_NODES";
const CALLERS: &str = "RINGFENCE_TEST_CALLERS";

/// Starts this program again for the test `role` with `environment`. `on_line` gets its output
/// lines.
pub(crate) fn start(
    role: &str,
    environment: impl IntoIterator<Item = (String, String)>,
    mut on_line: impl FnMut(&str) + Send + 'static,
) -> Process {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", role, "--nocapture", "--test-threads=1"])
        .envs(environment)
        .stdout(Stdio::piped());
    let mut process = Process::spawn(&mut command);
    let lines = BufReader::new(process.take_stdout().unwrap()).lines();
    thread::spawn(move || lines.map_while(Result::ok).for_each(|line| on_line(&line)));
    process
}

/// The nodes and the number of callers, if this process was started as a worker.
pub(crate) fn assignment() -> Option<(String, usize)> {
    let callers = env::var(CALLERS).ok()?;
    Some((env::var(NODES).ok()?, callers.parse().unwrap()))
}

/// The environment of a worker with `callers` callers.
pub(crate) fn environment_for(nodes: &str, callers: usize) -> [(String, String); 2] {
    [
        (NODES.to_owned(), nodes.to_owned()),
        (CALLERS.to_owned(), callers.to_string()),
    ]
}

/// Runs the work of a worker.
pub(crate) fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work);
}

/// A process whose callers each take the lock once.
pub(crate) struct Waiters {
    process: Process,
    held: Receiver<Timestamp>,
    /// By how much its wall clock is ahead of ours.
    pub(crate) wall_clock_ahead_us: i64,
}

impl Waiters {
    /// Starts a process with `callers` callers, on `clock` if it is given.
    pub(crate) fn start(nodes: &str, callers: usize, clock: Option<&WallClock>) -> Self {
        let (to_held, held) = channel();
        let (to_wall, wall) = channel();
        let clock = clock.map(WallClock::environment).into_iter().flatten();
        let environment = environment_for(nodes, callers).into_iter().chain(clock);
        let process = start("queue::worker::waiters", environment, move |line| {
            // The test may have seen enough and have dropped the receivers.
            if let Some(nanos) = line.strip_prefix("held ") {
                let _ = to_held.send(Timestamp::from_nanos(nanos.parse().unwrap()));
            } else if let Some(us) = line.strip_prefix("wall ") {
                let _ = to_wall.send(us.parse::<i64>().unwrap() - wall_clock_us());
            }
        });
        let wall_clock_ahead_us = wall.recv_timeout(PATIENCE).expect("the process starts");
        Self {
            process,
            held,
            wall_clock_ahead_us,
        }
    }

    /// When the next of its callers got the lock.
    pub(crate) fn held(&self) -> Timestamp {
        self.held
            .recv_timeout(PATIENCE)
            .expect("a caller gets the lock in the end")
    }

    pub(crate) fn pause(&self) {
        self.process.pause();
    }

    /// SIGKILL, also while it is paused.
    pub(crate) fn kill(self) {
        drop(self.process);
    }

    /// The number of bytes from the server at `port` that the process has not read.
    pub(crate) fn unread_from(&self, port: u16) -> u64 {
        let folder = format!("/proc/{}", self.process.id());
        let open = fs::read_dir(format!("{folder}/fd")).unwrap();
        let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let open: Vec<String> = open.map(|link| link.display().to_string()).collect();
        let sockets = fs::read_to_string(format!("{folder}/net/tcp")).unwrap();
        let unread = sockets.lines().skip(1).filter_map(|socket| {
            let fields: Vec<&str> = socket.split_whitespace().collect();
            let is_ours = open.contains(&format!("socket:[{}]", fields[9]));
            let from_there = fields[2].ends_with(&format!(":{port:04X}"));
            let (_, unread) = fields[4].split_once(':')?;
            (is_ours && from_there).then(|| u64::from_str_radix(unread, 16).unwrap())
        });
        unread.sum()
    }
}

/// Waits until `count` tickets are in the queue of each of the `nodes` that answer.
#[track_caller]
pub(crate) fn until_in_queue(locks: &Locks, count: u64, nodes: usize) -> impl Future<Output = ()> {
    let what = format!("{count} in the queue of {nodes} nodes");
    async move {
        wait_until_async(&what, PATIENCE, async || {
            let Ok(inspection) = locks.inspect(NAME).await else {
                return false;
            };
            let views = inspection.nodes.iter();
            let views: Vec<_> = views.filter_map(|node| node.view.as_ref().ok()).collect();
            views.len() == nodes && views.iter().all(|view| view.waiting == count)
        })
        .await;
    }
}

/// A fleet that is initialised and votes, so that a node that loses its data is noticed.
pub(crate) async fn voting_fleet(nodes: usize) -> Fleet {
    let fleet = Fleet::start(nodes);
    let builder = Locks::builder().nodes(&fleet.urls());
    builder.init().await.unwrap();
    fleet
}

/// Only for the report of this process: the tests must not depend on the wall clock.
#[allow(clippy::disallowed_methods)]
fn wall_clock_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_micros() as i64
}

#[test]
fn waiters() {
    let Some((nodes, callers)) = assignment() else {
        return;
    };
    run(async {
        let locks = Locks::connect(&nodes).await.unwrap();
        println!("\nwall {}", wall_clock_us());
        let callers = (0..callers).map(|_| tokio::spawn(once(locks.clone())));
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    });
}

async fn once(locks: Locks) {
    // A thousand callers at once may keep the nodes of a busy machine from answering for a while.
    let lock = locks.mutex(NAME).no_quorum_after(2 * PATIENCE);
    let guard = lock.lock().await.unwrap();
    println!("held {}", Clock::System.now().as_nanos());
    guard.release().await.unwrap();
}
