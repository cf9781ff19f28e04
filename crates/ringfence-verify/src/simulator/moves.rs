//! Role changes and re-pointed addresses of a plan. They are drawn separately from all other
//! faults, so that these stay the same for a seed. They never exceed what the protocol tolerates:
//!
//! - There are at least two nodes. One endpoint with a failover behind it has plans of its own
//!   (`planner/one_endpoint.rs`).
//! - No client uses a plain mutex. Its calls carry no birth record, so a failover on an open
//!   connection would not be noticed.
//! - A node whose clock is set keeps its role. A quarantine covers a step of the clock or the time
//!   in which a former master continues to serve, not both.
//! - A former master that still serves loses its connections so early that all its grants end
//!   before the quarantine of the promoted server does.
//! - The first replica is attached before any client starts, or [`NOTICED`] before a master is
//!   demoted: clients check a server that is not known to be replicated once a second.
//! - An address is never re-pointed to a standby: a master and its standby are one node.

use std::time::Duration;

use super::plan::{Fault, FaultAction, Moved, NodePlan, Step, Want};
use crate::random::Random;

/// How long after the first replica every client with votes knows of it: it checks once a second,
/// and an earlier call may be under way for another second.
const NOTICED: Duration = Duration::from_millis(2_500);

/// What is known of a plan before its roles and addresses change.
pub(super) struct Moves<'a> {
    pub(super) random: Random,
    pub(super) nodes: &'a [NodePlan],
    pub(super) steps: &'a [Step],
    pub(super) faults: &'a [Fault],
    pub(super) quarantine: Duration,
    pub(super) ttl: Duration,
    pub(super) span: Duration,
}

impl Moves<'_> {
    /// The faults to add.
    pub(super) fn all(mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.nodes.len() < 2 {
            return faults;
        }
        let mut steady: Vec<usize> = (0..self.nodes.len()).collect();
        if self.random.chance(35) && !self.steps.iter().any(is_plain) {
            // Usually one node, sometimes two.
            for _ in 0..self.random.pick(&[1, 1, 1, 2]) {
                let at = self.below(steady.len());
                if steady.len() > 1 && !self.is_set(steady[at]) {
                    let node = steady.remove(at);
                    self.change_roles(node, &mut faults);
                }
            }
        }
        if self.random.chance(30) && steady.len() > 1 {
            for _ in 0..self.random.between(1, 3) {
                faults.push(self.repoint(&steady));
            }
        }
        faults
    }

    /// A number less than `count`.
    fn below(&mut self, count: usize) -> usize {
        self.random.between(0, count as u64 - 1) as usize
    }

    /// Whether a fault sets or freezes the clock of `node`.
    fn is_set(&self, node: usize) -> bool {
        self.faults.iter().any(|fault| match fault.what {
            FaultAction::Step { node: of, .. } | FaultAction::Strobe { node: of, .. } => of == node,
            FaultAction::Hang {
                node: of, clock, ..
            } => clock && of == node,
            _ => false,
        })
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.random.between(0, most.as_micros() as u64))
    }

    /// A replica is attached and promoted, the former master follows it and is promoted again; or
    /// only some of these. The address stays with the former master, or moves with each promotion.
    fn change_roles(&mut self, node: usize, faults: &mut Vec<Fault>) {
        let ttl = self.ttl;
        let early = self.random.chance(70);
        let attached = match early {
            true => Duration::ZERO,
            false => self.up_to(self.span / 2),
        };
        let noticed = match early {
            true => Duration::ZERO,
            false => attached + NOTICED,
        };
        let lag = self.up_to(ttl);
        faults.push(Fault {
            at: attached,
            what: FaultAction::Attach {
                node,
                lag,
                ahead_us: self.random.about(20_000),
            },
        });
        let mut at = attached + lag + self.up_to(4 * ttl);
        let moved = match self.random.chance(50) {
            true => Some(self.moved()),
            false => None,
        };
        faults.push(Fault {
            at,
            what: FaultAction::Promote { node, moved },
        });
        let demote = |moves: &mut Self, at: Duration| Fault {
            at,
            what: FaultAction::Demote {
                node,
                lag: moves.up_to(ttl / 4),
            },
        };
        at = noticed.max(at + self.up_to(4 * ttl));
        faults.push(demote(self, at));
        at += self.up_to(ttl);
        let moved = self.moved();
        faults.push(Fault {
            at,
            what: FaultAction::FailBack { node, moved },
        });
        if self.random.chance(50) {
            at += self.up_to(4 * ttl);
            faults.push(demote(self, at));
        }
    }

    fn moved(&mut self) -> Moved {
        let lease = |step: &Step| step.ttl.max(step.extend.unwrap_or_default()) + step.lock_delay;
        let longest = self.steps.iter().map(lease).max().unwrap_or_default();
        let most = self.quarantine.saturating_sub(longest);
        Moved {
            connections_last: match self.random.chance(50) {
                true => Duration::ZERO,
                false => self.up_to(most.min(10 * self.ttl)),
            },
        }
    }

    /// The address of one of the `steady` nodes leads to the server of another for a while.
    fn repoint(&mut self, steady: &[usize]) -> Fault {
        let node = self.below(steady.len());
        let to = (node + 1 + self.below(steady.len() - 1)) % steady.len();
        let lasts = self.up_to(6 * self.ttl);
        // Sometimes from the beginning, so that a client notices it when it connects.
        let at = match self.random.chance(30) {
            true => Duration::ZERO,
            false => self.up_to(self.span.min(20 * self.ttl)),
        };
        Fault {
            at,
            what: FaultAction::Repoint {
                node: steady[node],
                to: steady[to],
                lasts,
                connections_stay: self.random.chance(50),
            },
        }
    }
}

fn is_plain(step: &Step) -> bool {
    matches!(step.want, Want::Plain(_))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::simulator::{Clocks, plan};

    use super::*;

    /// Every plan keeps the conditions at the top of this file.
    #[test]
    fn no_plan_exceeds_what_the_protocol_tolerates() {
        let mut seen = BTreeMap::new();
        for seed in 1..=3_000 {
            let plan = plan(seed, Clocks::Usual);
            let lease = |step: &Step| step.ttl + step.lock_delay;
            let longest = plan.steps.iter().map(lease).max().unwrap_or_default();
            let mut attached = BTreeMap::new();
            for fault in &plan.faults {
                let (name, node, moved) = match fault.what {
                    FaultAction::Attach { node, .. } => {
                        attached.insert(node, fault.at);
                        ("attach", node, None)
                    }
                    FaultAction::Promote { node, moved } => ("promote", node, moved),
                    FaultAction::Demote { node, .. } => {
                        let first = attached[&node];
                        let noticed = first.is_zero() || fault.at >= first + NOTICED;
                        assert!(noticed, "{seed}: {fault:?}");
                        ("demote", node, None)
                    }
                    FaultAction::FailBack { node, moved } => ("fail back", node, Some(moved)),
                    FaultAction::Repoint { node, to, .. } => {
                        assert_ne!(node, to, "{seed}");
                        ("re-point", node, None)
                    }
                    _ => continue,
                };
                *seen.entry(name).or_insert(0) += 1;
                assert!(plan.nodes.len() > 1, "{seed}: {fault:?}");
                if let Some(moved) = moved {
                    let ends = moved.connections_last + longest;
                    assert!(ends <= plan.group.quarantine, "{seed}: {fault:?}");
                }
                if attached.contains_key(&node) {
                    assert!(!plan.steps.iter().any(is_plain), "{seed}: {fault:?}");
                    let others = plan.faults.iter().any(|other| match other.what {
                        FaultAction::Step { node: of, .. }
                        | FaultAction::Strobe { node: of, .. } => of == node,
                        FaultAction::Repoint { node: of, to, .. } => of == node || to == node,
                        _ => false,
                    });
                    assert!(!others, "{seed}: {fault:?}");
                }
            }
        }
        for name in ["attach", "promote", "demote", "fail back", "re-point"] {
            assert!(
                seen.get(name).is_some_and(|times| *times >= 100),
                "{seen:?}"
            );
        }
    }
}
