//! Draws a plan with one endpoint behind Sentinels. They fail over from one server to the other and
//! back, each Sentinel learns of it in its own time, and the former master goes on serving: often
//! behind a partition, together with one Sentinel and some of the clients. A Sentinel may lie, be
//! reset, be slow or be cut off.
//!
//! All kinds of locks are used. A lock that is kept from others after its release is kept no longer
//! than the quarantine allows: a longer time may be lost with a release that was not replicated.

use std::time::Duration;

use ringfence_core::group::Group;

use crate::random::Random;
use crate::simulator::plan::{Fault, FaultAction, Plan, SentinelsPlan, Ways};

use super::one_endpoint::{Endpoint, span};

const NODE: usize = 0;
/// The paths of the network to the two servers come before those to the Sentinels.
const SERVERS: usize = 2;

/// The plan of `seed`.
pub fn behind_sentinels(seed: u64) -> Plan {
    let mut random = Random::apart(seed, 0x7365_6e00);
    let random = &mut random;
    let endpoint = Endpoint::draw(random);
    let count = random.pick(&[3, 3, 3, 5]);
    let list = |random: &mut Random| {
        let mut list: Vec<usize> = (0..count).collect();
        if random.chance(30) {
            list.remove(random.between(0, count as u64 - 1) as usize);
        }
        list
    };
    let lists = endpoint.clients.iter().map(|_| list(random)).collect();
    let span = span(random);
    let mut faults = endpoint.usual_faults(random, span);
    let failovers = Failovers {
        random,
        group: &endpoint.group,
        ttl: endpoint.ttl,
        clients: endpoint.clients.len(),
        sentinels: count,
        at: Duration::ZERO,
    };
    faults.extend(failovers.all());
    let sentinels = SentinelsPlan { count, lists };
    endpoint.plan(seed, random, span, faults, Some(sentinels))
}

struct Failovers<'a> {
    random: &'a mut Random,
    group: &'a Group,
    ttl: Duration,
    clients: usize,
    sentinels: usize,
    /// When the next fault happens.
    at: Duration,
}

impl Failovers<'_> {
    fn all(mut self) -> Vec<Fault> {
        let lag = self.up_to(self.ttl);
        let attach = FaultAction::Attach {
            node: NODE,
            lag,
            ahead_us: self.random.about(20_000),
        };
        let mut faults = vec![self.now(attach)];
        self.at += lag;
        let mut master = 0;
        for _ in 0..self.random.pick(&[1, 1, 2, 2, 3, 4]) {
            let after = self.up_to(3 * self.ttl);
            self.at += after;
            self.fail_over(master, &mut faults);
            master = 1 - master;
            if self.random.chance(70) {
                let most = 2 * self.group.stale_master + self.ttl;
                let after = self.up_to(most);
                self.at += after;
                let lag = self.up_to(self.ttl / 4);
                faults.push(self.now(FaultAction::DemoteFormer { lag }));
            }
        }
        let faulty = self.faulty_sentinels(&faults);
        faults.extend(faulty);
        faults
    }

    fn now(&self, what: FaultAction) -> Fault {
        Fault { at: self.at, what }
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.random.between(0, most.as_micros() as u64))
    }

    fn one_sentinel(&mut self) -> usize {
        self.random.between(0, self.sentinels as u64 - 1) as usize
    }

    /// The other server takes the place of `master`, which may be cut off with one Sentinel and
    /// some clients.
    fn fail_over(&mut self, master: usize, faults: &mut Vec<Fault>) {
        let stale_master = self.group.stale_master;
        let mut learn = Vec::new();
        for _ in 0..self.sentinels {
            learn.push(match self.random.between(0, 9) {
                0..6 => self.up_to(stale_master),
                6..9 => self.up_to(6 * self.ttl),
                _ => Duration::from_secs(60),
            });
        }
        let leader = self.one_sentinel();
        learn[leader] = Duration::ZERO;
        if self.random.chance(60) {
            let alone = (leader + 1) % self.sentinels;
            let lasts = stale_master / 2 + self.up_to(3 * stale_master + 2 * self.ttl);
            learn[alone] = lasts;
            let before = self.up_to(stale_master);
            faults.extend(self.island(master, alone, before + lasts));
            self.at += before;
        }
        faults.push(self.now(FaultAction::FailOver { learn }));
    }

    /// Cuts some clients, one server and one Sentinel off from all others.
    fn island(&mut self, server: usize, sentinel: usize, lasts: Duration) -> [Fault; 2] {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..self.clients).partition(|_| self.random.chance(50));
        let (mut here, mut there) = (vec![server], vec![1 - server]);
        for at in 0..self.sentinels {
            match at == sentinel {
                true => here.push(SERVERS + at),
                false => there.push(SERVERS + at),
            }
        }
        [(inside, there), (outside, here)].map(|(clients, nodes)| {
            self.now(FaultAction::Partition {
                clients,
                nodes,
                ways: Ways::Both,
                lasts,
            })
        })
    }

    /// Whether all Sentinels but `liar` learn of each failover soon. A Sentinel that lies and one that
    /// has not learned yet would be a majority that names a former master again.
    fn others_learn_soon(&self, failovers: &[Fault], liar: usize) -> bool {
        let late = |(at, learn): (usize, &Duration)| at != liar && *learn > self.group.stale_master;
        !failovers.iter().any(|fault| match &fault.what {
            FaultAction::FailOver { learn } => learn.iter().enumerate().any(late),
            _ => false,
        })
    }

    /// Sentinels that lie, are reset, slow, or cut off, beside these failovers.
    fn faulty_sentinels(&mut self, failovers: &[Fault]) -> Vec<Fault> {
        let (last, most) = (self.at, 6 * self.ttl);
        let mut faults = Vec::new();
        for chance in [25, 20, 25, 15] {
            if !self.random.chance(chance) {
                continue;
            }
            self.at = self.up_to(last);
            let (sentinel, lasts) = (self.one_sentinel(), self.up_to(most));
            let mut liars = (0..self.sentinels).map(|at| (sentinel + at) % self.sentinels);
            let liar = liars.find(|liar| self.others_learn_soon(failovers, *liar));
            let what = match (chance, liar) {
                (20, _) => FaultAction::ResetSentinel { sentinel, lasts },
                (15, _) => FaultAction::Partition {
                    clients: (0..self.clients).collect(),
                    nodes: vec![SERVERS + sentinel],
                    ways: Ways::Both,
                    lasts,
                },
                (_, Some(sentinel)) if faults.is_empty() => FaultAction::Lie { sentinel, lasts },
                _ => FaultAction::Slow {
                    client: self.random.between(0, self.clients as u64 - 1) as usize,
                    node: SERVERS + sentinel,
                    by: 2 * self.group.stale_master,
                    lasts,
                },
            };
            faults.push(self.now(what));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_have_every_fault_of_sentinels_and_every_kind() {
        let (mut lies, mut resets, mut islands, mut twice) = (0, 0, 0, 0);
        let (mut plain, mut kept, mut latches) = (0, 0, 0);
        for seed in 1..=300 {
            let plan = behind_sentinels(seed);
            let mut failovers = 0;
            for fault in &plan.faults {
                match &fault.what {
                    FaultAction::Lie { .. } => lies += 1,
                    FaultAction::ResetSentinel { .. } => resets += 1,
                    FaultAction::Partition { nodes, .. } if nodes.len() > 1 => islands += 1,
                    FaultAction::FailOver { .. } => failovers += 1,
                    _ => {}
                }
            }
            twice += u64::from(failovers > 1);
            for step in &plan.steps {
                use crate::simulator::plan::Want;
                match step.want {
                    Want::Plain(_) => plain += 1,
                    Want::Arrive(..) | Want::Await(..) => latches += 1,
                    _ => {}
                }
                kept += u64::from(!step.at_least.is_zero());
            }
        }
        for seen in [lies, resets, islands, twice, plain, kept, latches] {
            assert!(
                seen >= 30,
                "{lies} {resets} {islands} {twice} {plain} {kept} {latches}"
            );
        }
    }
}
