//! Several clients with the real machines on real ledgers. The network loses, delays, reorders and
//! repeats messages, and the clocks run at different rates. There are never two holders, and fences
//! rise. A seed replays any run.

mod world;

use std::collections::BTreeMap;

use super::*;

const LEASE: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_millis(100);
/// The length of one run, on its own clock.
const RUN: Duration = Duration::from_secs(60);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = self.0 ^ (self.0 >> 33);
        mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 20
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn within(&mut self, span: Duration) -> Duration {
        Duration::from_micros(self.below(span.as_micros() as u64 + 1))
    }
}

/// The round of a client that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round(u64);

#[derive(Debug)]
enum Event {
    Arrives { call: Call, op: Op, token: Token },
    Answers { call: Call, outcome: Outcome },
    Wakes { client: usize },
}

#[derive(Debug, Clone, Copy)]
struct Call {
    client: usize,
    node: usize,
    round: Round,
    sent: Timestamp,
}

struct RunningRelease {
    round: Round,
    machine: PendingRelease,
    token: Token,
    ballot: Ballot,
    kind: ReleaseKind,
}

enum Phase {
    Idle { until: Timestamp },
    Trying,
    Pausing { at: Timestamp },
    Holding { until: Timestamp, crashes: bool },
}

struct Client {
    cluster: Cluster,
    phase: Phase,
    acquisition: Acquisition,
    attempt: Option<(Round, Attempt)>,
    releases: Vec<RunningRelease>,
    /// Until when it relies on the lock.
    relies_until: Option<Timestamp>,
    /// Paused until then, like a stopped process.
    paused_until: Timestamp,
    /// When it polls again by itself.
    wakes: Timestamp,
    grants: u32,
}

struct World {
    random: Random,
    now: Timestamp,
    servers: Vec<Server>,
    clients: Vec<Client>,
    events: BTreeMap<(Timestamp, u64), Event>,
    serial: u64,
    fence: Ballot,
    /// How often a lock changed hands by expiry, not by release.
    expired: u32,
}

fn world_terms(nodes: usize) -> AcquireTerms {
    AcquireTerms {
        nodes,
        ttl: LEASE,
        drift: Drift::default(),
        min_validity: LEAST,
        call_timeout: CALL_TIMEOUT,
        wait: Some(Duration::from_secs(20)),
        attempts: None,
        no_quorum_after: Duration::from_secs(5),
        kind: Kind::Exclusive,
    }
}

fn runs(nodes: usize, clients: usize, seeds: u64) {
    let (mut grants, mut expired) = (0, 0);
    for seed in 0..seeds {
        let mut world = World::new(nodes, clients, seed * 1_000 + nodes as u64);
        let run = std::panic::AssertUnwindSafe(|| world.run());
        if let Err(why) = std::panic::catch_unwind(run) {
            panic!("seed {seed}, {nodes} nodes, {clients} clients: {why:?}");
        }
        let each = world.clients.iter().map(|client| client.grants);
        assert!(
            each.clone().min() > Some(0),
            "seed {seed}: a client starves"
        );
        grants += each.sum::<u32>();
        expired += world.expired;
    }
    // With fewer, the run would prove nothing.
    assert!(u64::from(grants) > seeds * 20, "{grants} grants");
    assert!(u64::from(expired) > seeds, "{expired} expiries");
}

#[test]
fn one_node_never_has_two_holders_and_its_fences_rise() {
    runs(1, 3, 30);
}

#[test]
fn two_nodes_never_have_two_holders_and_their_fences_rise() {
    runs(2, 2, 30);
}

#[test]
fn three_nodes_never_have_two_holders_and_their_fences_rise() {
    runs(3, 3, 60);
}

#[test]
fn five_nodes_never_have_two_holders_and_their_fences_rise() {
    runs(5, 4, 30);
}
