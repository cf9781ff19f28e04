//! SQLite compared with its specification: the same history in a file and in the ledger, with the
//! same answers.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::NodeClock;
use ringfence::node::sqlite::SqliteNode;
use ringfence_core::group::Group;
use ringfence_core::ledger::{self, Entry, Moment, Rules};
use ringfence_core::message::{Answer, Op};
use ringfence_core::name::Name;

use crate::bench::{Step, ask, join, steps};

const WALL_US: u64 = 1_700_000_000_000_000;

fn run(steps: &[Step]) {
    let folder = new_folder();
    let time = SteppedClock::starting_at(Duration::from_secs(1_000));
    let clock = || NodeClock::following(Clock::Stepped(time.clone()), WALL_US);
    let path = folder.join("locks.db");
    let open = || {
        let node = SqliteNode::open(&path, clock()).unwrap();
        join(&node, Group::new(1));
        node
    };
    let mut node = open();
    let rules = Rules::of_group(&Group::new(1));
    let mut entries: BTreeMap<Name, Entry> = BTreeMap::new();
    let first = node_clock(&node);
    for (number, step) in steps.iter().enumerate() {
        time.step(Duration::from_millis(step.pass_ms));
        if number % 16 == 15 {
            // All state must be in the file.
            drop(node);
            node = open();
        }
        let request = step.request(node_clock(&node), first);
        let lease_ms = time.now().as_micros() / 1000;
        let reply = ask(&node, request.clone());
        let clock_us = reply.stamp.expect("a stamp").clock_us;
        let names = request.claims.iter().map(|claim| claim.name.clone());
        let names: Vec<Name> = names.collect();
        let mut loaded: Vec<Entry> = names
            .iter()
            .map(|name| entries.remove(name).unwrap_or_default())
            .collect();
        let now = Moment { clock_us, lease_ms };
        let outcome = ledger::apply(&rules, now, &mut loaded, &request);
        entries.extend(names.into_iter().zip(loaded));
        assert_eq!(reply.answer, outcome.answer, "{request:?}");
        assert_eq!(reply.stamp, Some(outcome.stamp), "{request:?}");
    }
    drop(node);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn node_clock(node: &SqliteNode) -> u64 {
    let mut look = inspect();
    look.op = Op::Inspect;
    let reply = ask(node, look);
    assert!(matches!(reply.answer, Answer::Views(_)));
    reply.stamp.expect("a stamp").clock_us
}

fn inspect() -> ringfence_core::message::Request {
    use ringfence_core::message::{Claim, Mode, Request};
    use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};
    Request {
        claims: [Claim {
            name: Name::new("", "clock").unwrap(),
            mode: Mode::Exclusive,
        }]
        .into(),
        token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
        op: Op::Inspect,
    }
}

fn new_folder() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = format!("ringfence-readers-{}-{serial}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        max_shrink_iters: ProptestConfig::default().max_shrink_iters.min(100),
        ..ProptestConfig::default()
    })]

    #[test]
    fn sqlite_agrees_with_the_ledger_on_readers(steps in steps()) {
        run(&steps);
    }
}
