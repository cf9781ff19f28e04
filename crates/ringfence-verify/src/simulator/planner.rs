//! Draws a plan from a seed. Contention is high, TTLs are short, and pauses last about as long as
//! leases, so that a missing rule shows soon.

mod faults;
mod one_endpoint;
mod sentinels;
mod steps;

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_core::group::Group;

use super::dial::TRUE_RATE;
use super::moves::Moves;
use super::plan::{ClientPlan, Fault, NodePlan, Plan};
use crate::random::Random;

use faults::{FaultDrawer, FaultMix};
pub use one_endpoint::one_endpoint;
pub use sentinels::behind_sentinels;
use steps::steps;

/// How clocks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// Rates that differ by less than the default drift allows.
    Usual,
    /// As in the debate about Redlock: five seconds that last 4.5 s or 5.5 s, ten that last 9.5 s
    /// or 11.2 s; with the drift set for them.
    Debate,
    /// The same clocks with the default drift, which is too small.
    DebateUnprepared,
}

/// What the nodes of a schedule are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// Independent nodes, and sometimes a single one.
    #[default]
    Nodes,
    /// A single node with a failover behind it, whose address moves.
    OneEndpoint,
    /// A single node behind Sentinels.
    Sentinels,
}

impl Layout {
    /// The plan of `seed`.
    pub fn plan(self, seed: u64, clocks: Clocks) -> Plan {
        match self {
            Self::Nodes => plan(seed, clocks),
            Self::OneEndpoint => one_endpoint(seed),
            Self::Sentinels => behind_sentinels(seed),
        }
    }
}

/// The plan of `seed`.
pub fn plan(seed: u64, clocks: Clocks) -> Plan {
    let mut random = Random::apart(seed, 0x706c_616e);
    let random = &mut random;
    // The order of the draws decides the plan of a seed.
    let mix = FaultMix::draw(random, clocks);
    let ttl_ms = random.pick(&[50, 80, 150, 300, 800, 2_000]);
    let window = Duration::from_millis(random.pick(&[100, 500, 2_000, 5_000]));
    let longest = Duration::from_millis(2 * ttl_ms);
    let count = random.pick(&[1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5]);
    let group = Group {
        window,
        quarantine: longest.max(window * 2) + Group::CLOCK_STEP,
        ..Group::new(count)
    };
    let nodes = nodes(random, clocks, count, window);
    let clients = clients(random, clocks);
    let steps = steps(random, clients.len(), ttl_ms);
    let span = Duration::from_millis(random.between(500, 6_000));
    let mut faults = FaultDrawer {
        random,
        nodes: &nodes,
        clients: &clients,
        ttl: Duration::from_millis(ttl_ms),
        span,
        clocks: BTreeMap::new(),
    }
    .all(mix);
    if matches!(mix, FaultMix::AllButClocks | FaultMix::All) {
        let moves = Moves {
            random: Random::apart(seed, 0x6d6f_7665),
            nodes: &nodes,
            steps: &steps,
            faults: &faults,
            quarantine: group.quarantine,
            ttl: Duration::from_millis(ttl_ms),
            span,
        };
        faults.extend(moves.all());
        faults.sort_by_key(|fault| fault.at);
    }
    Plan {
        seed,
        group,
        drift: match clocks {
            Clocks::Debate => (0.25, Duration::from_millis(2)),
            _ => (0.01, Duration::from_millis(2)),
        },
        delay: delay(random),
        healed: healed(&faults, span),
        nodes,
        clients,
        steps,
        faults,
        sentinels: None,
        two_lines: two_lines(seed),
    }
}

/// Drawn apart, so that the rest of a schedule stays the same.
fn two_lines(seed: u64) -> bool {
    Random::apart(seed, 0x6c69_6e65).chance(50)
}

/// The least and the most delay of a message, in nanoseconds.
fn delay(random: &mut Random) -> (u64, u64) {
    random.pick(&[
        (20_000, 400_000),
        (100_000, 2_000_000),
        (500_000, 8_000_000),
    ])
}

/// When all faults have ended.
fn healed(faults: &[Fault], span: Duration) -> Duration {
    let last = faults.last().map_or(span, |fault| fault.at.max(span));
    last + Duration::from_secs(2)
}

fn nodes(random: &mut Random, clocks: Clocks, count: usize, window: Duration) -> Vec<NodePlan> {
    let close = random.chance(60);
    let nodes = (0..count).map(|_| NodePlan {
        rate: rate(random, clocks),
        ahead_us: match close {
            true => random.about(20_000),
            false => ahead_us(random, window),
        },
        // A single node has no others that remember what it forgot.
        durable: count == 1 || random.chance(30),
    });
    nodes.collect()
}

fn clients(random: &mut Random, clocks: Clocks) -> Vec<ClientPlan> {
    let count = random.between(2, 5);
    let hosts = random.between(1, count);
    let clients = (0..count).map(|_| ClientPlan {
        rate: rate(random, clocks),
        start: Duration::from_micros(random.between(0, 300_000)),
        host: random.between(0, hosts - 1) as usize,
    });
    clients.collect()
}

/// How fast a clock runs, in parts per million of true time.
fn rate(random: &mut Random, clocks: Clocks) -> u64 {
    let truth = TRUE_RATE;
    match clocks {
        // Two clocks never differ by more than the default drift, one per cent, allows.
        Clocks::Usual => truth.saturating_add_signed(random.about(4_900)),
        Clocks::Debate | Clocks::DebateUnprepared => random.pick(&[
            truth * 50 / 45,
            truth * 50 / 55,
            truth * 100 / 95,
            truth * 1_000 / 1_120,
        ]),
    }
}

fn ahead_us(random: &mut Random, window: Duration) -> i64 {
    let window_us = window.as_micros() as i64;
    match random.between(0, 9) {
        0 => random.about(3 * window_us),
        1..5 => random.about(window_us),
        _ => random.about(20_000),
    }
}
