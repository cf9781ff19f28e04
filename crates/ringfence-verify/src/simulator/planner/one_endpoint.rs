//! Draws a plan with one endpoint that has a failover behind it: a master with a replica that gets
//! its writes late, promotions and failbacks, crashes, and a former master that goes on serving for
//! as long as the group allows (`stale_master`). Clients are cut off, slow, paused and killed.
//!
//! Clocks run at different rates, but none is set: with a single node a step of its clock cannot be
//! told from a freeze of our own.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_core::group::{Failover, Group};

use crate::random::Random;
use crate::simulator::plan::{
    ClientPlan, Fault, FaultAction, Moved, NodePlan, Plan, SentinelsPlan, Step, Want,
};

use super::faults::{FaultDrawer, FaultMix};
use super::steps::steps;
use super::{Clocks, clients, delay, healed, rate, two_lines};

const NODE: usize = 0;

/// The plan of `seed`.
pub fn one_endpoint(seed: u64) -> Plan {
    let mut random = Random::apart(seed, 0x6f6e_6500);
    let random = &mut random;
    let mut endpoint = Endpoint::draw(random);
    endpoint.steps.iter_mut().for_each(without_plain);
    let span = span(random);
    let mut faults = endpoint.usual_faults(random, span);
    failovers(random, &endpoint.group, endpoint.ttl, &mut faults);
    endpoint.plan(seed, random, span, faults, None)
}

/// What is the same with and without Sentinels: a group of one node, its clients, and what they do.
pub(super) struct Endpoint {
    pub(super) group: Group,
    pub(super) ttl: Duration,
    pub(super) clients: Vec<ClientPlan>,
    nodes: Vec<NodePlan>,
    steps: Vec<Step>,
}

impl Endpoint {
    pub(super) fn draw(random: &mut Random) -> Self {
        let clocks = Clocks::Usual;
        let ttl_ms = random.pick(&[300, 800, 2_000, 5_000]);
        let ttl = Duration::from_millis(ttl_ms);
        let group = group(random, ttl);
        let node = NodePlan {
            rate: rate(random, clocks),
            ahead_us: random.about(20_000),
            durable: random.chance(30),
        };
        let clients = clients(random, clocks);
        let mut steps = steps(random, clients.len(), ttl_ms);
        steps.iter_mut().for_each(|step| keep_within(step, &group));
        Self {
            group,
            ttl,
            clients,
            nodes: vec![node],
            steps,
        }
    }

    /// The faults that every plan may have, without those of clocks.
    pub(super) fn usual_faults(&self, random: &mut Random, span: Duration) -> Vec<Fault> {
        let drawer = FaultDrawer {
            random,
            nodes: &self.nodes,
            clients: &self.clients,
            ttl: self.ttl,
            span,
            clocks: BTreeMap::new(),
        };
        drawer.all(FaultMix::AllButClocks)
    }

    pub(super) fn plan(
        self,
        seed: u64,
        random: &mut Random,
        span: Duration,
        mut faults: Vec<Fault>,
        sentinels: Option<SentinelsPlan>,
    ) -> Plan {
        faults.sort_by_key(|fault| fault.at);
        Plan {
            seed,
            group: self.group,
            drift: (0.01, Duration::from_millis(2)),
            delay: delay(random),
            two_lines: sentinels.is_none() && two_lines(seed),
            healed: healed(&faults, span),
            nodes: self.nodes,
            clients: self.clients,
            steps: self.steps,
            faults,
            sentinels,
        }
    }
}

/// How long faults may begin.
pub(super) fn span(random: &mut Random) -> Duration {
    Duration::from_millis(random.between(500, 12_000))
}

/// A quarantine that just covers the longest lease and a former master.
fn group(random: &mut Random, ttl: Duration) -> Group {
    let window = Duration::from_millis(random.pick(&[100, 500]));
    let stale_master = Duration::from_millis(random.pick(&[50, 300, 1_000]));
    let reply_within = Duration::from_millis(random.pick(&[50, 200]));
    let for_fences = window * 2 + Group::CLOCK_STEP + stale_master + reply_within;
    Group {
        window,
        quarantine: (2 * ttl + stale_master).max(for_fences),
        failover: Failover::Quarantine,
        stale_master,
        reply_within,
        ..Group::new(1)
    }
}

/// Plain locks become mutexes: their calls carry no birth record, so without Sentinels a failover on
/// an open connection would not be noticed.
fn without_plain(step: &mut Step) {
    if let Want::Plain(name) = &step.want {
        step.want = Want::Mutex(name.clone());
    }
}

/// A lock is kept from others after its release for no longer than the quarantine allows: a longer
/// time may be lost with a release that was not replicated.
fn keep_within(step: &mut Step, group: &Group) {
    let longest = group.quarantine.saturating_sub(group.stale_master) * 98 / 100;
    step.at_least = step.at_least.min(longest);
}

/// A replica is attached; then it and the former master take turns.
fn failovers(random: &mut Random, group: &Group, ttl: Duration, faults: &mut Vec<Fault>) {
    let node = NODE;
    let up_to = |random: &mut Random, most: Duration| {
        Duration::from_micros(random.between(0, most.as_micros() as u64))
    };
    let moved = |random: &mut Random| Moved {
        connections_last: match random.chance(30) {
            true => Duration::ZERO,
            false => up_to(random, group.stale_master),
        },
    };
    let lag = up_to(random, ttl);
    let attach = FaultAction::Attach {
        node,
        lag,
        ahead_us: random.about(20_000),
    };
    let mut at = Duration::ZERO;
    faults.push(Fault { at, what: attach });
    at += lag;
    at += up_to(random, 3 * ttl);
    let promote = FaultAction::Promote {
        node,
        moved: Some(moved(random)),
    };
    faults.push(Fault { at, what: promote });
    if random.chance(30) {
        return;
    }
    // The former master learns of it when its clients are gone, or before.
    at += up_to(random, 2 * group.stale_master);
    let lag = up_to(random, ttl / 4);
    let demote = FaultAction::Demote { node, lag };
    faults.push(Fault { at, what: demote });
    at += up_to(random, 3 * ttl);
    let fail_back = FaultAction::FailBack {
        node,
        moved: moved(random),
    };
    faults.push(Fault {
        at,
        what: fail_back,
    });
}
