//! A holder that is a separate process, so that a test can stop it at any point.
//!
//! The process is this test program, started again: see `process`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use ringfence::resource::{Refused, Stamp};
use ringfence::{Guard, Locks};
use ringfence_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::resource::late_replies;
use crate::resource::stores::{Addresses, Store};

/// Longer than anything takes on a busy machine, and shorter than a hung test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The name of the lock, and of the resource that it guards.
pub(crate) const LOCK: &str = "lock-of-balance";
pub(crate) const RESOURCE: &str = "balance";
/// The TTL of a holder that will be stopped for longer.
pub(crate) const TTL: Duration = Duration::from_secs(2);

const TASK: &str = "RINGFENCE_TEST_TASK";
const NODES: &str = "RINGFENCE_TEST_NODES";
/// The prefix of every line that is meant for the test: the test harness prints lines of its own.
const MARK: &str = "> ";

/// A process that executes commands, one per line, and answers each with a line.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `task` as a client of `nodes`. Its first line is its first answer.
    pub(crate) fn start(task: &str, nodes: &str, addresses: Option<&Addresses>) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "resource::holder::process", "--nocapture"])
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

    /// Sends a command. A stopped process reads it when it continues.
    pub(crate) fn send(&mut self, line: &str) {
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
        self.send(line);
        self.answer()
    }

    /// Stops the process at its present point. It has stopped when this returns.
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

/// The program of a started process. In every other process it does nothing.
#[test]
fn process() {
    let Ok(task) = env::var(TASK) else {
        return;
    };
    // The keeper has its own thread, so that it works while this one waits for a line.
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

pub(crate) fn report(answer: &str) {
    // On its own line, whatever the harness has printed before.
    println!("\n{MARK}{answer}");
}

pub(crate) fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map(Result::unwrap)
}

/// Takes the lock, checks once that it holds it, reports that, and then executes commands without
/// another check, like work that was checked when it began.
fn hold(runtime: &tokio::runtime::Runtime, nodes: &str) {
    let mut stores = Addresses::inherited().open(RESOURCE);
    let guard: Guard = runtime.block_on(async {
        let locks = Locks::connect(nodes).await.unwrap();
        let lock = locks.mutex(LOCK).ttl(TTL).wait(PATIENCE);
        lock.lock().await.unwrap()
    });
    guard.check().unwrap();
    let stamp = Stamp::new(guard.token(), guard.fence());
    report(&format!("{} {stamp}", guard.fence()));
    for command in commands() {
        let answers: Vec<String> = stores
            .iter_mut()
            .map(|(name, store)| {
                format!("{name} {}", execute(&mut **store, guard.fence(), &command))
            })
            .collect();
        report(&answers.join(", "));
    }
}

fn execute(store: &mut dyn Store, fence: u64, command: &str) -> String {
    let outcome = match command.split_once(' ').unwrap_or((command, "0")) {
        ("read", _) => store.read(fence),
        ("write", number) => {
            let number = number.parse().unwrap();
            store.write(fence, number).map(|()| number)
        }
        ("write-unfenced", number) => {
            store.write_unfenced(number.parse().unwrap());
            Ok(store.read_unfenced())
        }
        _ => panic!("{command}"),
    };
    match outcome {
        Ok(number) => format!("has {number}"),
        Err(Refused { fence, mark }) => format!("refused {fence} below {mark}"),
    }
}

/// The same answer from every store.
pub(crate) fn all(answer: &str) -> String {
    ["redis", "sqlite", "postgres"]
        .map(|store| format!("{store} {answer}"))
        .join(", ")
}
