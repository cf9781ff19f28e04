//! The lanes of the picture: which task or target has which lane, and where it is drawn.

use std::collections::HashMap;

use super::client::{OPS_OF_CLIENT, OPS_OF_TASK, TASKS};
use super::processes::CLIENT_NUMBERS;
use super::servers::CLIENTS;

/// How high a lane is, in pixels.
pub(super) const LANE: f64 = 26.0;
/// The height above the lanes, for the seconds.
const HEAD: f64 = 30.0;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The names, from the top.
    pub(super) names: Vec<String>,
    /// How many lanes at the top are for faults.
    pub(super) faults: usize,
    indices: HashMap<String, usize>,
}

impl Lanes {
    /// Lanes for faults above: one for each node, one for the connections of each client, and one
    /// for those of all clients. Below them one lane for each task of each client.
    pub(super) fn of(nodes: usize) -> Self {
        let mut lanes = Self::default();
        for node in 0..nodes {
            lanes.add(format!("node {node}"));
        }
        for client in 0..CLIENTS {
            lanes.add(format!("connections of client {client}"));
        }
        lanes.add("connections of all clients".to_owned());
        lanes.faults = lanes.names.len();
        for client in 0..CLIENTS {
            for task in 0..TASKS {
                lanes.add(format!("client {client}, task {task}"));
            }
        }
        lanes
    }

    /// The upper edge of the lane at `index`.
    pub(super) fn top(index: usize) -> f64 {
        HEAD + index as f64 * LANE
    }

    fn add(&mut self, name: String) {
        self.indices.insert(name.clone(), self.names.len());
        self.names.push(name);
    }

    fn y(&self, name: &str) -> Option<f64> {
        self.indices.get(name).map(|index| Self::top(*index))
    }

    /// The lane of the task that made a call.
    pub(super) fn of_op(&self, op: u64) -> Option<f64> {
        let client = (op / OPS_OF_CLIENT - 1) % CLIENT_NUMBERS;
        let task = op % OPS_OF_CLIENT / OPS_OF_TASK;
        self.y(&format!("client {client}, task {task}"))
    }

    /// The lanes of a fault: the upper edge of each, and how many lanes it spans.
    pub(super) fn of_fault(&self, on: &str) -> Vec<(f64, usize)> {
        if let Some((client, _)) = on.split_once(" to node ") {
            return self
                .y(&format!("connections of {client}"))
                .map(|y| (y, 1))
                .into_iter()
                .collect();
        }
        if on.starts_with("client") {
            let first = self.y(&format!("{on}, task 0"));
            return first.map(|y| (y, TASKS as usize)).into_iter().collect();
        }
        let nodes = on.strip_prefix("node ").unwrap_or(on).split('+');
        let lanes = nodes.filter_map(|node| self.y(&format!("node {node}")));
        lanes.map(|y| (y, 1)).collect()
    }

    /// The height of all lanes.
    pub(super) fn height(&self) -> f64 {
        Self::top(self.names.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::picture::short;
    use super::super::plan::{Targets, plan};
    use super::*;

    #[test]
    fn every_fault_has_a_lane_and_a_short_name() {
        let lanes = Lanes::of(5);
        let targets = Targets {
            durable: vec![false, true, false, true, false],
            clients: CLIENTS,
            lasting: Vec::new(),
        };
        for fault in plan(1, std::time::Duration::from_secs(60), &targets) {
            assert!(!lanes.of_fault(&fault.target()).is_empty(), "{fault}");
            assert!(short(fault.kind.name()).len() < 16, "{fault}");
        }
    }
}
