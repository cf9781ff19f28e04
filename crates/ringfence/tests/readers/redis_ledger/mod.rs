//! The Lua against its specification, with readers: random operations go to real servers and to the
//! ledger, which runs at the clock that the server's reply carries. Answers, stamps, wakes and what is
//! stored must agree.

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
use ringfence_core::ledger::{self, Entry, Line, Moment, PlainKey, Record, Rules, Seat, Ticket};
use ringfence_core::message::{Acquire, Answer, Ballot, Op, Request, Wake};
use ringfence_testkit::{Flavor, Server};

use sameness::level;
use stored::record_key;

use crate::bench::{Meddling, NAMES, Step, ask, join, steps};

/// How much later a lease may end on a server than in the ledger.
const LATE_MS: u64 = 2;
/// No operation is sent when something expires this close to it.
const MARGIN_MS: u64 = 6;

struct Bench {
    runtime: tokio::runtime::Runtime,
    connection: redis::Connection,
    heard: Receiver<String>,
    node: RedisNode,
    rules: Rules,
    _server: Server,
}

impl Bench {
    fn new(flavor: Flavor) -> Self {
        let server = Server::start(flavor);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let group = Group {
            window: Duration::from_millis(200),
            ..Group::new(3)
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
        let (to, heard) = channel();
        let (mut ears, (ready, listening)) = (connect(), channel());
        thread::spawn(move || {
            let mut ears = ears.as_pubsub();
            ears.psubscribe("ringfence:wake:*").unwrap();
            ready.send(()).unwrap();
            while let Ok(message) = ears.get_message() {
                // A test that is over does not want to know.
                let _ = to.send(message.get_payload().unwrap());
            }
        });
        listening.recv().unwrap();
        Self {
            connection: connect(),
            heard,
            runtime,
            node,
            rules: Rules::of_group(&group),
            _server: server,
        }
    }

    fn clock_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1_000_000 + micros
    }

    /// The entries of `request`'s names, at a moment when nothing of them is about to expire.
    fn settled(&mut self, request: &Request) -> Vec<Entry> {
        loop {
            let names = request.claims.iter().map(|claim| claim.name.as_str());
            let entries: Vec<Entry> = names.map(|name| self.stored(name)).collect();
            let now_ms = self.clock_us() / 1000;
            let ends = entries.iter().flat_map(|entry| {
                let key = entry.key.as_ref().and_then(|key| key.until_ms);
                let readers = entry.readers.iter().map(|reader| reader.until_ms);
                let tickets = entry.line.tickets.iter().map(|ticket| ticket.until_ms);
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
        match step.meddling {
            Some(Meddling::Set) => {
                let _: () = self.connection.pset_ex(NAMES[0], "another's", 30).unwrap();
            }
            Some(Meddling::SetMarker) => {
                let marker = ledger::SHARED;
                let _: () = self.connection.pset_ex(NAMES[0], marker, 30).unwrap();
            }
            Some(Meddling::Delete) => self.connection.del(NAMES[0]).unwrap(),
            None => {}
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
        let outcome = ledger::apply(&self.rules, now, &mut entries, &request);
        prop_assert_eq!(stamp, outcome.stamp, "{:?}", request);
        let (said, expected) = (level(reply.answer), level(outcome.answer));
        prop_assert_eq!(said, expected, "{:?}", request);
        prop_assert_eq!(
            self.hear(outcome.wakes.len()),
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

    /// The next `count` wakes. What nobody expected is found before the next that somebody does.
    fn hear(&mut self, count: usize) -> Vec<Wake> {
        let mut wakes: Vec<Wake> = (0..count)
            .map(|_| {
                let text = self
                    .heard
                    .recv_timeout(Duration::from_secs(2))
                    .expect("a wake");
                Wake::read(&text).unwrap()
            })
            .collect();
        wakes.sort();
        wakes
    }
}

fn lua_does_what_the_ledger_says(flavor: Flavor) {
    let bench = RefCell::new(Bench::new(flavor));
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        max_shrink_iters: Config::default().max_shrink_iters.min(100),
        ..Config::default()
    });
    let outcome = runner.run(&steps(), |steps| {
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
}

#[test]
fn redis_does_what_the_ledger_says() {
    lua_does_what_the_ledger_says(Flavor::Redis);
}

#[test]
fn valkey_does_what_the_ledger_says() {
    lua_does_what_the_ledger_says(Flavor::Valkey);
}

/// The reader of a record that an earlier version wrote.
#[test]
fn records_from_before_readers_are_still_read() {
    let mut bench = Bench::new(Flavor::Redis);
    let clock = bench.clock_us();
    for (name, record) in [
        ("a", format!("1:{clock}:5")),
        ("b}{", format!("2:{clock}:5:7:0")),
    ] {
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
            place: None,
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
    use ringfence_core::message::{Claim, Mode};
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
