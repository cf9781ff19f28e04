//! A long run must not use more and more: memory, file descriptors and threads of client processes
//! that live as long as the run, and keys on the nodes. Sampled once a second; the middles of the
//! second and the last quarter are compared.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::invariants::Violation;

use super::journal::now_us;
use super::servers::Servers;

const PERIOD: Duration = Duration::from_secs(1);

/// What one process uses at one time.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    memory_kb: u64,
    descriptors: u64,
    threads: u64,
}

/// What is used at one time.
#[derive(Debug, Clone, Default)]
struct Sample {
    clients: Vec<Use>,
    /// On all nodes that answer.
    keys: Vec<u64>,
}

/// The samples of a run.
#[derive(Debug, Clone)]
pub(super) struct Samples {
    clients: Vec<usize>,
    samples: Vec<Sample>,
}

impl Samples {
    /// Samples until `over`. `clients` are the processes to look at: index and process id.
    pub(super) fn take(clients: &[(usize, u32)], servers: &Servers, over: &AtomicBool) -> Self {
        let mut samples = Vec::new();
        while !over.load(Ordering::SeqCst) {
            samples.push(Sample {
                clients: clients.iter().filter_map(|(_, id)| Use::of(*id)).collect(),
                keys: servers.keys(),
            });
            std::thread::sleep(PERIOD);
        }
        Self {
            clients: clients.iter().map(|(index, _)| *index).collect(),
            samples,
        }
    }

    /// How each figure changed.
    pub(super) fn growth(&self) -> Growth {
        let mut lines = Vec::new();
        for (at, index) in self.clients.iter().enumerate() {
            let of = |figure: fn(&Use) -> u64| {
                let used = self.samples.iter().filter_map(|one| one.clients.get(at));
                used.map(figure).collect::<Vec<u64>>()
            };
            let mut add = |what: &str, values: Vec<u64>, slack: u64| {
                lines.push(Line::new(format!("client {index}: {what}"), &values, slack));
            };
            // An allocator keeps some pages of bursts, and faults open and close connections.
            add("memory in kB", of(|used| used.memory_kb), 4_096);
            add("file descriptors", of(|used| used.descriptors), 16);
            add("threads", of(|used| used.threads), 8);
        }
        let sum = |sample: &Sample| sample.keys.iter().sum::<u64>() / sample.keys.len() as u64;
        let answered = self.samples.iter().filter(|one| !one.keys.is_empty());
        let keys: Vec<u64> = answered.map(sum).collect();
        lines.push(Line::new("keys of a node".to_owned(), &keys, 50));
        Growth {
            samples: self.samples.len(),
            lines,
        }
    }
}

impl Use {
    /// What the process `id` uses now; nothing if it has ended.
    fn of(id: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            memory_kb: number("VmRSS:")?,
            threads: number("Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{id}/fd")).ok()?.count() as u64,
        })
    }
}

/// How much more was used at the end of a run than early in it.
#[derive(Debug, Clone)]
pub struct Growth {
    samples: usize,
    lines: Vec<Line>,
}

#[derive(Debug, Clone)]
struct Line {
    what: String,
    early: u64,
    late: u64,
    most: u64,
    /// How much more is not yet growth.
    slack: u64,
}

impl Line {
    fn new(what: String, values: &[u64], slack: u64) -> Self {
        let quarter = values.len() / 4;
        let middle = |values: &[u64]| {
            let mut sorted = values.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        };
        Self {
            what,
            early: middle(&values[quarter..2 * quarter]),
            late: middle(&values[values.len() - quarter..]),
            most: values.iter().copied().max().unwrap_or_default(),
            slack,
        }
    }

    fn grows(&self) -> bool {
        self.late > self.early + self.early / 10 + self.slack
    }
}

impl Growth {
    /// A violation for each figure that grew.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let grown = self.lines.iter().filter(|line| line.grows());
        let violation = |line: &Line| Violation {
            invariant: "growth",
            at_us: now_us(),
            how: format!("{}: {} early, {} late", line.what, line.early, line.late),
        };
        grown.map(violation).collect()
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} samples; middle of the second quarter, of the last, and the most:",
            self.samples
        )?;
        for line in &self.lines {
            let Line {
                what,
                early,
                late,
                most,
                ..
            } = line;
            writeln!(f, "  {what}: {early}, {late}, {most}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grows(keys: impl Fn(u64) -> u64) -> bool {
        let sample = |at: u64| Sample {
            clients: vec![Use::of(std::process::id()).unwrap()],
            keys: vec![keys(at), keys(at)],
        };
        let samples = Samples {
            clients: vec![0],
            samples: (0..80).map(sample).collect(),
        };
        let growth = samples.growth();
        assert!(growth.to_string().contains("client 0: threads"), "{growth}");
        !growth.violations().is_empty()
    }

    #[test]
    fn what_grows_is_found_and_what_goes_up_and_down_is_not() {
        assert!(grows(|at| 100 + 10 * at));
        assert!(!grows(|at| 100 + at % 7 * 100), "up and down");
        assert!(!grows(|at| if at < 5 { 0 } else { 500 }), "it begins");
    }
}
