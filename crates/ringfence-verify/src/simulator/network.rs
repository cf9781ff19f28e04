//! The network between clients and servers, each direction separately: delays, losses, repeats and
//! cuts.

use std::collections::BTreeMap;

use super::plan::{Plan, Ways};
use crate::random::Random;

const MS: u64 = 1_000_000;

/// The network. All times are nanoseconds of true time.
#[derive(Debug)]
pub(super) struct Network {
    delay: (u64, u64),
    paths: BTreeMap<(usize, usize), Path>,
    to_resource: Random,
    /// Percentage of messages that are lost, percentage of requests that are repeated, and until
    /// when.
    loss: (u64, u64, u64),
    healed: bool,
    /// Whether renewals also take a second line.
    two_lines: bool,
}

/// The path between one client and one server.
#[derive(Debug)]
struct Path {
    random: Random,
    /// Until when nothing arrives at the server, and at the client.
    cut: [u64; 2],
    slow: (u64, u64),
    /// The latest connection, and when its last message arrived in each direction: messages of one
    /// connection stay in order.
    connection: u64,
    last: [u64; 2],
    /// The same for the connection of the second line of renewal.
    last_of_second: [u64; 2],
    /// Which renewals take the second line. Apart from `random`, so that the rest of a schedule
    /// stays the same.
    second: Random,
}

/// The connection that a message takes. Messages of different connections have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    First,
    /// Over which a thread of the process renews while the keeper of its client is late.
    Second,
}

impl Network {
    pub(super) fn new(plan: &Plan) -> Self {
        // With Sentinels there is a path to the node's own server, one to its standby, and one to
        // each Sentinel.
        let endpoints = match &plan.sentinels {
            None => plan.nodes.len(),
            Some(sentinels) => 2 * plan.nodes.len() + sentinels.count,
        };
        let mut paths = BTreeMap::new();
        for client in 0..plan.clients.len() {
            for node in 0..endpoints {
                let of = (client as u64) << 8 | node as u64;
                let path = Path {
                    random: Random::apart(plan.seed, of),
                    cut: [0; 2],
                    slow: (0, 0),
                    connection: 0,
                    last: [0; 2],
                    last_of_second: [0; 2],
                    second: Random::apart(plan.seed, 1 << 40 | of),
                };
                paths.insert((client, node), path);
            }
        }
        Self {
            delay: plan.delay,
            paths,
            to_resource: Random::apart(plan.seed, 1 << 32),
            loss: (0, 0, 0),
            healed: false,
            two_lines: plan.two_lines,
        }
    }

    /// The line of a renewal that is sent now.
    pub(super) fn line_of_renewal(&mut self, client: usize, node: usize) -> Line {
        let path = self.paths.get_mut(&(client, node));
        let second = path.is_some_and(|path| self.two_lines && path.second.chance(50));
        match second {
            true => Line::Second,
            false => Line::First,
        }
    }

    /// When a request that is sent now arrives: never, once or twice.
    pub(super) fn there(
        &mut self,
        client: usize,
        node: usize,
        (connection, line): (u64, Line),
        now: u64,
    ) -> Vec<u64> {
        let Some(at) = self.carry(client, node, (connection, line), now, 0) else {
            return Vec::new();
        };
        let (_, twice, until) = self.loss;
        let Some(path) = self.paths.get_mut(&(client, node)) else {
            return Vec::new();
        };
        let mut route = vec![at];
        if now < until && path.random.chance(twice) {
            route.push(at + path.random.between(0, 500 * MS));
        }
        route
    }

    /// When a reply that is sent now arrives, if it does.
    pub(super) fn back(
        &mut self,
        client: usize,
        node: usize,
        (connection, line): (u64, Line),
        now: u64,
    ) -> Option<u64> {
        self.carry(client, node, (connection, line), now, 1)
    }

    fn carry(
        &mut self,
        client: usize,
        node: usize,
        (connection, line): (u64, Line),
        now: u64,
        way: usize,
    ) -> Option<u64> {
        let (lost, _, lossy_until) = self.loss;
        let (least, most) = self.delay;
        let path = self.paths.get_mut(&(client, node))?;
        if connection > path.connection {
            path.connection = connection;
            path.last = [0; 2];
            path.last_of_second = [0; 2];
        }
        let mut at = now + path.random.between(least, most);
        let (by, slow_until) = path.slow;
        if now < slow_until {
            at += path.random.between(0, by);
        }
        if now < lossy_until && path.random.chance(lost) {
            return None;
        }
        if now < path.cut[way] {
            // The message is dropped, or delayed until the cut ends.
            if path.random.chance(50) {
                return None;
            }
            at += path.cut[way] - now;
        }
        // Messages of an old connection have no order.
        if connection == path.connection {
            let last = match line {
                Line::First => &mut path.last[way],
                Line::Second => &mut path.last_of_second[way],
            };
            at = at.max(*last + 1);
            *last = at;
        }
        Some(at)
    }

    /// How long a message to or from a resource takes; sometimes very long, like a late write.
    pub(super) fn resource_delay(&mut self) -> u64 {
        let (least, most) = self.delay;
        let long = !self.healed && self.to_resource.chance(8);
        match long {
            true => self.to_resource.between(100 * MS, 3_000 * MS),
            false => self.to_resource.between(least, most),
        }
    }

    pub(super) fn part(&mut self, clients: &[usize], nodes: &[usize], ways: Ways, until: u64) {
        for client in clients {
            for node in nodes {
                let Some(path) = self.paths.get_mut(&(*client, *node)) else {
                    continue;
                };
                if ways != Ways::Back {
                    path.cut[0] = until;
                }
                if ways != Ways::There {
                    path.cut[1] = until;
                }
            }
        }
    }

    pub(super) fn slow(&mut self, client: usize, node: usize, by: u64, until: u64) {
        if let Some(path) = self.paths.get_mut(&(client, node)) {
            path.slow = (by, until);
        }
    }

    pub(super) fn lossy(&mut self, lost: u64, twice: u64, until: u64) {
        self.loss = (lost, twice, until);
    }

    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.loss = (0, 0, 0);
        for path in self.paths.values_mut() {
            path.cut = [0; 2];
            path.slow = (0, 0);
        }
    }
}
