//! What is the same in all states of a search: the values of the group, what clients ask for, and
//! how ticks become the times that the machines know.

use std::sync::Arc;
use std::time::Duration;

use ringfence_core::group::Group;
use ringfence_core::message::{Claim, Kind, Mode, Standing};
use ringfence_core::name::Name;
use ringfence_core::node::{Facts, Tier};
use ringfence_core::protocol::{AcquireTerms, Cluster, Drift, HoldPolicy};
use ringfence_core::time::Timestamp;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};

use super::scope::{Scope, Ticks, Variant};
use super::world::{CLIENTS, NODES};

/// A tick is longer than every pause that a machine makes by itself, so a pause is over with the
/// next tick; and as long as what the product adds to every quarantine.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// The first tick. Far enough from zero that a window fits below.
const START: u64 = 100;
/// How many tokens a client may need: one for each attempt.
const TOKENS: usize = 16;

/// What is the same in all states of a search.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) scope: Scope,
    pub(super) group: Group,
    pub(super) terms: AcquireTerms,
    pub(super) policy: Arc<HoldPolicy>,
    /// How long a node keeps what it grants.
    pub(super) lease: Duration,
    pub(super) claims: Arc<[Claim]>,
    pub(super) label: Arc<str>,
    /// The tokens of each client, as the nodes know them.
    pub(super) tokens: [[Token; TOKENS]; CLIENTS],
}

/// The time `ticks` on a client's clock.
pub(super) fn at(ticks: Ticks) -> Timestamp {
    Timestamp::ZERO + TICK * (START as u32 + u32::from(ticks))
}

/// The first tick that is not before `time`.
pub(super) fn tick_of(time: Timestamp) -> Ticks {
    let ticks = time.as_nanos().div_ceil(TICK.as_nanos() as u64);
    Ticks::try_from(ticks.saturating_sub(START)).unwrap_or(Ticks::MAX)
}

/// The time `ticks` on a node's clock, in microseconds.
pub(super) fn clock_us(ticks: Ticks) -> u64 {
    at(ticks).as_micros()
}

/// So long that it ends just before the last tick: what lasts for two ticks from tick 3 on is over
/// at tick 5. Nodes keep a key up to and including its last millisecond.
pub(super) fn just_below(ticks: Ticks) -> Duration {
    (TICK * u32::from(ticks)).saturating_sub(Duration::from_millis(1))
}

impl Setting {
    pub(super) fn new(scope: Scope) -> Self {
        let name = Name::new("", "model").expect("a good name");
        let (ttl, lease, quarantine, window) = match (scope.span(), scope.node_time()) {
            (Some(span), _) => {
                let ttl = just_below(span.ttl);
                (ttl, ttl, span.quarantine, span.window)
            }
            // A lease on the node whose clock runs lasts for no tick, which is the worst that it
            // can do.
            (None, Some(time)) => (TICK, Duration::ZERO, time.quarantine, time.window),
            (None, None) => unreachable!("time passes one way or the other"),
        };
        // No clock is faster than another here.
        let drift = Drift::new(0.0, Duration::ZERO).expect("no drift is a drift");
        let label: Arc<str> = Arc::from("");
        // A node that has not answered may be taken for silent at any moment.
        let call_timeout = Duration::ZERO;
        Self {
            scope,
            group: Group {
                nodes: NODES,
                window: TICK * u32::from(window),
                // The machines add a second.
                quarantine: (TICK * u32::from(quarantine)).saturating_sub(TICK),
                grace: TICK,
                ..Group::new(NODES)
            },
            terms: AcquireTerms {
                nodes: NODES,
                ttl,
                drift,
                min_validity: Duration::ZERO,
                call_timeout,
                wait: None,
                attempts: None,
                no_quorum_after: TICK * 1000,
                kind: Kind::Exclusive,
            },
            policy: Arc::new(HoldPolicy {
                ttl,
                lock_delay: Duration::ZERO,
                hold_at_least: Duration::ZERO,
                call_timeout: TICK,
                drift,
                renew: scope.renewals > 0,
                max_hold: None,
                label: Arc::clone(&label),
            }),
            lease,
            claims: Arc::from([Claim {
                name,
                mode: Mode::Exclusive,
            }]),
            label,
            tokens: std::array::from_fn(|client| std::array::from_fn(|n| token(client + 1, n))),
        }
    }

    /// The token of a client's `n`-th attempt. Clients do not know which one they are, so that
    /// states in which two clients have changed places are one.
    pub(super) fn own_token(n: usize) -> Token {
        token(0, n)
    }

    /// How the nodes know `own`, the token of `client`.
    pub(super) fn token_of(&self, client: usize, own: &Token) -> Token {
        let n = (0..TOKENS).find(|n| Self::own_token(*n) == *own);
        self.tokens[client][n.unwrap_or_default()].clone()
    }

    /// Nodes of which a client knows nothing.
    pub(super) fn strangers(&self) -> Cluster {
        let mut cluster = Cluster::new(&self.group, self.terms.drift, &[true; NODES]);
        // No clock jumps here in a way that a client could notice, so none is watched.
        (0..NODES).for_each(|node| cluster.leases_use_other_clock(node));
        cluster
    }

    /// Nodes that a client has met, all of whose clocks showed `ticks`.
    pub(super) fn acquainted(&self, ticks: Ticks) -> Cluster {
        let mut cluster = self.strangers();
        let now = at(0);
        let clock_us = clock_us(ticks);
        let facts = Facts {
            standing: Some(standing(None, 0)),
            clock_us,
            sent: now,
            received: now,
            group: Some(self.group),
            run_id: String::new(),
            version: String::new(),
            tier: Tier::Quarantined,
        };
        for node in 0..NODES {
            cluster.observe_facts(node, &facts);
        }
        cluster
    }

    pub(super) fn is(&self, variant: Variant) -> bool {
        self.scope.variant == variant
    }
}

/// How a node stands that forgot everything at `born`, or never did, and whose clock shows `clock`.
/// Of a node that never did, its time says nothing.
pub(super) fn standing(born: Option<Ticks>, clock: Ticks) -> Standing {
    Standing {
        incarnation: 1 + u64::from(born.is_some()),
        born_us: born.map_or(0, clock_us),
        clock_us: born.map_or(0, |_| clock_us(clock)),
        server: 0,
        replicated: false,
        epoch: None,
    }
}

fn token(client: usize, n: usize) -> Token {
    Token::from_entropy([(client * TOKENS + n) as u8; TOKEN_ENTROPY_BYTES])
}
