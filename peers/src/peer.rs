//! One running client: sends commands as lines and receives one line for each.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::library::Library;
use crate::toolchain::Missing;

/// A client in its own process. Dropping it ends the process.
#[derive(Debug)]
pub struct Peer {
    library: Library,
    child: Arc<Mutex<Child>>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The result of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How often each task had the lock.
    pub counts: Vec<u64>,
    /// From the beginning until the last task was done.
    pub took_us: f64,
    /// The median of what was timed: lock and release, or the wait where the lock is held for a
    /// time.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
}

impl Peer {
    /// Starts `library` on `urls`. `rust` is the command that runs the program of the Rust clients.
    ///
    /// # Errors
    /// [`Missing`] if its toolchain, or a package that it would install, is not available.
    ///
    /// # Panics
    /// If the program does not start although everything is there.
    pub fn start(library: Library, urls: &str, rust: &Command) -> Result<Self, Missing> {
        let mut command = library.toolchain().command(rust)?;
        let mut child = command
            .args([library.argument(), urls])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|failure| panic!("{library}: {failure}"));
        let input = child.stdin.take().expect("a piped input");
        let output = BufReader::new(child.stdout.take().expect("a piped output"));
        let mut peer = Self {
            library,
            child: Arc::new(Mutex::new(child)),
            input,
            output,
        };
        assert_eq!(peer.receive(), "ready", "{library} did not start");
        Ok(peer)
    }

    /// The client's library.
    pub fn library(&self) -> Library {
        self.library
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .id()
    }

    /// Makes one attempt to take `name`. Returns whether it holds it now.
    ///
    /// # Panics
    /// Here and below: if the client fails in any other way than by a refusal.
    pub fn try_lock(&mut self, name: &str, ttl_ms: u64) -> bool {
        match self.ask(&format!("try {name} {ttl_ms}")).as_str() {
            "held" => true,
            "refused" => false,
            other => panic!("{}: {other}", self.library),
        }
    }

    /// Releases what [`try_lock`](Self::try_lock) took.
    pub fn release(&mut self) {
        let reply = self.ask("release");
        assert_eq!(reply, "released", "{}", self.library);
    }

    /// Sends a command without waiting for its answer; see [`receive`](Self::receive).
    pub fn send(&mut self, command: &str) {
        writeln!(self.input, "{command}")
            .unwrap_or_else(|failure| panic!("{}: {failure}", self.library));
    }

    /// The next line that it prints.
    pub fn receive(&mut self) -> String {
        self.next_line()
            .unwrap_or_else(|why| panic!("{}: {why}", self.library))
    }

    fn next_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("it ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Sends a command and waits for its answer.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.receive()
    }

    /// Runs a workload. `Err` is the client's answer instead of a report, or a timeout after
    /// `patience`; then its process is ended, and it cannot be used any more.
    pub fn run_within(&mut self, patience: Duration, command: &str) -> Result<Report, String> {
        self.send(command);
        let (done, waiting) = channel::<()>();
        let child = Arc::clone(&self.child);
        let watchman = thread::spawn(move || {
            let hung = waiting.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if hung {
                end(&child);
            }
            hung
        });
        let reply = self.next_line();
        drop(done);
        if watchman.join().unwrap_or_default() {
            return Err(format!("no answer within {patience:?}"));
        }
        let reply = reply?;
        Report::parse(&reply).ok_or(reply)
    }
}

/// Ends the process, if it has not ended already.
fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Peer {
    fn drop(&mut self) {
        end(&self.child);
    }
}

impl Report {
    fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let counts = value["counts"].as_array()?.iter();
        Some(Self {
            counts: counts.map(Value::as_u64).collect::<Option<_>>()?,
            took_us: value["took_us"].as_f64()?,
            p50_us: value["p50_us"].as_f64()?,
            p99_us: value["p99_us"].as_f64()?,
        })
    }

    /// The report of several processes that ran at the same time: all their tasks, the longest
    /// time, and the worst of the percentiles.
    pub fn together(reports: Vec<Self>) -> Self {
        let worst = |figure: fn(&Self) -> f64| reports.iter().map(figure).fold(0.0, f64::max);
        Self {
            took_us: worst(|report| report.took_us),
            p50_us: worst(|report| report.p50_us),
            p99_us: worst(|report| report.p99_us),
            counts: reports
                .into_iter()
                .flat_map(|report| report.counts)
                .collect(),
        }
    }

    /// How often the lock was taken, by all tasks.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How often per second.
    pub fn per_second(&self) -> f64 {
        self.total() as f64 / (self.took_us / 1e6)
    }

    /// Jain's index: 1 if all tasks had the same share, 1/n if one had everything.
    pub fn fairness(&self) -> f64 {
        let squares: f64 = self
            .counts
            .iter()
            .map(|&count| (count as f64).powi(2))
            .sum();
        (self.total() as f64).powi(2) / (self.counts.len() as f64 * squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_anything_else_is_not() {
        let report = Report::parse(r#"{"counts":[3,1],"took_us":2000000,"p50_us":1.5,"p99_us":9}"#);
        let report = report.expect("a report");
        assert_eq!((report.total(), report.per_second()), (4, 2.0));
        assert!((report.fairness() - 0.8).abs() < 1e-9);
        let other = Report::parse(r#"{"counts":[2],"took_us":1000000,"p50_us":7,"p99_us":8}"#);
        let both = Report::together(vec![report, other.expect("a report")]);
        assert_eq!((both.total(), both.counts.len()), (6, 3));
        assert_eq!((both.took_us, both.p50_us, both.p99_us), (2e6, 7.0, 9.0));
        assert_eq!(Report::parse("error refused"), None);
        assert_eq!(
            Report::parse(r#"{"counts":[-1],"took_us":1,"p50_us":1,"p99_us":1}"#),
            None
        );
    }
}
