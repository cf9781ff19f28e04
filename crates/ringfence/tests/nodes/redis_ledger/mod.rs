//! The Lua compared with its specification: random operations go to real servers and to the ledger,
//! which runs with the clock of the server's reply. Answers, stamps, stored data and wakes must
//! agree.

mod bench;
mod compare;
mod directed;
mod interference;
mod quarantine;
mod sameness;
mod steps;
mod stored;
mod tally;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::Commands;
use ringfence::node::redis::RedisNode;
use ringfence_core::group::{Failover, Group};
use ringfence_core::ledger::{
    self, Breaks, Entry, LatchRecord, Moment, PlainKey, QueueEntry, Record, Rules, Seat, TICKET_MS,
    WaitQueue,
};
use ringfence_core::message::{
    Acquire, Answer, Ballot, Break, BreakNote, Extend, List, Mode, Op, PlainAcquire, PlainExtend,
    Refresh, Release, ReleaseKind, ReleaseSlot, Reply, Request, Restore, Ticket,
};
use ringfence_core::name::Name;
use ringfence_testkit::{Flavor, Server};

pub(crate) use bench::Bench;
pub(crate) use quarantine::{any_birth, any_latest};
pub(crate) use stored::{broken_key, line_keys, reader_keys, record_key};

use compare::messages_of;

use sameness::{comparable, same_entry, same_leases};
use steps::{
    Ask, Pick, Shown, Step, What, any_ask, any_step, any_step_of_a_break, any_step_of_a_hand_over,
    any_step_with_queue,
};

use crate::nodes::redis_node::call;
use crate::nodes::support::{request, token};

/// How much later a lease may end on a server than in the ledger, in addition to the duration of
/// the operation: older servers read the clock again for each command of a script. Never earlier.
const LATE_MS: u64 = 2;

/// The tickets: since when they wait, relative to the beginning of the history, and their ids.
pub(crate) const TICKETS: [(i64, &str); 7] = [
    (0, "c1.1"),
    (0, "c1.10"),
    (-10_000_000, "c1.4"),
    // Soon after the beginning of the history, this is too old for a new ticket.
    (-997_000, "c1.5"),
    (7, "c.2.5"),
    (9, "c.2.6"),
    (1_000_000, "ü c.7"),
];

const NAMES: [&str; 4] = ["a", "{a}", "b}{", "ü:\n"];

/// How many times as many histories are played at most, until everything was seen.
const ROUNDS_MAX: usize = 8;

/// Plays random histories on a server of `flavor`, each starting without `names`; `take` executes
/// one step. Everything in `seen` must occur at least once.
pub(crate) fn play<S: std::fmt::Debug>(
    flavor: Flavor,
    cases: u32,
    histories: &impl Strategy<Value = Vec<S>>,
    names: &[&str],
    take: impl Fn(&mut Bench, &S) -> Result<(), TestCaseError>,
    seen: &[&'static str],
) {
    play_on(Bench::new(flavor), cases, histories, names, take, seen);
}

/// [`play`] on the server of `bench`.
pub(crate) fn play_on<S: std::fmt::Debug>(
    bench: Bench,
    cases: u32,
    histories: &impl Strategy<Value = Vec<S>>,
    names: &[&str],
    take: impl Fn(&mut Bench, &S) -> Result<(), TestCaseError>,
    seen: &[&'static str],
) {
    let bench = std::cell::RefCell::new(bench);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: Config::default().max_shrink_iters.min(200),
        ..Config::default()
    };
    let once = |steps: &[S]| {
        let mut bench = bench.borrow_mut();
        for name in names {
            let keys = [(*name).to_owned(), record_key(name)];
            let _: () = bench.connection.del(&keys).unwrap();
            let _: () = bench.connection.del(&line_keys(name)).unwrap();
            let _: () = bench.connection.del(broken_key(name)).unwrap();
            let _: () = bench.connection.del(&reader_keys(name)).unwrap();
        }
        bench.began_us = bench.clock_us();
        steps.iter().try_for_each(|step| take(&mut bench, step))
    };
    // The order of operations is read from the server's wall clock. If that clock steps back
    // between two scripts, a comparison fails that succeeds when the history is repeated. A script
    // that disagrees with the ledger disagrees again.
    // Some things are rare: then the histories go on, up to a limit.
    for _ in 0..ROUNDS_MAX {
        // A runner counts its cases over all its runs, so each round has a new one.
        let mut runner = TestRunner::new(config.clone());
        let outcome = runner.run(histories, |steps| once(&steps).or_else(|_| once(&steps)));
        if let Err(error) = outcome {
            panic!("{error}");
        }
        let tally = &bench.borrow().tally;
        if seen.iter().all(|what| tally.contains_key(what)) {
            break;
        }
    }
    let tally = &bench.borrow().tally;
    println!("{tally:?}");
    for what in seen {
        assert!(tally.contains_key(what), "never seen: {what}; {tally:?}");
    }
}

fn lua_agrees_with_the_ledger(flavor: Flavor) {
    let histories = prop_oneof![
        proptest::collection::vec(any_step(), 1..40),
        proptest::collection::vec(any_step_with_queue(), 1..40),
        proptest::collection::vec(any_step_of_a_hand_over(), 1..40),
        proptest::collection::vec(any_step_of_a_break(), 1..20),
    ];
    let seen = [
        "granted",
        "granted past others",
        "held behind others",
        "behind for as long as they wait",
        "behind for a while",
        "ticket too old",
        "turns",
        "broke a hold",
        "told of a break",
        "woke two",
        "back in the queue",
        "fast path: granted",
        "fast path: held",
        "fast path: released to one",
        "fast path: released to two",
    ];
    play(flavor, 500, &histories, &NAMES, Bench::take, &seen);
}

#[test]
fn redis_agrees_with_the_ledger() {
    lua_agrees_with_the_ledger(Flavor::Redis);
}

#[test]
fn valkey_agrees_with_the_ledger() {
    lua_agrees_with_the_ledger(Flavor::Valkey);
}
