//! Random histories of readers and writers, with and without tickets, and calls to a node.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use ringfence::node::{Call, CallError, Completion, Deliver, Facts, Node};
use ringfence_core::group::Group;
use ringfence_core::message::{
    Acquire, Ballot, Break, Claim, Downgrade, Extend, Mode, Op, Refresh, Release, ReleaseKind,
    Reply, Request, Restore, Ticket,
};
use ringfence_core::name::Name;
use ringfence_core::time::Timestamp;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};

pub(crate) const NAMES: [&str; 2] = ["a", "b}{"];

/// One step: time passes, another program may change a key, then a client sends a request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The server has a birth before the request, whose quarantine ends in so many milliseconds.
    pub(crate) birth_ms: Option<i64>,
    pub(crate) pass_ms: u64,
    pub(crate) interference: Option<Interference>,
    client: u8,
    claims: Vec<(usize, bool)>,
    what: u8,
    with_ticket: bool,
    stays: bool,
    offset_us: i64,
    ttl_ms: u64,
}

/// What another program does to the first name's key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Interference {
    Set,
    /// The value that marks a name as shared.
    SetMarker,
    Delete,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    steps_with(0u8..16, Just(None))
}

/// Steps on the only node of a group: births, and many acquires and restores.
pub(crate) fn steps_behind_a_failover() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![6 => Just(0u8), 6 => Just(11), 3 => 0u8..16];
    let left_ms = prop_oneof![3 => Just(-5_000i64), 1 => 1..40i64, 4 => Just(20_000i64)];
    let birth = prop_oneof![4 => Just(None), 1 => left_ms.prop_map(Some)];
    steps_with(what, birth)
}

fn steps_with(
    what: impl Strategy<Value = u8>,
    birth: impl Strategy<Value = Option<i64>>,
) -> impl Strategy<Value = Vec<Step>> {
    let claims = prop_oneof![
        5 => any::<bool>().prop_map(|shared| vec![(0, shared)]),
        1 => any::<bool>().prop_map(|shared| vec![(1, shared)]),
        2 => any::<(bool, bool)>().prop_map(|(one, other)| vec![(1, one), (0, other)]),
    ];
    let offset = prop_oneof![6 => -40i64..40, 1 => -20_000i64..20_000];
    let ttl = prop_oneof![2 => 20u64..60, 3 => 200u64..2_000];
    let pass = prop_oneof![8 => Just(0u64), 1 => 1u64..40];
    let interference = prop_oneof![
        30 => Just(None),
        1 => Just(Some(Interference::Set)),
        1 => Just(Some(Interference::SetMarker)),
        1 => Just(Some(Interference::Delete)),
    ];
    let how = (any::<bool>(), any::<bool>(), offset, ttl);
    let before = (birth, pass, interference);
    let step = (before, 1u8..5, claims, what, how).prop_map(
        |(before, client, claims, what, (with_ticket, stays, offset_us, ttl_ms))| {
            let (birth_ms, pass_ms, interference) = before;
            Step {
                birth_ms,
                pass_ms,
                interference,
                client,
                claims,
                what,
                with_ticket,
                stays,
                offset_us,
                ttl_ms,
            }
        },
    );
    proptest::collection::vec(step, 1..40)
}

impl Step {
    /// The request if the node's clock is `clock_us`; the history began at `base_us`.
    pub(crate) fn request(&self, clock_us: u64, base_us: u64) -> Request {
        let ballot = Ballot::new(clock_us.saturating_add_signed(self.offset_us));
        let ttl_ms = self.ttl_ms;
        let label: Arc<str> = format!("label of {}: with colons:\n{ttl_ms}", self.client).into();
        let ticket = Ticket {
            since_us: base_us + u64::from(self.client % 3),
            id: format!("c.{}", self.client).into(),
            first: false,
            label: format!("label of {}", self.client).into(),
        };
        let op = match self.what {
            0..=4 => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label,
                ticket: self.with_ticket.then_some(ticket),
                not_after_us: None,
            }),
            5 => Op::Extend(Extend {
                ballot,
                ttl_ms,
                delay_ms: self.delay_ms(),
            }),
            6 | 7 => Op::Downgrade(Downgrade { ballot, ttl_ms }),
            8..=10 => Op::Release(Release {
                ballot,
                kind: [ReleaseKind::Final, ReleaseKind::Undo][usize::from(self.what == 9)],
                fate_unknown: self.offset_us % 4 == 0,
                ticket: self.with_ticket.then_some(ticket),
                stays: self.stays,
                keep_ms: None,
                delay_ms: self.delay_ms(),
            }),
            11 => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label,
            }),
            12 => Op::Refresh(Refresh {
                tickets: Arc::from([ticket]),
            }),
            13 => Op::Inspect,
            _ => Op::Break(self.breaking(ballot)),
        };
        let most = if self.what > 13 { 1 } else { 2 };
        let claims = self.claims.iter().take(most);
        let claims = claims.map(|&(name, shared)| Claim {
            name: Name::new("", NAMES[name]).unwrap(),
            mode: if shared {
                Mode::Shared
            } else {
                Mode::Exclusive
            },
        });
        Request {
            claims: claims.collect(),
            token: self.token(),
            op,
        }
    }

    /// The lock delay of a receipt: longer than any lease, or shorter than what is left of one.
    fn delay_ms(&self) -> u64 {
        match self.offset_us % 5 {
            0 => 100_000,
            1 => 1,
            _ => 0,
        }
    }

    /// Breaks some of the readers, the only one, or all of them.
    fn breaking(&self, ballot: Ballot) -> Break {
        Break {
            ballot,
            up_to: Ballot::new(ballot.get().saturating_sub(self.ttl_ms * 20)),
            foreign: self.stays,
            only: self.with_ticket.then(|| self.token().id().into()),
            slot: None,
            by: "ops".into(),
            reason: "dead".into(),
            keep_ms: 60_000,
        }
    }

    fn token(&self) -> Token {
        Token::from_entropy([self.client; TOKEN_ENTROPY_BYTES])
    }
}

struct Inbox<T>(Mutex<Option<std::sync::mpsc::SyncSender<Result<T, CallError>>>>);

impl<T: Send> Deliver<T> for Inbox<T> {
    fn deliver(&self, _tag: u64, outcome: Result<T, CallError>) {
        let to = self.0.lock().unwrap().take().expect("answered twice");
        let _ = to.send(outcome);
    }
}

/// Waits for a reply in a thread that runs nothing else.
fn wait<T: Send + 'static>(ask: impl FnOnce(Completion<T>)) -> Result<T, CallError> {
    let (to, answer) = sync_channel(1);
    ask(Completion::new(Arc::new(Inbox(Mutex::new(Some(to)))), 0));
    let answer = answer.recv_timeout(Duration::from_secs(30));
    answer.expect("an answer")
}

pub(crate) fn ask(node: &dyn Node, request: Request) -> Reply {
    try_ask(node, request).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_ask(node: &dyn Node, request: Request) -> Result<Reply, CallError> {
    wait(|done| {
        node.send(Call {
            request: Arc::new(request),
            expires: Timestamp::from_nanos(u64::MAX),
            done,
        });
    })
}

pub(crate) fn join(node: &dyn Node, group: Group) -> Facts {
    wait(|done| node.join(group, done)).unwrap_or_else(|error| panic!("{error}"))
}
