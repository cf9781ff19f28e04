//! A holder that is a process of its own, so that it can be stopped where it stands.
//!
//! The process is this very binary, started again: see `process`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use ringfence::resource::{Refused, Stamp};
use ringfence::{Guard, Locks};
use ringfence_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::late_replies;
use crate::stores::{Addresses, Store};

/// Longer than anything takes on a busy machine, shorter than anybody waits for a hung test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The name of the lock, and of the resource that it guards.
pub(crate) const LOCK: &str = "lock-of-balance";
pub(crate) const RESOURCE: &str = "balance";
/// Of a holder that will be stopped for longer.
pub(crate) const TTL: Duration = Duration::from_secs(2);

const TASK: &str = "RINGFENCE_TEST_TASK";
const NODES: &str = "RINGFENCE_TEST_NODES";
/// Stands before every line that is meant for the test: the test harness prints some of its own.
const MARK: &str = "> ";

/// A process that does what it is told, a line at a time, and answers with a line.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `task` as a client of `nodes`. What it says first is its first answer.
    pub(crate) fn start(task: &str, nodes: &str, addresses: Option<&Addresses>) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "holder::process", "--nocapture"])
            .env(TASK, task)
            .env(NODES, nodes)
            .envs(addresses.into_iter().flat_map(Addresses::variables))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// Tells it something. A stopped process hears it when it goes on.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Its next answer.
    pub(crate) fn answer(&mut self) -> String {
        let lines = &mut self.output;
        let mut answers =
            lines.filter_map(|line| Some(line.unwrap().split_once(MARK)?.1.to_owned()));
        answers.next().expect("the process has ended")
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// Stops it where it stands. It has stopped when this returns.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        wait_until("the process to stop", PATIENCE, || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        });
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a started process does. Nothing in one that nobody started as such.
#[test]
fn process() {
    let Ok(task) = env::var(TASK) else {
        return;
    };
    // The keeper has a thread of its own, so that it does its work while this one waits for a line.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let nodes = env::var(NODES).unwrap();
    match task.as_str() {
        "hold" => hold(&runtime, &nodes),
        "ask" => late_replies::ask(&runtime, &nodes),
        "ask plainly" => late_replies::ask_plainly(&runtime, &nodes),
        other => panic!("{other}"),
    }
}

pub(crate) fn say(answer: &str) {
    // On a line of its own, whatever the harness has begun.
    println!("\n{MARK}{answer}");
}

pub(crate) fn orders() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map(Result::unwrap)
}

/// Takes the lock, looks once whether it has it, says so, and from then on does as it is told, without
/// another look: as work does that was checked when it began.
fn hold(runtime: &tokio::runtime::Runtime, nodes: &str) {
    let mut stores = Addresses::inherited().open(RESOURCE);
    let guard: Guard = runtime.block_on(async {
        let locks = Locks::connect(nodes).await.unwrap();
        let lock = locks.mutex(LOCK).ttl(TTL).wait(PATIENCE);
        lock.lock().await.unwrap()
    });
    guard.check().unwrap();
    let stamp = Stamp::new(guard.token(), guard.fence());
    say(&format!("{} {stamp}", guard.fence()));
    for order in orders() {
        let answers: Vec<String> = stores
            .iter_mut()
            .map(|(name, store)| format!("{name} {}", obey(&mut **store, guard.fence(), &order)))
            .collect();
        say(&answers.join(", "));
    }
}

fn obey(store: &mut dyn Store, fence: u64, order: &str) -> String {
    let outcome = match order.split_once(' ').unwrap_or((order, "0")) {
        ("read", _) => store.read(fence),
        ("write", number) => {
            let number = number.parse().unwrap();
            store.write(fence, number).map(|()| number)
        }
        ("write-unfenced", number) => {
            store.write_unfenced(number.parse().unwrap());
            Ok(store.read_unfenced())
        }
        _ => panic!("{order}"),
    };
    match outcome {
        Ok(number) => format!("has {number}"),
        Err(Refused { fence, mark }) => format!("refused {fence} below {mark}"),
    }
}

/// The same answer of every store.
pub(crate) fn all(answer: &str) -> String {
    ["redis", "sqlite", "postgres"]
        .map(|store| format!("{store} {answer}"))
        .join(", ")
}
