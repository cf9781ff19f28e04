//! The rules of the quorum protocol, one test each, and the invariants for any sequence of events.
//!
//! Time is a number that the test chooses. `Server` is a node that consists of the ledger, one name
//! and its own clock.

mod acquisition;
mod attempt;
mod ballot;
mod breaking;
mod clients;
mod confirmation;
mod duplicates;
mod extension;
mod failover;
mod fence_ahead;
mod hold;
mod latch;
mod latch_seen_open;
mod offsets;
mod patience;
mod quarantine;
mod reach;
mod release;
mod scan;
mod slots;
mod undo;
mod validity;

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::group::Group;
use crate::ledger::{Entry, Moment, Rules, apply};
use crate::message::{
    Acquire, Answer, Arrive, Attend, Ballot, Claim, Downgrade, Holder, Kind, Mode, Op, Release,
    ReleaseKind, Reply, ReplyStamp, Request, Restore, Standing,
};
use crate::name::Name;
use crate::node::{CallError, Facts, Tier, Trouble, TroubleKind};
use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

const TTL: Duration = Duration::from_secs(10);
/// `TTL` less 1 % and 2 ms.
const VALIDITY: Duration = Duration::from_millis(9_898);
const MIN_VALIDITY: Duration = Duration::from_secs(1);
const CALL_TIMEOUT: Duration = Duration::from_millis(100);
const WINDOW_US: u64 = 5_000_000;
/// What the nodes' clocks show at the start of ours.
const START_US: u64 = 1_000_000_000_000;

type Outcome = Result<Reply, CallError>;

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn token(who: u64) -> Token {
    let mut entropy = [0; TOKEN_ENTROPY_BYTES];
    // In the public and in the secret half.
    entropy[..4].copy_from_slice(&(who as u32).to_be_bytes());
    entropy[8..16].copy_from_slice(&who.to_be_bytes());
    Token::from_entropy(entropy)
}

/// A reply of a node without a quarantine.
fn reply(answer: Answer) -> Outcome {
    Ok(Reply {
        stamp: None,
        standing: Standing::default(),
        answer,
    })
}

fn held(for_ms: Option<u64>) -> Answer {
    Answer::Held(Holder {
        for_ms,
        ..Holder::default()
    })
}

fn not_sent() -> Outcome {
    let trouble = Trouble::new(TroubleKind::Unreachable, "connection refused");
    Err(CallError::NotSent(trouble))
}

fn unknown() -> Outcome {
    let trouble = Trouble::new(TroubleKind::Disconnected, "the connection ended");
    Err(CallError::Unknown(trouble))
}

fn refused(kind: TroubleKind) -> Outcome {
    Err(CallError::Refused(Trouble::new(
        kind,
        "refused by the server",
    )))
}

/// The discount of a node in quarantine.
fn quarantined(left: Duration) -> Vote {
    Vote::Quarantined { left }
}

/// The `index`-th of all sequences of `length` items out of `letters`.
fn word<T: Copy>(letters: &[T], length: usize, mut index: usize) -> Vec<T> {
    let mut letter = || {
        let letter = letters[index % letters.len()];
        index /= letters.len();
        letter
    };
    (0..length).map(|_| letter()).collect()
}

fn words<T: Copy>(letters: &[T], length: usize) -> impl Iterator<Item = (usize, Vec<T>)> {
    let count = letters.len().pow(length as u32);
    (0..count).map(move |index| (index, word(letters, length, index)))
}

/// Orders in which `nodes` nodes may answer.
fn orders(nodes: usize) -> [Vec<usize>; 3] {
    let forward: Vec<usize> = (0..nodes).collect();
    let backward = forward.iter().rev().copied().collect();
    let mut middle_out = forward.clone();
    middle_out.sort_by_key(|node| node.abs_diff(nodes / 2));
    [forward, backward, middle_out]
}

/// One node: the ledger of one name, with its own clock.
#[derive(Debug, Clone)]
struct Server {
    /// The offset of its clock from the others.
    offset_us: i64,
    /// How much faster it runs than ours.
    rate_ppm: i64,
    entry: Entry,
}

impl Server {
    fn new(offset_us: i64) -> Self {
        Self {
            offset_us,
            rate_ppm: 0,
            entry: Entry::default(),
        }
    }

    fn clock_us(&self, now: Timestamp) -> u64 {
        let passed = now.as_micros() as i64;
        let drifted = passed + passed * self.rate_ppm / 1_000_000;
        START_US.saturating_add_signed(self.offset_us + drifted)
    }

    fn facts(&self, now: Timestamp) -> Facts {
        facts(self.clock_us(now), now)
    }

    fn ask(&mut self, now: Timestamp, token: &Token, op: Op) -> Outcome {
        let request = Request {
            claims: Arc::from([Claim {
                name: Name::new("", "x").unwrap(),
                mode: Mode::Exclusive,
            }]),
            token: token.clone(),
            op,
        };
        let rules = Rules {
            window_us: WINDOW_US,
            retention_ms: 60_000,
            grace_ms: 1_500,
            grants_from_us: 0,
        };
        let moment = Moment::of_clock(self.clock_us(now));
        let entries = std::slice::from_mut(&mut self.entry);
        let outcome = apply(&rules, moment, entries, &request);
        Ok(Reply {
            stamp: Some(outcome.stamp),
            standing: Standing::default(),
            answer: outcome.answer,
        })
    }
}

fn acquire(ballot: Ballot) -> Op {
    Op::Acquire(Acquire {
        ballot,
        ttl_ms: TTL.as_millis() as u64,
        label: Arc::from("job"),
        ticket: None,
        not_after_us: None,
    })
}

fn undo(ballot: Ballot, fate_unknown: bool) -> Op {
    Op::Release(Release {
        ballot,
        kind: ReleaseKind::Undo,
        fate_unknown,
        ticket: None,
        stays: true,
        keep_ms: None,
        delay_ms: 0,
    })
}

/// A handshake that took no time.
fn facts(clock_us: u64, now: Timestamp) -> Facts {
    Facts {
        standing: Some(Standing {
            clock_us,
            ..Standing::default()
        }),
        clock_us,
        sent: now,
        received: now,
        group: None,
        run_id: String::new(),
        version: String::new(),
        tier: Tier::Quarantined,
    }
}

/// The view of a client that has not contacted its nodes, all of which have a quarantine.
fn cluster_of(nodes: usize) -> Cluster {
    Cluster::new(&Group::new(nodes), Drift::default(), &vec![true; nodes])
}

/// The same, after handshakes with `servers`.
fn connected(servers: &[Server], now: Timestamp) -> Cluster {
    let mut cluster = cluster_of(servers.len());
    for (node, server) in servers.iter().enumerate() {
        cluster.observe_facts(node, &server.facts(now));
    }
    cluster
}

#[test]
fn a_tie_is_no_majority() {
    let quorums: Vec<usize> = (1..=7).map(quorum).collect();
    assert_eq!(quorums, [1, 2, 2, 3, 3, 4, 4]);
}
