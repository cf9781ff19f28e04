//! A schedule, made completely before it is run: which client asks for what and when, and which
//! faults happen. A seed decides it. Because it is a list, parts of it can be left out while it
//! still breaks the same invariant. The steps are in `step.rs`, the faults in `fault.rs`.

mod fault;
mod step;

use std::fmt::Write as _;
use std::time::Duration;

use ringfence_core::group::Group;

pub use fault::{Fault, FaultAction, Moved, Ways};
pub use step::{End, Step, Want};

/// A schedule.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed that it was made from; it also decides every delay.
    pub seed: u64,
    /// The values of the group.
    pub group: Group,
    /// What clients subtract from a TTL: a fraction, and a fixed part.
    pub drift: (f64, Duration),
    /// The shortest and the longest delay of a message, in nanoseconds.
    pub delay: (u64, u64),
    /// The lock servers.
    pub nodes: Vec<NodePlan>,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// What the clients do.
    pub steps: Vec<Step>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The Sentinels of the only node; `None` without.
    pub sentinels: Option<SentinelsPlan>,
    /// Whether renewals also take a second connection, whose messages have no order with those of
    /// the first.
    pub two_lines: bool,
    /// From this time on there are no faults.
    pub healed: Duration,
}

/// A lock server.
#[derive(Debug, Clone, Copy)]
pub struct NodePlan {
    /// How fast its clock runs, in parts per million of true time.
    pub rate: u64,
    /// The offset of its clock, in microseconds.
    pub ahead_us: i64,
    /// Whether it keeps all its data over a crash.
    pub durable: bool,
}

/// A client: one process with one connection to each node.
#[derive(Debug, Clone, Copy)]
pub struct ClientPlan {
    /// How fast its clock runs, in parts per million of true time.
    pub rate: u64,
    /// When it starts.
    pub start: Duration,
    /// The machine that it runs on.
    pub host: usize,
}

/// The Sentinels that watch the only node and its standby.
#[derive(Debug, Clone)]
pub struct SentinelsPlan {
    /// How many there are.
    pub count: usize,
    /// Of each client, the Sentinels that it knows.
    pub lists: Vec<Vec<usize>>,
}

/// The parts of a plan that are run: indices in its lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The steps.
    pub steps: Vec<usize>,
    /// The faults.
    pub faults: Vec<usize>,
}

impl Plan {
    /// All parts.
    pub fn all(&self) -> Parts {
        Parts {
            steps: (0..self.steps.len()).collect(),
            faults: (0..self.faults.len()).collect(),
        }
    }

    /// Whether the nodes' clocks differ so much, or drift apart so fast, that the order of tickets
    /// depends on which nodes answered first. Tickets carry the nodes' time.
    pub(super) fn clocks_apart(&self) -> bool {
        let ahead = |node: &NodePlan| node.ahead_us;
        let rate = |node: &NodePlan| node.rate as i64;
        self.apart(ahead) > 50_000 || self.apart(rate) > 10_000
    }

    fn apart(&self, of: impl Fn(&NodePlan) -> i64) -> i64 {
        let most = self.nodes.iter().map(&of).max().unwrap_or_default();
        most - self.nodes.iter().map(&of).min().unwrap_or_default()
    }

    /// Describes these parts for people.
    pub fn describe(&self, parts: &Parts) -> String {
        let mut text = String::new();
        let nodes = self.nodes.iter().enumerate().map(|(at, node)| {
            let tier = if node.durable { "durable" } else { "memory" };
            format!(
                "n{at} {tier} {:+} ppm {:+} µs",
                drift_ppm(node.rate),
                node.ahead_us
            )
        });
        let nodes: Vec<String> = nodes.collect();
        let _ = writeln!(text, "  nodes: {}", nodes.join("; "));
        let _ = writeln!(text, "  group: {}; drift {:?}", self.group, self.drift);
        if self.two_lines {
            let _ = writeln!(text, "  renewals take two connections");
        }
        if let Some(sentinels) = &self.sentinels {
            let _ = writeln!(text, "  sentinels: {sentinels:?}");
        }
        for (at, client) in self.clients.iter().enumerate() {
            if self
                .steps
                .iter()
                .enumerate()
                .any(|(i, step)| step.client == at && parts.steps.contains(&i))
            {
                let _ = writeln!(
                    text,
                    "  client {at} on host {} from {:?}, {:+} ppm",
                    client.host,
                    client.start,
                    drift_ppm(client.rate)
                );
            }
        }
        for &at in &parts.steps {
            let _ = writeln!(text, "  step {at}: {}", self.steps[at]);
        }
        for &at in &parts.faults {
            let fault = &self.faults[at];
            let _ = writeln!(text, "  fault {at} at {:?}: {:?}", fault.at, fault.what);
        }
        let _ = writeln!(text, "  no fault after {:?}", self.healed);
        text
    }
}

fn drift_ppm(rate: u64) -> i64 {
    rate as i64 - super::dial::TRUE_RATE as i64
}
