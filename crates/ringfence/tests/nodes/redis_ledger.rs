//! The Lua against its specification: random operations go to real servers and to the ledger, which
//! runs at the clock that the server's reply carries. Answers, stamps and what is stored must agree.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::Commands;
use ringfence::group::Group;
use ringfence::ledger::{self, Entry, Moment, PlainKey, Record, Rules, Seat};
use ringfence::message::{Answer, Ballot, Op, ReleaseKind, Reply, Request};
use ringfence::node::redis::RedisNode;
use ringfence_testkit::{Flavor, Server};

use crate::redis_node::{call, client, group, node};
use crate::support::{join, request, token};

/// How much later a lease may end on a server than in the ledger: older servers take their time anew
/// for each command of a script. Never earlier.
const LATE_MS: u64 = 2;
/// No operation is sent when something expires this close to it.
const MARGIN_MS: u64 = 5;

const NAMES: [&str; 4] = ["a", "{a}", "b}{", "ü:\n"];

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// An operation by one of three holders.
    Ask {
        holder: u8,
        names: Vec<usize>,
        what: What,
        ballot: Pick,
        ttl_ms: u64,
    },
    /// Another program sets the key, with or without an expiry, as itself or as one of our tokens.
    Foreign {
        name: usize,
        value: Option<u8>,
        ttl_ms: Option<u64>,
    },
    /// Another program deletes the key.
    Delete { name: usize },
    /// The record is near its end, as after a long time without a write.
    Lapse { name: usize, ms: u64 },
    /// Time passes.
    Wait { ms: u64 },
}

#[derive(Debug, Clone, Copy)]
enum What {
    Acquire,
    Extend,
    Release(ReleaseKind, bool),
    Restore,
    Inspect,
    PlainAcquire,
    PlainExtend,
    PlainRelease,
}

/// Where a ballot comes from: an offset from something that is known when the step is taken.
#[derive(Debug, Clone, Copy)]
enum Pick {
    Clock(i64),
    Ground(i64),
    Ceiling(i64),
    Floor(i64),
    Seat(usize, i64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let names = prop_oneof![
        4 => (0..NAMES.len()).prop_map(|name| vec![name]),
        1 => proptest::sample::subsequence((0..NAMES.len()).collect::<Vec<_>>(), 2..=3).prop_shuffle(),
    ];
    let kind = prop_oneof![Just(ReleaseKind::Final), Just(ReleaseKind::Undo)];
    let what = prop_oneof![
        6 => Just(What::Acquire),
        3 => Just(What::Extend),
        4 => (kind, any::<bool>()).prop_map(|(kind, unknown)| What::Release(kind, unknown)),
        3 => Just(What::Restore),
        2 => Just(What::Inspect),
        1 => Just(What::PlainAcquire),
        1 => Just(What::PlainExtend),
        1 => Just(What::PlainRelease),
    ];
    let near = prop_oneof![Just(-1i64), Just(0), Just(1), -50_000..50_000i64];
    let far = prop_oneof![-20_000..-5_000i64, 5_000..20_000i64];
    let pick = prop_oneof![
        6 => near.clone().prop_map(Pick::Clock),
        1 => far.clone().prop_map(Pick::Ground),
        1 => far.prop_map(Pick::Ceiling),
        3 => near.clone().prop_map(Pick::Floor),
        4 => ((0..NAMES.len()), near).prop_map(|(name, by)| Pick::Seat(name, by)),
    ];
    let ttl = prop_oneof![4 => 20..60u64, 4 => 200..2_000u64, 1 => 50_000..90_000u64];
    let ask = (0..3u8, names, what, pick, ttl.clone()).prop_map(
        |(holder, names, what, ballot, ttl_ms)| Step::Ask {
            holder,
            names,
            what,
            ballot,
            ttl_ms,
        },
    );
    prop_oneof![
        20 => ask,
        1 => (0..NAMES.len(), proptest::option::of(0..3u8), proptest::option::of(ttl))
            .prop_map(|(name, value, ttl_ms)| Step::Foreign { name, value, ttl_ms }),
        1 => (0..NAMES.len()).prop_map(|name| Step::Delete { name }),
        1 => (0..NAMES.len(), 1..60u64).prop_map(|(name, ms)| Step::Lapse { name, ms }),
        1 => (1..40u64).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// A server, a node that speaks to it, and the rules of their group.
struct Bench {
    runtime: tokio::runtime::Runtime,
    connection: redis::Connection,
    node: RedisNode,
    rules: Rules,
    _server: Server,
}

impl Bench {
    fn new(flavor: Flavor) -> Self {
        let server = Server::start(flavor);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let group = Group {
            window: Duration::from_millis(200),
            ..group()
        };
        let node = runtime.block_on(async {
            let node = node(&server.url());
            join(&node, group).await.unwrap();
            node
        });
        Self {
            connection: client(&server),
            runtime,
            node,
            rules: Rules {
                window_us: 200_000,
                retention_ms: group.retention().as_millis() as u64,
            },
            _server: server,
        }
    }

    fn clock_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1_000_000 + micros
    }

    /// What stands under `name`, read past our library.
    fn stored(&mut self, name: &str) -> Entry {
        let record_key = record_key(name);
        let mut pipe = redis::pipe();
        for key in [name, &record_key] {
            pipe.get(key).cmd("PEXPIRETIME").arg(key);
        }
        let (value, until, record, record_until): (Option<String>, i64, Option<String>, i64) =
            pipe.atomic().query(&mut self.connection).unwrap();
        Entry {
            key: value.map(|value| PlainKey {
                value,
                until_ms: u64::try_from(until).ok(),
            }),
            record: record.map(|text| parse_record(&text, u64::try_from(record_until).unwrap())),
        }
    }

    /// The entries of `names`, at a moment when none of them is about to expire.
    fn settled(&mut self, names: &[&str]) -> Vec<Entry> {
        loop {
            let entries: Vec<Entry> = names.iter().map(|name| self.stored(name)).collect();
            let now_ms = self.clock_us() / 1000;
            let ends = entries.iter().flat_map(|entry| {
                let key = entry.key.as_ref().and_then(|key| key.until_ms);
                [key, entry.record.as_ref().map(|record| record.until_ms)]
            });
            let last = ends
                .flatten()
                .filter(|end| end.abs_diff(now_ms) <= MARGIN_MS)
                .max();
            match last {
                None => return entries,
                Some(last) => while self.clock_us() / 1000 <= last + 1 {},
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Reply {
        let reply = self.runtime.block_on(call(&self.node, request.clone()));
        reply.unwrap_or_else(|error| panic!("{request:?}: {error}"))
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask {
                holder,
                names,
                what,
                ballot,
                ttl_ms,
            } => self.compare(*holder, names, *what, *ballot, *ttl_ms)?,
            Step::Foreign {
                name,
                value,
                ttl_ms,
            } => {
                let value = match value {
                    Some(holder) => token(*holder).expose().to_owned(),
                    None => "another library's value".to_owned(),
                };
                let mut cmd = redis::cmd("SET");
                cmd.arg(NAMES[*name]).arg(value);
                if let Some(ttl_ms) = ttl_ms {
                    cmd.arg("PX").arg(ttl_ms);
                }
                cmd.exec(&mut self.connection).unwrap();
            }
            Step::Delete { name } => self.connection.del(NAMES[*name]).unwrap(),
            Step::Lapse { name, ms } => {
                let key = record_key(NAMES[*name]);
                let _: bool = self.connection.pexpire(key, *ms as i64).unwrap();
            }
            Step::Wait { ms } => {
                let until = self.clock_us() + ms * 1000;
                while self.clock_us() < until {}
            }
        }
        Ok(())
    }

    /// The heart of it: one operation on the server and in the ledger.
    fn compare(
        &mut self,
        holder: u8,
        names: &[usize],
        what: What,
        pick: Pick,
        ttl_ms: u64,
    ) -> Result<(), TestCaseError> {
        let mut names: Vec<&str> = names.iter().map(|name| NAMES[*name]).collect();
        let plain = matches!(
            what,
            What::PlainAcquire | What::PlainExtend | What::PlainRelease
        );
        if plain {
            names.truncate(1);
        }
        let mut entries = self.settled(&names);
        let ballot = self.ballot(pick, &names);
        let label: Arc<str> = format!("label of {holder}: with colons:\n{ttl_ms}").into();
        let op = match what {
            What::Acquire => Op::Acquire {
                ballot,
                ttl_ms,
                label,
            },
            What::Extend => Op::Extend { ballot, ttl_ms },
            What::Release(kind, fate_unknown) => Op::Release {
                ballot,
                kind,
                fate_unknown,
            },
            What::Restore => Op::Restore {
                ballot,
                ttl_ms,
                label,
            },
            What::Inspect => Op::Inspect,
            What::PlainAcquire => Op::PlainAcquire { ttl_ms },
            What::PlainExtend => Op::PlainExtend { ttl_ms },
            What::PlainRelease => Op::PlainRelease,
        };
        let request = request(&names, holder, op);
        let before_us = self.clock_us();
        let reply = self.ask(&request);
        // Plain replies carry no clock; when theirs was does not matter beyond the margin.
        let clock_us = reply.stamp.map_or(before_us, |stamp| stamp.clock_us);
        // A busy machine may stop the server in the middle of a script, for no longer than the call.
        let slack_ms = LATE_MS + (self.clock_us() - before_us) / 1000;
        let (answer, stamp) = ledger::apply(
            &self.rules,
            Moment::of_clock(clock_us),
            &mut entries,
            &request,
        );
        prop_assert_eq!(reply.stamp.is_none(), plain);
        if !plain {
            prop_assert_eq!(reply.stamp, Some(stamp), "{:?}", request);
            prop_assert_eq!(reply.standing.clock_us, clock_us);
        }
        prop_assert_eq!(
            comparable(reply.answer.clone(), plain),
            comparable(answer.clone(), plain),
            "{:?}",
            request
        );
        same_leases(&reply.answer, &answer, slack_ms)?;
        for (name, expected) in names.iter().zip(&entries) {
            same_entry(&self.stored(name), expected, slack_ms)?;
        }
        Ok(())
    }

    fn ballot(&mut self, pick: Pick, names: &[&str]) -> Ballot {
        let clock = self.clock_us();
        let (base, by) = match pick {
            Pick::Clock(by) => (clock, by),
            Pick::Ground(by) => (clock - self.rules.window_us, by),
            Pick::Ceiling(by) => (clock + self.rules.window_us, by),
            Pick::Floor(by) => {
                let record = self.stored(names[0]).record;
                (record.map_or(clock, |record| record.fence.get()), by)
            }
            Pick::Seat(name, by) => {
                let record = self.stored(NAMES[name]).record;
                let seat = record.and_then(|record| record.seat);
                (seat.map_or(clock, |seat| seat.ballot.get()), by)
            }
        };
        Ballot::new(base.saturating_add_signed(by))
    }
}

/// The documented place of a name's record, written down a second time.
fn record_key(name: &str) -> String {
    match name {
        "{a}" => "ringfence:{a}:{a}".to_owned(),
        "b}{" => "ringfence:{}onoi:b}{".to_owned(),
        plain => format!("ringfence:{{{plain}}}:{plain}"),
    }
}

fn parse_record(text: &str, until_ms: u64) -> Record {
    let mut fields = text.splitn(6, ':');
    assert_eq!(fields.next(), Some("1"), "{text}");
    let mut number = || Ballot::new(fields.next().unwrap().parse().unwrap());
    let (fence, closed) = (number(), number());
    let seat = fields.next().map(|ballot| Seat {
        ballot: Ballot::new(ballot.parse().unwrap()),
        token: fields.next().unwrap().to_owned(),
        label: fields.next().unwrap().to_owned(),
    });
    Record {
        fence,
        closed,
        seat,
        until_ms,
    }
}

/// `answer` without its leases, which are compared apart. A plain `Held` names nobody on Redis.
fn comparable(mut answer: Answer, plain: bool) -> Answer {
    match &mut answer {
        Answer::Held(holder) if plain => *holder = Default::default(),
        Answer::Held(holder) => holder.for_ms = holder.for_ms.map(|_| 0),
        Answer::Views(views) => {
            for holder in views.iter_mut().filter_map(|view| view.holder.as_mut()) {
                holder.for_ms = holder.for_ms.map(|_| 0);
            }
        }
        _ => {}
    }
    answer
}

fn same_leases(said: &Answer, expected: &Answer, slack_ms: u64) -> Result<(), TestCaseError> {
    let leases = |answer: &Answer| match answer {
        Answer::Held(holder) => vec![holder.for_ms],
        Answer::Views(views) => views
            .iter()
            .map(|view| view.holder.as_ref().and_then(|h| h.for_ms))
            .collect(),
        _ => vec![],
    };
    for (said, expected) in leases(said).into_iter().zip(leases(expected)) {
        if let (Some(said), Some(expected)) = (said, expected) {
            prop_assert!(
                said.abs_diff(expected) <= slack_ms,
                "{} for {}",
                said,
                expected
            );
        }
    }
    Ok(())
}

fn same_entry(stored: &Entry, expected: &Entry, slack_ms: u64) -> Result<(), TestCaseError> {
    let later = |stored: u64, expected: u64| {
        let ok = (expected..=expected + slack_ms).contains(&stored);
        prop_assert!(ok, "ends at {} instead of {}", stored, expected);
        Ok(())
    };
    let mut stored = stored.clone();
    // A short key may have run out between the reply and our look at it.
    let ran_out = stored.key.is_none()
        && expected
            .key
            .as_ref()
            .is_some_and(|key| key.until_ms.is_some());
    if ran_out {
        stored.key.clone_from(&expected.key);
    }
    if let (Some(key), Some(expected)) = (&mut stored.key, &expected.key)
        && let (Some(until), Some(expected)) = (&mut key.until_ms, expected.until_ms)
    {
        later(*until, expected)?;
        *until = expected;
    }
    if let (Some(record), Some(expected)) = (&mut stored.record, &expected.record) {
        later(record.until_ms, expected.until_ms)?;
        record.until_ms = expected.until_ms;
    }
    prop_assert_eq!(&stored, expected);
    Ok(())
}

fn lua_does_what_the_ledger_says(flavor: Flavor) {
    let bench = std::cell::RefCell::new(Bench::new(flavor));
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    });
    let histories = proptest::collection::vec(any_step(), 1..40);
    let outcome = runner.run(&histories, |steps| {
        let mut bench = bench.borrow_mut();
        for name in NAMES {
            let keys = [name.to_owned(), record_key(name)];
            let _: () = bench.connection.del(&keys).unwrap();
        }
        steps.iter().try_for_each(|step| bench.take(step))
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
