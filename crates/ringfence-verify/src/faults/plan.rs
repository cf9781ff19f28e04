//! Which faults happen when. The seed alone decides it, before anything starts.
//!
//! Every kind happens once per round, in random order. Two faults never have the same target at the
//! same time. At most a minority of the nodes loses its vote at a time, with rare exceptions:
//! otherwise almost all calls would be refused.

use std::time::Duration;

use crate::random::Random;

use super::planned::{FaultKind, PlannedFault};

/// How long a node that forgot, or whose clock jumped, does not vote: a little more than the
/// quarantine.
const DISCOUNT: Duration = Duration::from_secs(9);
/// How long before the end the fault happens that breaks what exclusion needs.
const BLIND: Duration = Duration::from_secs(5);
/// How often more nodes forget at the same time than may be missing: no call is granted until their
/// quarantine is over. The last such fault is just before the end.
const POWER_CUTS: Duration = Duration::from_secs(60);
const LAST_POWER_CUT: Duration = Duration::from_secs(8);

/// The smallest difference between two times.
const MOMENT: Duration = Duration::from_millis(1);

/// The targets of the faults.
#[derive(Debug, Clone)]
pub struct Targets {
    /// For each node, whether it keeps its data over a crash.
    pub durable: Vec<bool>,
    /// The number of clients.
    pub clients: usize,
    /// The clients that are not killed.
    pub lasting: Vec<usize>,
}

/// The faults of a run, by time.
pub fn plan(seed: u64, span: Duration, targets: &Targets) -> Vec<PlannedFault> {
    let mut planner = Planner {
        random: Random::apart(seed, 0),
        nodes: vec![Target::default(); targets.durable.len()],
        clients: vec![Target::default(); targets.clients],
        links: Target::default(),
        standby: Target::default(),
        out_at_most: 0,
        targets,
    };
    let mut faults = Vec::new();
    let (mut at, mut round) = (Duration::from_millis(500), Vec::new());
    let blind_from = span.saturating_sub(BLIND);
    let last_cut = span.saturating_sub(LAST_POWER_CUT);
    let mut next_cut = POWER_CUTS.min(last_cut);
    while at < blind_from {
        if at >= next_cut {
            let cut = planner.power_cut(at);
            at = cut.at + cut.span;
            faults.push(cut);
            next_cut = match next_cut == last_cut {
                true => span,
                false => (next_cut + POWER_CUTS).min(last_cut),
            };
            continue;
        }
        planner.out_at_most = targets.durable.len() / 2 + usize::from(planner.random.chance(5));
        let fitting = round.iter().position(|kind| planner.fits(*kind, at));
        at += match fitting {
            Some(next) => {
                faults.push(planner.fault(round.remove(next), at, span));
                Duration::from_millis(planner.random.between(250, 900))
            }
            // A fault that waits for its target does not delay the next round.
            None if round.len() < FaultKind::ALL.len() => {
                round.extend(planner.shuffled());
                Duration::ZERO
            }
            None => Duration::from_millis(200),
        };
    }
    faults.push(planner.blind(blind_from, span));
    faults
}

#[derive(Debug, Clone, Default)]
struct Target {
    busy_until: Duration,
    discounted_until: Duration,
}

struct Planner<'a> {
    random: Random,
    nodes: Vec<Target>,
    clients: Vec<Target>,
    links: Target,
    /// The standby server, which can follow one node at a time.
    standby: Target,
    /// How many nodes may currently be without a vote.
    out_at_most: usize,
    targets: &'a Targets,
}

impl Planner<'_> {
    fn shuffled(&mut self) -> Vec<FaultKind> {
        let mut kinds: Vec<FaultKind> = FaultKind::ALL.to_vec();
        kinds.retain(|kind| !matches!(kind, FaultKind::BlindJump | FaultKind::PowerCut));
        for at in (1..kinds.len()).rev() {
            kinds.swap(at, self.random.between(0, at as u64) as usize);
        }
        kinds
    }

    fn fits(&self, kind: FaultKind, at: Duration) -> bool {
        match kind {
            FaultKind::ClientPause | FaultKind::ClientCrash => {
                !self.free_clients(kind, at).is_empty()
            }
            FaultKind::CrashForgetting
            | FaultKind::CrashDurable
            | FaultKind::SyncFails
            | FaultKind::ServerPause
            | FaultKind::Flush
            | FaultKind::FailBack
            | FaultKind::ClockJump => !self.free_nodes(kind, at).is_empty(),
            _ => self.links.busy_until < at,
        }
    }

    fn free_clients(&self, kind: FaultKind, at: Duration) -> Vec<usize> {
        let free = |client: &usize| {
            let may_be_hit =
                kind == FaultKind::ClientPause || !self.targets.lasting.contains(client);
            may_be_hit && self.clients[*client].busy_until < at
        };
        (0..self.clients.len()).filter(free).collect()
    }

    fn free_nodes(&self, kind: FaultKind, at: Duration) -> Vec<usize> {
        let out = self
            .nodes
            .iter()
            .filter(|n| n.discounted_until > at)
            .count();
        if kind.discounts() && out >= self.out_at_most {
            return Vec::new();
        }
        if kind == FaultKind::FailBack && self.standby.busy_until >= at {
            return Vec::new();
        }
        let free = |node: &usize| {
            let target = &self.nodes[*node];
            let durable = self.targets.durable[*node];
            target.busy_until < at
                && (!kind.discounts() || target.discounted_until < at)
                && match kind {
                    // A server that once had a replica no longer counts as durable.
                    FaultKind::CrashForgetting | FaultKind::FailBack => !durable,
                    FaultKind::CrashDurable | FaultKind::SyncFails => durable,
                    _ => true,
                }
        };
        (0..self.nodes.len()).filter(free).collect()
    }

    /// A fault of a kind that [`fits`](Self::fits).
    fn fault(&mut self, kind: FaultKind, at: Duration, end: Duration) -> PlannedFault {
        let ms = match kind {
            FaultKind::ClientPause => self.random.between(300, 3_500),
            FaultKind::ServerPause => self.random.between(200, 2_500),
            FaultKind::ClockJump => self.random.between(800, 2_500),
            // Clients check once a second for a replica, and a call may be under way for another
            // second: no master is demoted sooner.
            FaultKind::FailBack => self.random.between(2_500, 4_000),
            FaultKind::Cut | FaultKind::ResetAfterSend | FaultKind::Flush => 100,
            _ => self.random.between(200, 1_800),
        };
        let span = Duration::from_millis(ms).min(end - at);
        let mut fault = PlannedFault {
            at,
            span,
            kind,
            nodes: Vec::new(),
            client: None,
            by_us: 0,
        };
        let until = at + span;
        match kind {
            FaultKind::ClientPause | FaultKind::ClientCrash => {
                let free = self.free_clients(kind, at);
                let client = self.random.pick(&free);
                self.clients[client].busy_until = until;
                fault.client = Some(client);
            }
            FaultKind::CrashForgetting
            | FaultKind::CrashDurable
            | FaultKind::SyncFails
            | FaultKind::ServerPause
            | FaultKind::Flush
            | FaultKind::FailBack
            | FaultKind::ClockJump => {
                let free = self.free_nodes(kind, at);
                let node = self.random.pick(&free);
                self.nodes[node].busy_until = until;
                if kind.discounts() {
                    self.nodes[node].discounted_until = until + DISCOUNT;
                }
                if kind == FaultKind::FailBack {
                    self.standby.busy_until = until;
                }
                fault.nodes = vec![node];
                fault.by_us = self.jump_of(node);
            }
            _ => {
                self.links.busy_until = until;
                fault.nodes = self.some_nodes();
                // All clients lose one node, or one client loses many.
                if fault.nodes.len() > 1 || self.random.chance(50) {
                    let clients = self.clients.len() as u64;
                    fault.client = Some(self.random.between(0, clients - 1) as usize);
                }
                fault.by_us = self.random.between(20, 400) as i64 * 1_000;
            }
        }
        fault
    }

    /// Kills all nodes that keep nothing at the same time, when no other fault hits them. They
    /// restart so soon that locks which they forgot are still valid.
    fn power_cut(&mut self, at: Duration) -> PlannedFault {
        let nodes: Vec<usize> = (0..self.nodes.len())
            .filter(|node| !self.targets.durable[*node])
            .collect();
        let busy = nodes.iter().map(|node| self.nodes[*node].busy_until);
        let at = busy.max().map_or(at, |until| at.max(until + MOMENT));
        let span = Duration::from_millis(self.random.between(50, 300));
        for node in &nodes {
            self.nodes[*node].busy_until = at + span;
            self.nodes[*node].discounted_until = at + span + DISCOUNT;
        }
        PlannedFault {
            at,
            span,
            kind: FaultKind::PowerCut,
            nodes,
            client: None,
            by_us: 0,
        }
    }

    /// How far `node`'s clock is set. Half of the nodes jump only ahead and the others only back,
    /// so that no sequence of jumps steps back by more than the tolerance. The jump is longer than
    /// a call can last, so that every client that knew the clock notices.
    fn jump_of(&mut self, node: usize) -> i64 {
        let by_us = self.random.between(2_500_000, 4_500_000) as i64;
        match node.is_multiple_of(2) {
            true => by_us,
            false => -by_us,
        }
    }

    /// One node, or so many that a client which cannot reach them has no majority.
    fn some_nodes(&mut self) -> Vec<usize> {
        let nodes = self.nodes.len();
        let first = self.random.between(0, nodes as u64 - 1) as usize;
        let many = match self.random.chance(40) {
            true => nodes / 2 + 1,
            false => 1,
        };
        (0..many).map(|more| (first + more) % nodes).collect()
    }

    /// Kills a client, sets the clocks of a minority ahead, and starts a new client.
    fn blind(&mut self, at: Duration, end: Duration) -> PlannedFault {
        let minority = self.nodes.len() / 2;
        let nodes = (0..self.nodes.len()).step_by(2).take(minority).collect();
        let killed = |client: &usize| !self.targets.lasting.contains(client);
        let killed: Vec<usize> = (0..self.clients.len()).filter(killed).collect();
        PlannedFault {
            at,
            span: end - at,
            kind: FaultKind::BlindJump,
            nodes,
            client: Some(self.random.pick(&killed)),
            by_us: 3_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Targets {
        Targets {
            durable: vec![false, true, false, true, false],
            clients: 4,
            lasting: Vec::new(),
        }
    }

    #[test]
    fn a_lasting_client_is_never_killed() {
        let lasting = vec![0, 3];
        let targets = Targets {
            lasting,
            ..targets()
        };
        let faults = plan(1, Duration::from_secs(120), &targets);
        let kills = |kind| matches!(kind, FaultKind::ClientCrash | FaultKind::BlindJump);
        let killed: Vec<_> = faults.iter().filter(|fault| kills(fault.kind)).collect();
        assert!(killed.len() > 1);
        assert!(
            killed
                .iter()
                .all(|fault| !matches!(fault.client, Some(0 | 3)))
        );
    }

    #[test]
    fn a_seed_decides_everything() {
        let span = Duration::from_secs(60);
        assert_eq!(plan(7, span, &targets()), plan(7, span, &targets()));
        assert_ne!(plan(7, span, &targets()), plan(8, span, &targets()));
    }

    #[test]
    fn half_a_minute_has_every_kind() {
        for seed in 0..50 {
            let faults = plan(seed, Duration::from_secs(30), &targets());
            for kind in FaultKind::ALL {
                assert!(faults.iter().any(|s| s.kind == kind), "{seed}: {kind:?}");
            }
        }
    }

    #[test]
    fn a_server_has_one_fault_at_a_time_and_votes_again_before_it_loses_its_vote_again() {
        for seed in 0..50 {
            let faults = plan(seed, Duration::from_secs(120), &targets());
            let of_server =
                |s: &&PlannedFault| s.kind < FaultKind::Cut && s.kind != FaultKind::BlindJump;
            let servers: Vec<&PlannedFault> = faults.iter().filter(of_server).collect();
            for (at, one) in servers.iter().enumerate() {
                for other in &servers[at + 1..] {
                    if !one.nodes.iter().any(|node| other.nodes.contains(node)) {
                        continue;
                    }
                    assert!(one.at + one.span < other.at, "{seed}: {one} and {other}");
                    if one.kind.discounts() && other.kind.discounts() {
                        let voting = one.at + one.span + DISCOUNT;
                        assert!(voting < other.at, "{seed}: {one} and {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_fault_that_breaks_exclusion_is_the_last() {
        let faults = plan(3, Duration::from_secs(60), &targets());
        let blind = faults.iter().position(|s| s.kind == FaultKind::BlindJump);
        assert_eq!(blind, Some(faults.len() - 1));
    }
}
