//! From a seed to a plan. Contention is strong, TTLs are short, and pauses last about as long as
//! leases do: a rule that is missing should be missed soon.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_core::group::Group;

use super::dial::TRUE_RATE;
use super::moves::Moves;
use super::plan::{ClientPlan, End, Fault, NodePlan, Plan, Step, Trouble, Want, Ways};
use crate::random::Random;

/// How clocks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clocks {
    /// Apart by less than the default drift allows.
    Usual,
    /// As in the debate about Redlock: five seconds that last 4.5 or 5.5, ten that last 9.5 or 11.2;
    /// with the drift set for them.
    Debate,
    /// The same, with the default drift: too little.
    DebateUnprepared,
}

/// What sort of things go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Calm,
    /// Only clients stand still.
    Clients,
    /// Everything but clocks.
    Storm,
    /// Clocks too.
    Clocks,
}

/// The plan that `seed` decides.
pub fn plan(seed: u64, clocks: Clocks) -> Plan {
    let mut random = Random::apart(seed, 0x706c_616e);
    let random = &mut random;
    let weather = match (random.between(0, 99), clocks) {
        (0..15, _) => Weather::Calm,
        (15..30, _) => Weather::Clients,
        (75.., Clocks::Usual) => Weather::Clocks,
        _ => Weather::Storm,
    };
    let ttl_ms = random.pick(&[50, 80, 150, 300, 800, 2_000]);
    let window = Duration::from_millis(random.pick(&[100, 500, 2_000, 5_000]));
    let longest = Duration::from_millis(2 * ttl_ms);
    let count = random.pick(&[1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5]);
    let group = Group {
        window,
        quarantine: longest.max(window * 2) + Group::CLOCK_STEP,
        ..Group::new(count)
    };
    let close = random.chance(60);
    let nodes = (0..count).map(|_| NodePlan {
        rate: rate(random, clocks),
        ahead_us: match close {
            true => random.about(20_000),
            false => ahead_us(random, window),
        },
        // One node has nobody to vouch for what it forgot.
        durable: count == 1 || random.chance(30),
    });
    let nodes: Vec<NodePlan> = nodes.collect();
    let count = random.between(2, 5) as usize;
    let hosts = random.between(1, count as u64);
    let clients = (0..count).map(|_| ClientPlan {
        rate: rate(random, clocks),
        start: Duration::from_micros(random.between(0, 300_000)),
        host: random.between(0, hosts - 1) as usize,
    });
    let clients: Vec<ClientPlan> = clients.collect();
    let steps = steps(random, count, ttl_ms);
    let lasts = Duration::from_millis(random.between(500, 6_000));
    let mut faults = Faults {
        random,
        nodes: &nodes,
        clients: &clients,
        ttl: Duration::from_millis(ttl_ms),
        span: lasts,
        clocks: BTreeMap::new(),
    }
    .all(weather);
    if matches!(weather, Weather::Storm | Weather::Clocks) {
        let moves = Moves {
            random: Random::apart(seed, 0x6d6f_7665),
            nodes: &nodes,
            steps: &steps,
            faults: &faults,
            quarantine: group.quarantine,
            ttl: Duration::from_millis(ttl_ms),
            span: lasts,
        };
        faults.extend(moves.all());
        faults.sort_by_key(|fault| fault.at);
    }
    let last = faults.last().map_or(lasts, |fault| fault.at.max(lasts));
    let delay = random.pick(&[
        (20_000, 400_000),
        (100_000, 2_000_000),
        (500_000, 8_000_000),
    ]);
    Plan {
        seed,
        group,
        drift: match clocks {
            Clocks::Debate => (0.25, Duration::from_millis(2)),
            _ => (0.01, Duration::from_millis(2)),
        },
        delay,
        nodes,
        clients,
        steps,
        faults,
        healed: last + Duration::from_secs(2),
    }
}

/// What a clock gains in a million parts of true time.
fn rate(random: &mut Random, clocks: Clocks) -> u64 {
    let truth = TRUE_RATE;
    match clocks {
        // Two of them are never further apart than the default drift, one per cent, allows.
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

fn steps(random: &mut Random, clients: usize, ttl_ms: u64) -> Vec<Step> {
    let theme = random.between(0, 99);
    let mut steps = Vec::new();
    for client in 0..clients {
        for task in 0..random.between(1, 2) as usize {
            for _ in 0..random.between(1, 4) {
                let op = steps.len() as u64 + 1;
                let want = want(random, theme);
                steps.push(step(random, op, client, task, want, ttl_ms));
            }
        }
    }
    steps
}

fn want(random: &mut Random, theme: u64) -> Want {
    let name = |random: &mut Random| random.pick(&["a", "a", "a", "b"]).to_owned();
    let kind = match theme {
        0..30 => 0,
        30..42 => random.pick(&[1, 1, 2, 3]),
        42..52 => random.pick(&[0, 4, 4]),
        52..67 => 5,
        67..75 => random.pick(&[6, 6, 8]),
        75..79 => 7,
        79..88 => random.pick(&[9, 9, 9, 10, 10, 0]),
        _ => random.pick(&[0, 1, 2, 3, 4, 5, 6, 8, 9, 10]),
    };
    // All clients agree on the numbers.
    let (permits, parties) = (theme as u32 % 3 + 1, theme as u32 % 3 + 2);
    match kind {
        0 => Want::Mutex(name(random)),
        1 => Want::Read(name(random)),
        2 => Want::Write(name(random)),
        3 => Want::Downgrade(name(random)),
        4 => {
            let sets: [&[&str]; 4] = [&["a", "b"], &["b", "c"], &["c", "a"], &["b", "a", "c"]];
            let names = random.pick(&sets);
            Want::Multi(names.iter().map(|name| (*name).to_owned()).collect())
        }
        5 => Want::Permit("s".to_owned(), permits),
        6 => Want::Lead(name(random)),
        // A name of its own: it raises no fence.
        7 => Want::Plain("p".to_owned()),
        8 => Want::Observe(name(random)),
        9 => {
            // Some come twice, and some once too often.
            let party = random.between(0, u64::from(parties));
            Want::Arrive("l".to_owned(), parties, format!("party{party}"))
        }
        _ => Want::Await("l".to_owned(), parties),
    }
}

fn step(random: &mut Random, op: u64, client: usize, task: usize, want: Want, ttl_ms: u64) -> Step {
    let ttl_us = ttl_ms * 1_000;
    let ttl = match random.chance(20) {
        true => Duration::from_millis(2 * ttl_ms),
        false => Duration::from_millis(ttl_ms),
    };
    let updates = random.pick(&[0, 1, 1, 2, 5]);
    let lock = matches!(want, Want::Mutex(_) | Want::Multi(_));
    let owned = lock && random.chance(20);
    // An owner's holds are on the terms of the first: what is kept after which could not be told.
    let delays = (lock && !owned || matches!(want, Want::Lead(_))) && random.chance(20);
    let keeps = lock && !owned && random.chance(15);
    let mut up_to = |most_us: u64, wanted: bool| match wanted {
        true => Duration::from_micros(random.between(1_000, most_us)),
        false => Duration::ZERO,
    };
    let lock_delay = up_to(2 * ttl_us, delays);
    let at_least = up_to(3 * ttl_us, keeps);
    Step {
        op,
        client,
        task,
        after: Duration::from_micros(random.between(0, ttl_us)),
        want,
        ttl,
        wait: match random.between(0, 9) {
            0 => Some(Duration::ZERO),
            1..4 => Some(Duration::from_micros(random.between(1_000, 8 * ttl_us))),
            _ => None,
        },
        renew: random.chance(60),
        hold: match random.chance(50) {
            true => Duration::from_micros(random.between(0, ttl_us / 2)),
            false => Duration::from_micros(random.between(0, 3 * ttl_us)),
        },
        // Two tasks of one owner share the fence: between them it decides nothing.
        updates: if owned { 0 } else { updates },
        heedless: random.chance(25),
        cancel: random
            .chance(15)
            .then(|| Duration::from_micros(random.between(0, 2 * ttl_us))),
        // By less than is left, too: that must not shorten it.
        extend: random
            .chance(20)
            .then(|| Duration::from_millis(random.between(50, 2 * ttl_ms))),
        owned,
        lock_delay,
        at_least,
        end: match random.chance(70) {
            true => End::Release,
            false => End::Drop,
        },
    }
}

/// What goes wrong, to be drawn.
struct Faults<'a> {
    random: &'a mut Random,
    nodes: &'a [NodePlan],
    clients: &'a [ClientPlan],
    ttl: Duration,
    span: Duration,
    /// Nodes whose clocks were touched: once each, so that none steps back further than is tolerated.
    clocks: BTreeMap<usize, ()>,
}

impl Faults<'_> {
    fn all(mut self, weather: Weather) -> Vec<Fault> {
        let count = match weather {
            Weather::Calm => 0,
            Weather::Clients => self.random.between(1, 5),
            Weather::Storm | Weather::Clocks => self.random.between(1, 9),
        };
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = self.within(self.span);
            let what = match weather {
                Weather::Clients => self.of_client(),
                Weather::Clocks if self.random.chance(40) => self.of_clock(),
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

    /// About as long as a lease, or a good deal longer.
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

    fn of_client(&mut self) -> Trouble {
        let (client, lasts) = (self.client(), self.lasts());
        match self.random.between(0, 9) {
            0..5 => Trouble::Stall {
                client,
                sends: self.random.between(0, 12) as u32,
                lasts,
            },
            _ => Trouble::Pause {
                client,
                lasts,
                heard: self.random.chance(50),
            },
        }
    }

    fn of_world(&mut self) -> Trouble {
        let (node, client, lasts) = (self.node(), self.client(), self.lasts());
        match self.random.between(0, 19) {
            0..4 => Trouble::Partition {
                clients: self.some(self.clients.len()),
                nodes: self.some(self.nodes.len()),
                ways: self.random.pick(&[Ways::Both, Ways::There, Ways::Back]),
                lasts,
            },
            4..6 => Trouble::Slow {
                client,
                node,
                by: self.lasts(),
                lasts: lasts * 2,
            },
            6..8 => Trouble::Lossy {
                lost: self.random.between(0, 30),
                twice: self.random.between(0, 30),
                lasts: lasts * 2,
            },
            8..10 => Trouble::Reset { client, node },
            10..12 => Trouble::Hang {
                node,
                lasts,
                clock: false,
            },
            12..16 => Trouble::Crash { node, lasts },
            16..18 if !self.nodes[node].durable => Trouble::Flush { node },
            _ => Trouble::Kill { client },
        }
    }

    fn of_clock(&mut self) -> Trouble {
        let node = self.node();
        let machine = Trouble::PauseMachine {
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
            0..4 => Trouble::Step { node, by_us },
            4..6 => Trouble::Strobe {
                node,
                by_us,
                times: self.random.between(2, 40) as u32,
            },
            6 => Trouble::Hang {
                node,
                lasts: self.lasts().min(Duration::from_secs(4)),
                clock: true,
            },
            _ => machine,
        }
    }
}
