//! The Lua with readers, compared with its specification: random operations go to real servers and
//! to the ledger, which runs with the clock of the server's reply. Answers, stamps, wakes and
//! stored data must agree.

mod quarantine;
mod sameness;
mod stored;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::Commands;
use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::url::{NodeUrl, parse_nodes};
use ringfence_core::group::Group;
use ringfence_core::ledger::{
    self, Breaks, Entry, Moment, PlainKey, QueueEntry, Record, Rules, Seat, WaitQueue,
};
use ringfence_core::message::{Acquire, Answer, Ballot, BreakNote, Mode, Op, Request, Wake};
use ringfence_testkit::{Flavor, Server};

use sameness::without_leases;
use stored::record_key;

use crate::bench::{Interference, NAMES, Step, ask, join, steps};

/// How much later a lease may end on a server than in the ledger.
const LATE_MS: u64 = 2;
/// No operation is sent if something expires this close to it.
const MARGIN_MS: u64 = 6;

struct Bench {
    runtime: tokio::runtime::Runtime,
    connection: redis::Connection,
    messages: Receiver<String>,
    node: RedisNode,
    group: Group,
    rules: Rules,
    /// How many restores replaced a holder in a quarantine, by the holder and the mode of the claim.
    replaced: BTreeMap<(Mode, Mode), usize>,
    _server: Server,
}

impl Bench {
    fn new(flavor: Flavor) -> Self {
        Self::of_group(flavor, Group::new(3))
    }

    fn of_group(flavor: Flavor, group: Group) -> Self {
        let server = Server::start(flavor);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let group = Group {
            window: Duration::from_millis(200),
            ..group
        };
        let NodeUrl::Redis(url) = parse_nodes(&server.url()).unwrap().remove(0) else {
            panic!("a server has another URL");
        };
        let node = {
            let _inside = runtime.enter();
            RedisNode::connect(url, Clock::System).unwrap()
        };
        join(&node, group);
        let connect = || {
            let client = redis::Client::open(server.url()).unwrap();
            client.get_connection().unwrap()
        };
        let (to, messages) = channel();
        let (mut channels, (ready, listening)) = (connect(), channel());
        thread::spawn(move || {
            let mut channels = channels.as_pubsub();
            channels.psubscribe("ringfence:wake:*").unwrap();
            ready.send(()).unwrap();
            while let Ok(message) = channels.get_message() {
                // The test may be over.
                let _ = to.send(message.get_payload().unwrap());
            }
        });
        listening.recv().unwrap();
        Self {
            connection: connect(),
            messages,
            runtime,
            node,
            group,
            rules: Rules::of_group(&group),
            replaced: BTreeMap::new(),
            _server: server,
        }
    }

    fn clock_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1_000_000 + micros
    }

    /// The entries of `request`'s names, at a moment when none of them is about to expire.
    fn settled(&mut self, request: &Request) -> Vec<Entry> {
        loop {
            let names = request.claims.iter().map(|claim| claim.name.as_str());
            let entries: Vec<Entry> = names.map(|name| self.stored(name)).collect();
            let now_ms = self.clock_us() / 1000;
            let ends = entries.iter().flat_map(|entry| {
                let key = entry.key.as_ref().and_then(|key| key.until_ms);
                let readers = entry.readers.iter().map(|reader| reader.until_ms);
                let tickets = entry.queue.entries.iter().map(|ticket| ticket.until_ms);
                let seat = entry.record.as_ref().and_then(|r| r.seat.as_ref());
                let seat = seat.map(|seat| seat.until_ms);
                readers
                    .chain(tickets)
                    .chain(key)
                    .chain(seat)
                    .collect::<Vec<_>>()
            });
            match ends.filter(|end| end.abs_diff(now_ms) <= MARGIN_MS).max() {
                None => return entries,
                Some(last) => while self.clock_us() / 1000 <= last + MARGIN_MS {},
            }
        }
    }

    fn take(&mut self, step: &Step, base_us: u64) -> Result<(), TestCaseError> {
        match step.interference {
            Some(Interference::Set) => {
                let _: () = self.connection.pset_ex(NAMES[0], "another's", 30).unwrap();
            }
            Some(Interference::SetMarker) => {
                let marker = ledger::SHARED;
                let _: () = self.connection.pset_ex(NAMES[0], marker, 30).unwrap();
            }
            Some(Interference::Delete) => self.connection.del(NAMES[0]).unwrap(),
            None => {}
        }
        if let Some(left_ms) = step.birth_ms {
            self.birth(left_ms);
        }
        let until = self.clock_us() + step.pass_ms * 1000;
        while self.clock_us() < until {}
        let look = step.request(0, base_us);
        let mut entries = self.settled(&look);
        let request = step.request(self.clock_us(), base_us);
        let before_us = self.clock_us();
        let reply = ask(&self.node, request.clone());
        let stamp = reply.stamp.expect("a stamp");
        let slack_ms = LATE_MS + (self.clock_us() - before_us) / 1000;
        let now = Moment::of_clock(stamp.clock_us);
        let before = entries.clone();
        let outcome = ledger::apply(&self.rules, now, &mut entries, &request);
        self.note_replaced(&request, &before, &outcome.answer);
        prop_assert_eq!(stamp, outcome.stamp, "{:?}", request);
        let (found, expected) = (without_leases(reply.answer), without_leases(outcome.answer));
        prop_assert_eq!(found, expected, "{:?}", request);
        prop_assert_eq!(
            self.next_wakes(outcome.wakes.len()),
            outcome.wakes,
            "{:?}",
            request
        );
        for (claim, expected) in request.claims.iter().zip(&entries) {
            let stored = self.stored(claim.name.as_str());
            sameness::same(stored, expected, &request, now, slack_ms)?;
        }
        Ok(())
    }

    /// The next `count` wakes. An unexpected wake is found before the next expected one.
    fn next_wakes(&mut self, count: usize) -> Vec<Wake> {
        let mut wakes: Vec<Wake> = (0..count)
            .map(|_| {
                let text = self
                    .messages
                    .recv_timeout(Duration::from_secs(2))
                    .expect("a wake");
                Wake::read(&text).unwrap()
            })
            .collect();
        wakes.sort();
        wakes
    }
}

fn lua_agrees_with_the_ledger(flavor: Flavor) {
    play(flavor, Bench::new(flavor), &steps());
}

/// Plays random histories on `bench`.
fn play(flavor: Flavor, bench: Bench, steps: &impl Strategy<Value = Vec<Step>>) -> Bench {
    let bench = RefCell::new(bench);
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        max_shrink_iters: Config::default().max_shrink_iters.min(100),
        ..Config::default()
    });
    let outcome = runner.run(steps, |steps| {
        let mut bench = bench.borrow_mut();
        for name in NAMES {
            let keys: Vec<String> = bench.connection.keys(format!("*{name}")).unwrap();
            let _: () = bench.connection.del(keys).unwrap_or_default();
        }
        let base_us = bench.clock_us();
        steps.iter().try_for_each(|step| bench.take(step, base_us))
    });
    if let Err(error) = outcome {
        panic!("{flavor:?}: {error}");
    }
    bench.into_inner()
}

#[test]
fn redis_agrees_with_the_ledger() {
    lua_agrees_with_the_ledger(Flavor::Redis);
}

#[test]
fn valkey_agrees_with_the_ledger() {
    lua_agrees_with_the_ledger(Flavor::Valkey);
}

/// Records that earlier versions wrote have no readers' fence.
#[test]
fn records_from_before_readers_can_be_read() {
    let mut bench = Bench::new(Flavor::Redis);
    let clock = bench.clock_us();
    for name in ["a", "b}{"] {
        let record = format!("2:{clock}:5:7:0");
        let _: () = bench
            .connection
            .pset_ex(record_key(name), record, 60_000)
            .unwrap();
        let mut request = bench_request(name, Op::Inspect);
        assert_eq!(
            ask(&bench.node, request.clone()).stamp.unwrap().floor,
            Ballot::new(clock)
        );
        request.op = Op::Acquire(Acquire {
            ballot: Ballot::new(clock + 1),
            ttl_ms: 1_000,
            label: "job".into(),
            ticket: None,
            not_after_us: None,
        });
        assert_eq!(ask(&bench.node, request).answer, Answer::Granted);
        let stored = bench.stored(name).record.unwrap();
        assert_eq!(
            (stored.fence, stored.closed),
            (Ballot::new(clock), Ballot::new(5))
        );
        assert_eq!(stored.read_fence, Ballot::new(clock + 1));
    }
    drop(bench.runtime);
}

fn bench_request(name: &str, op: Op) -> Request {
    use ringfence_core::message::Claim;
    use ringfence_core::name::Name;
    use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};
    Request {
        claims: [Claim {
            name: Name::new("", name).unwrap(),
            mode: Mode::Shared,
        }]
        .into(),
        token: Token::from_entropy([9; TOKEN_ENTROPY_BYTES]),
        op,
    }
}
