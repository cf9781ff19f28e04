//! The SQLite node compared with the ledger: the same requests to a file and to the ledger have the same
//! answers, stamps and wakes.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::NodeClock;
use ringfence::node::sqlite::SqliteNode;
use ringfence_core::group::Group;
use ringfence_core::ledger::{self, Entry, Moment, Rules};
use ringfence_core::message::{Ballot, Break, Op, PlainAcquire, ReleaseKind, Request, Ticket};
use ringfence_core::name::Name;

use crate::nodes::support::*;

/// The wall clock at the beginning.
pub(crate) const WALL_US: u64 = 1_700_000_000_000_000;

/// A file and the ledger. Time stands still until a test passes it.
pub(crate) struct Comparison {
    time: SteppedClock,
    scratch: Scratch,
    node: Option<SqliteNode>,
    /// Hears the wakes of tickets `c.…`.
    listener: WakeListener,
    rules: Rules,
    pub(crate) model: BTreeMap<Name, Entry>,
    pub(crate) now: Moment,
    steps: usize,
}

impl Comparison {
    pub(crate) fn new() -> Self {
        let mut made = Self {
            time: SteppedClock::starting_at(Duration::from_secs(1_000)),
            scratch: Scratch::new(),
            node: None,
            listener: WakeListener::new(),
            rules: Rules::of_group(&Group::new(1)),
            model: BTreeMap::new(),
            now: Moment {
                clock_us: WALL_US,
                lease_ms: 1_000_000,
            },
            steps: 0,
        };
        made.open();
        made
    }

    fn open(&mut self) {
        self.node = None;
        let clock = NodeClock::following(Clock::Stepped(self.time.clone()), WALL_US);
        let node = SqliteNode::open(self.scratch.path("locks.db"), clock).unwrap();
        join(&node, Group::new(1)).wait().unwrap();
        self.listener.listen(&node, "c");
        self.node = Some(node);
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.time.step(Duration::from_millis(ms));
        self.now.clock_us += ms * 1000;
        self.now.lease_ms += ms;
    }

    /// What the ledger has under `name`.
    pub(crate) fn entry(&self, name: &Name) -> Entry {
        self.model.get(name).cloned().unwrap_or_default()
    }

    /// Executes `request` on both, and compares.
    pub(crate) fn step(&mut self, request: &Request) -> Result<(), TestCaseError> {
        self.steps += 1;
        if self.steps.is_multiple_of(16) {
            // All state must be in the file.
            self.open();
        }
        let names = || request.claims.iter().map(|claim| claim.name.clone());
        let mut entries: Vec<Entry> = names().map(|name| self.entry(&name)).collect();
        let outcome = ledger::apply(&self.rules, self.now, &mut entries, request);
        self.model.extend(names().zip(entries));
        let node = self.node.as_ref().expect("an open file");
        let reply = send(node, request.clone(), NEVER).wait().unwrap();
        prop_assert_eq!(&reply.answer, &outcome.answer, "{:?}", request);
        if let Some(stamp) = reply.stamp {
            prop_assert_eq!(stamp, outcome.stamp, "{:?}", request);
        }
        prop_assert_eq!(reply.stamp.is_none(), request.op.is_plain());
        // Wakes are delivered before the reply.
        prop_assert_eq!(self.listener.received(), outcome.wakes);
        Ok(())
    }
}

/// One random step of the comparison with the ledger.
#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    request: Request,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ballot = prop_oneof![
        3 => (0u64..40).prop_map(|by| Ballot::new(WALL_US + by)),
        1 => (0u64..80_000_000).prop_map(|by| Ballot::new(WALL_US - 6_000_000 + by)),
    ];
    let ttl = prop_oneof![2 => 0u64..30, 1 => 0u64..100_000];
    let later = ticket(WALL_US + 1, "c.9");
    let ticket = (0u64..3, 0u64..4, any::<bool>()).prop_map(|(since, id, first)| Ticket {
        first,
        ..ticket(WALL_US + since, &format!("c.{id}"))
    });
    let release_kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let op = (0..17, ballot, ttl, ticket, release_kind, any::<bool>()).prop_map(
        move |(kind, ballot, ttl_ms, ticket, release_kind, stays)| match kind {
            0 | 1 => acquire(ballot, ttl_ms),
            2 => extend(ballot, ttl_ms),
            3 => release(ballot),
            4 => undo(ballot, false),
            5 => undo(ballot, true),
            6 => restore(ballot),
            7 => Op::PlainAcquire(PlainAcquire { ttl_ms }),
            8 => Op::PlainRelease,
            9..12 => acquire_with_ticket(ballot, ttl_ms, &ticket),
            12 => refresh(&[&ticket, &later]),
            13 => Op::Inspect,
            15.. => Op::Break(Break {
                ballot,
                up_to: Ballot::new(WALL_US + ttl_ms),
                foreign: stays,
                only: None,
                slot: None,
                by: "ops".into(),
                reason: "dead".into(),
                keep_ms: ttl_ms,
            }),
            _ => leave(ballot, release_kind, Some(&ticket), stays),
        },
    );
    let names = prop_oneof![Just(vec!["a"]), Just(vec!["b"]), Just(vec!["a", "b"])];
    let pass = prop_oneof![
        8 => 0u64..5, 3 => 0u64..2_000, 1 => 0u64..20_000, 1 => 55_000u64..65_000
    ];
    let step = (pass, 1u8..4, names, op).prop_map(|(pass_ms, client, names, op)| Step {
        pass_ms,
        request: request(&names, client, op),
    });
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_agrees_with_the_ledger(steps in steps()) {
        let mut sqlite = Comparison::new();
        for step in steps {
            sqlite.pass(step.pass_ms);
            sqlite.step(&step.request)?;
        }
    }
}
