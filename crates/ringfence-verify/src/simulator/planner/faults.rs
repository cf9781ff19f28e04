//! Draws the faults of a plan. Role changes and re-pointed addresses are in `moves.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::random::Random;
use crate::simulator::plan::{ClientPlan, Fault, FaultAction, NodePlan, Ways};

use super::Clocks;

/// Which kinds of faults a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultMix {
    /// No faults.
    Nothing,
    /// Only clients are paused.
    ClientPauses,
    /// All faults except those of clocks.
    AllButClocks,
    /// All faults.
    All,
}

impl FaultMix {
    pub(super) fn draw(random: &mut Random, clocks: Clocks) -> Self {
        match (random.between(0, 99), clocks) {
            (0..15, _) => Self::Nothing,
            (15..30, _) => Self::ClientPauses,
            (75.., Clocks::Usual) => Self::All,
            _ => Self::AllButClocks,
        }
    }
}

/// Draws the faults of a plan.
pub(super) struct FaultDrawer<'a> {
    pub(super) random: &'a mut Random,
    pub(super) nodes: &'a [NodePlan],
    pub(super) clients: &'a [ClientPlan],
    pub(super) ttl: Duration,
    pub(super) span: Duration,
    /// Nodes whose clocks were changed: at most once each, so that no clock steps back further than
    /// the protocol tolerates.
    pub(super) clocks: BTreeMap<usize, ()>,
}

impl FaultDrawer<'_> {
    pub(super) fn all(mut self, mix: FaultMix) -> Vec<Fault> {
        let count = match mix {
            FaultMix::Nothing => 0,
            FaultMix::ClientPauses => self.random.between(1, 5),
            FaultMix::AllButClocks | FaultMix::All => self.random.between(1, 9),
        };
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = self.within(self.span);
            let what = match mix {
                FaultMix::ClientPauses => self.of_client(),
                FaultMix::All if self.random.chance(40) => self.of_clock(),
                _ if self.random.chance(35) => self.of_client(),
                _ => self.of_world(),
            };
            faults.push(Fault { at, what });
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    fn within(&mut self, span: Duration) -> Duration {
        Duration::from_micros(self.random.between(0, span.as_micros() as u64))
    }

    /// About as long as a lease, or much longer.
    fn lasts(&mut self) -> Duration {
        let ttl_us = self.ttl.as_micros() as u64;
        let most = if self.random.chance(70) { 2 } else { 10 };
        Duration::from_micros(self.random.between(ttl_us / 3, most * ttl_us))
    }

    fn node(&mut self) -> usize {
        self.random.between(0, self.nodes.len() as u64 - 1) as usize
    }

    fn client(&mut self) -> usize {
        self.random.between(0, self.clients.len() as u64 - 1) as usize
    }

    fn some(&mut self, of: usize) -> Vec<usize> {
        let some: Vec<usize> = (0..of).filter(|_| self.random.chance(50)).collect();
        match some.is_empty() {
            true => vec![self.random.between(0, of as u64 - 1) as usize],
            false => some,
        }
    }

    fn of_client(&mut self) -> FaultAction {
        let (client, lasts) = (self.client(), self.lasts());
        match self.random.between(0, 9) {
            0..5 => FaultAction::Stall {
                client,
                sends: self.random.between(0, 12) as u32,
                lasts,
            },
            _ => FaultAction::Pause {
                client,
                lasts,
                after_reply: self.random.chance(50),
            },
        }
    }

    fn of_world(&mut self) -> FaultAction {
        let (node, client, lasts) = (self.node(), self.client(), self.lasts());
        match self.random.between(0, 19) {
            0..4 => FaultAction::Partition {
                clients: self.some(self.clients.len()),
                nodes: self.some(self.nodes.len()),
                ways: self.random.pick(&[Ways::Both, Ways::There, Ways::Back]),
                lasts,
            },
            4..6 => FaultAction::Slow {
                client,
                node,
                by: self.lasts(),
                lasts: lasts * 2,
            },
            6..8 => FaultAction::Lossy {
                lost: self.random.between(0, 30),
                twice: self.random.between(0, 30),
                lasts: lasts * 2,
            },
            8..10 => FaultAction::Reset { client, node },
            10..12 => FaultAction::Hang {
                node,
                lasts,
                clock: false,
            },
            12..16 => FaultAction::Crash { node, lasts },
            16..18 if !self.nodes[node].durable => FaultAction::Flush { node },
            _ => FaultAction::Kill { client },
        }
    }

    fn of_clock(&mut self) -> FaultAction {
        let node = self.node();
        let machine = FaultAction::PauseMachine {
            host: self.clients[self.random.between(0, self.clients.len() as u64 - 1) as usize].host,
            lasts: self.lasts(),
        };
        if self.clocks.insert(node, ()).is_some() {
            return machine;
        }
        let by_us = match self.random.chance(50) {
            true => self.random.about(4_000_000),
            false => self.random.about(2 * self.ttl.as_micros() as i64),
        };
        match self.random.between(0, 9) {
            0..4 => FaultAction::Step { node, by_us },
            4..6 => FaultAction::Strobe {
                node,
                by_us,
                times: self.random.between(2, 40) as u32,
            },
            6 => FaultAction::Hang {
                node,
                lasts: self.lasts().min(Duration::from_secs(4)),
                clock: true,
            },
            _ => machine,
        }
    }
}
