//! The Lua against its specification: random operations go to real servers and to the ledger, which
//! runs at the clock that the server's reply carries. Answers, stamps, what is stored and who is woken
//! must agree.

mod sameness;
mod steps;
mod stored;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use redis::Commands;
use ringfence::group::Group;
use ringfence::ledger::{
    self, Entry, Latch, Line, Moment, PlainKey, Record, Rules, Seat, TICKET_MS, Ticket,
};
use ringfence::message::{
    Acquire, Answer, Ballot, Extend, Op, Place, PlainAcquire, PlainExtend, Refresh, Release,
    ReleaseKind, Reply, Request, Restore,
};
use ringfence::node::redis::RedisNode;
use ringfence_testkit::{Flavor, Server};

pub(crate) use stored::{line_keys, record_key};

use sameness::{comparable, same_entry, same_leases};
use steps::{Ask, Pick, Shown, Step, What, any_step, any_step_in_line, any_step_of_a_hand_over};
use stored::{parse_line, parse_record};

use crate::redis_node::{call, client, group, node};
use crate::support::{join, request, token};

/// How much later a lease may end on a server than in the ledger, beside the time that the operation
/// took: older servers take their time anew for each command of a script. Never earlier.
const LATE_MS: u64 = 2;
/// No operation is sent when something expires this close to it.
const MARGIN_MS: u64 = 5;

/// Those who wait: since when, counted from the beginning of the history, and their tickets.
pub(crate) const TICKETS: [(i64, &str); 7] = [
    (0, "c1.1"),
    (0, "c1.10"),
    (-10_000_000, "c1.4"),
    // Too old for a newcomer soon after the history has begun.
    (-997_000, "c1.5"),
    (7, "c.2.5"),
    (9, "c.2.6"),
    (1_000_000, "ü c.7"),
];
/// How long those ahead in line have to come.
const GRACE_MS: u64 = 25;
/// What is said when all wakes of an operation have been said.
const THAT_IS_ALL: &str = "that is all";

const NAMES: [&str; 4] = ["a", "{a}", "b}{", "ü:\n"];

/// A server, a node that speaks to it, and the rules of their group.
pub(crate) struct Bench {
    runtime: tokio::runtime::Runtime,
    pub(crate) connection: redis::Connection,
    node: RedisNode,
    rules: Rules,
    /// When the present history began.
    pub(crate) began_us: u64,
    /// What is said on any channel.
    said: Receiver<(String, String)>,
    /// What has been seen to happen, so that a test which tests nothing is noticed.
    pub(crate) tally: BTreeMap<&'static str, u32>,
    _server: Server,
}

impl Bench {
    pub(crate) fn new(flavor: Flavor) -> Self {
        let server = Server::start(flavor);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let group = Group {
            window: Duration::from_millis(200),
            grace: Duration::from_millis(GRACE_MS),
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
            rules: Rules::of_group(&group),
            began_us: 0,
            said: overhear(client(&server)),
            tally: BTreeMap::new(),
            _server: server,
        }
    }

    pub(crate) fn clock_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1_000_000 + micros
    }

    /// What stands under `name`, read past our library. Nothing of ours may stay for ever.
    pub(crate) fn stored(&mut self, name: &str) -> Entry {
        let record_key = record_key(name);
        let [mark_key, order_key, lease_key] = line_keys(name);
        let mut pipe = redis::pipe();
        for key in [name, &record_key, &mark_key] {
            // What is no text, as the key of a latch, is none.
            pipe.mget(&[key]).cmd("PEXPIRETIME").arg(key);
        }
        pipe.zrange(&order_key, 0, -1)
            .zrange_withscores(&lease_key, 0, -1);
        for key in [&order_key, &lease_key] {
            pipe.cmd("PEXPIRETIME").arg(key);
        }
        type Text = [Option<String>; 1];
        type Texts = (Text, i64, Text, i64, Text, i64);
        type Sets = (Vec<String>, Vec<(String, u64)>, i64, i64);
        let mut found: Vec<redis::Value> = pipe.atomic().query(&mut self.connection).unwrap();
        let sets = redis::Value::Array(found.split_off(6));
        let texts: Texts = redis::from_redis_value(redis::Value::Array(found)).unwrap();
        let sets: Sets = redis::from_redis_value(sets).unwrap();
        let ([value], until, [record], record_until, [mark], mark_until) = texts;
        Entry {
            key: value.map(|value| PlainKey {
                value,
                until_ms: u64::try_from(until).ok(),
            }),
            record: record.map(|text| parse_record(&text, u64::try_from(record_until).unwrap())),
            line: parse_line(mark, mark_until, sets),
            // Names are shared in the histories of `tests/readers`.
            readers: Vec::new(),
            latch: self.stored_latch(name),
        }
    }

    /// Who has arrived, where `name` is that of a latch.
    fn stored_latch(&mut self, name: &str) -> Option<Latch> {
        let kind: String = redis::cmd("TYPE")
            .arg(name)
            .query(&mut self.connection)
            .unwrap();
        if kind != "zset" {
            return None;
        }
        let mut pipe = redis::pipe();
        pipe.zrange_withscores(name, 0, -1)
            .cmd("PEXPIRETIME")
            .arg(name);
        let (parties, until): (Vec<(String, u64)>, i64) =
            pipe.atomic().query(&mut self.connection).unwrap();
        let since_us = parties.iter().map(|(_, since_us)| *since_us).min()?;
        Some(Latch {
            since_us,
            parties: parties.into_iter().map(|(party, _)| party.into()).collect(),
            until_ms: u64::try_from(until).expect("no key without an expiry"),
        })
    }

    /// The entries of `names`, at a moment when none of them is about to expire.
    pub(crate) fn settled(&mut self, names: &[&str]) -> Vec<Entry> {
        loop {
            let entries: Vec<Entry> = names.iter().map(|name| self.stored(name)).collect();
            let now_ms = self.clock_us() / 1000;
            let close = ends(&entries).filter(|end| end.abs_diff(now_ms) <= MARGIN_MS);
            let last = close.max();
            match last {
                None => return entries,
                Some(last) => self.wait_until((last + 2) * 1000),
            }
        }
    }

    pub(crate) fn wait_until(&mut self, clock_us: u64) {
        while self.clock_us() < clock_us {
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn ask(&mut self, request: &Request) -> Reply {
        let reply = self.runtime.block_on(call(&self.node, request.clone()));
        reply.unwrap_or_else(|error| panic!("{request:?}: {error}"))
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask(ask) => self.compare(ask)?,
            Step::Together(asks) => self.compare_together(asks)?,
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
            Step::Age { name, ticket, ms } => {
                let [_, _, lease] = line_keys(NAMES[*name]);
                let place = self.place((*ticket, false));
                let member = format!("{:020}{}", place.since_us, place.id);
                let until_ms = self.clock_us() / 1000 + ms;
                redis::cmd("ZADD")
                    .arg((lease, "XX", until_ms, member))
                    .exec(&mut self.connection)
                    .unwrap();
            }
            Step::Fade { name, ms } => {
                let tickets = self.stored(NAMES[*name]).line.tickets;
                if let Some(last) = tickets.iter().map(|ticket| ticket.until_ms).max() {
                    let [mark, order, lease] = line_keys(NAMES[*name]);
                    let mut pipe = redis::pipe();
                    let kept = format!("{}{}", last + ms, self.flags(&mark));
                    pipe.cmd("SET").arg((&mark, kept));
                    for key in [mark, order, lease] {
                        pipe.cmd("PEXPIREAT").arg((key, last + ms));
                    }
                    let _: () = pipe.atomic().query(&mut self.connection).unwrap();
                }
            }
            Step::Older { name } => {
                if let Some(record) = self.stored(NAMES[*name]).record {
                    let mut text = format!("1:{}:{}", record.fence, record.closed);
                    if let Some(seat) = &record.seat {
                        text += &format!(":{}:{}:{}", seat.ballot, seat.token, seat.label);
                    }
                    redis::cmd("SET")
                        .arg((record_key(NAMES[*name]), text, "XX", "KEEPTTL"))
                        .exec(&mut self.connection)
                        .unwrap();
                }
            }
            Step::Wait { ms } => {
                let until = self.clock_us() + ms * 1000;
                self.wait_until(until);
            }
        }
        Ok(())
    }

    /// The letters at the end of a line's mark.
    fn flags(&mut self, mark: &str) -> String {
        let text: String = self.connection.get(mark).unwrap();
        text.trim_start_matches(|letter: char| letter.is_ascii_digit())
            .to_owned()
    }

    /// The heart of it: one operation on the server and in the ledger.
    fn compare(&mut self, ask: &Ask) -> Result<(), TestCaseError> {
        let names = ask.names();
        let mut entries = self.settled(&names);
        let request = self.request(ask);
        self.compare_request(&request, &mut entries)
    }

    /// What is asked, with a ballot that fits what stands there now.
    fn request(&mut self, ask: &Ask) -> Request {
        let (names, ttl_ms) = (ask.names(), ask.ttl_ms);
        let ballot = self.ballot(ask.ballot, &names);
        let label: Arc<str> = format!("label of {}: with colons:\n{ttl_ms}", ask.holder).into();
        let op = match &ask.what {
            What::Acquire(shown) => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label,
                place: shown.map(|shown| self.place(shown)),
            }),
            What::Extend => Op::Extend(Extend { ballot, ttl_ms }),
            What::Release {
                kind,
                fate_unknown,
                place,
                stays,
                keep_ms,
            } => Op::Release(Release {
                ballot,
                kind: *kind,
                fate_unknown: *fate_unknown,
                place: place.map(|shown| self.place(shown)),
                stays: *stays,
                keep_ms: *keep_ms,
            }),
            What::Refresh(shown) => Op::Refresh(Refresh {
                places: shown.iter().map(|shown| self.place(*shown)).collect(),
            }),
            What::Restore => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label,
            }),
            What::Inspect => Op::Inspect,
            What::PlainAcquire => Op::PlainAcquire(PlainAcquire { ttl_ms }),
            What::PlainExtend => Op::PlainExtend(PlainExtend { ttl_ms }),
            What::PlainRelease => Op::PlainRelease,
        };
        request(&names, ask.holder, op)
    }

    /// `request` on the server, and in the ledger on `entries`, which are settled.
    pub(crate) fn compare_request(
        &mut self,
        request: &Request,
        entries: &mut [Entry],
    ) -> Result<(), TestCaseError> {
        let plain = request.op.is_plain();
        let (counted, looked) = self.looks_at_lines();
        let before_us = self.clock_us();
        let expiries: Vec<u64> = ends(entries).collect();
        let reply = self.ask(request);
        if self.expired_meanwhile(&expiries, before_us) {
            return Ok(());
        }
        // Plain replies carry no clock; when theirs was does not matter beyond the margin.
        let clock_us = reply.stamp.map_or(before_us, |stamp| stamp.clock_us);
        // A busy machine may stop the server in the middle of a script, for no longer than the call.
        // A wall clock may also step back.
        let slack_ms = LATE_MS + self.clock_us().saturating_sub(before_us) / 1000;
        // The short way counts those who have run out, and the long one looks who they are.
        let now_looked = self.looks_at_lines();
        let comes_or_goes = matches!(request.op, Op::Acquire { .. } | Op::Release { .. });
        let shortly = comes_or_goes && now_looked.0 > counted && now_looked.1 == looked;
        let waited: usize = entries.iter().map(|entry| entry.line.tickets.len()).sum();
        let now = Moment::of_clock(clock_us);
        let outcome = ledger::apply(&self.rules, now, entries, request);
        let (answer, stamp) = (outcome.answer, outcome.stamp);
        let wait: usize = entries.iter().map(|entry| entry.line.tickets.len()).sum();
        // A grant takes its own ticket out.
        let shown = matches!(&request.op, Op::Acquire(Acquire { place: Some(_), .. }));
        let own = usize::from(shown && answer == Answer::Granted) * entries.len();
        self.count(&answer, wait + own < waited, &outcome.wakes);
        let undone = matches!(&request.op, Op::Release(Release { stays: true, .. }));
        if undone && answer == Answer::Released && wait > waited {
            *self.tally.entry("back in line").or_default() += 1;
        }
        if shortly {
            self.count_short(&answer, &outcome.wakes);
        }
        prop_assert_eq!(self.overheard(), announced(&outcome.wakes), "{:?}", request);
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
        for (claim, expected) in request.claims.iter().zip(entries.iter()) {
            let mut stored = self.stored(claim.name.as_str());
            // What has expired may stand until somebody looks at the line again.
            let tickets = &mut stored.line.tickets;
            tickets.retain(|ticket| ticket.until_ms >= now.lease_ms);
            let looked_ms = self.clock_us() / 1000;
            same_entry(&stored, expected, slack_ms, looked_ms)?;
        }
        Ok(())
    }

    /// Whether one of `expiries` has passed since `before_us`, because a busy machine took long for one
    /// operation. Whether the operation came before or after it, nobody can tell: nothing is compared.
    fn expired_meanwhile(&mut self, expiries: &[u64], before_us: u64) -> bool {
        let meanwhile = before_us / 1000 - 1..=self.clock_us() / 1000 + 1;
        let expired = expiries.iter().any(|end| meanwhile.contains(end));
        if expired {
            self.overheard();
        }
        expired
    }

    /// The ticket that is shown.
    pub(crate) fn place(&self, (ticket, first): Shown) -> Place {
        let (by_us, id) = TICKETS[ticket];
        Place {
            since_us: self.began_us.saturating_add_signed(by_us),
            id: id.into(),
            first,
        }
    }

    /// All that was said since this was last asked, sorted.
    fn overheard(&mut self) -> Vec<(String, String)> {
        let _: u32 = self
            .connection
            .publish("ringfence:wake:", THAT_IS_ALL)
            .unwrap();
        let said = std::iter::from_fn(|| self.said.recv().ok());
        let mut said: Vec<_> = said.take_while(|(_, text)| text != THAT_IS_ALL).collect();
        said.sort();
        said
    }

    fn count(&mut self, answer: &Answer, fewer_wait: bool, wakes: &[ringfence::message::Wake]) {
        let answer = match answer {
            Answer::Permit(permit) => &*permit.answer,
            answer => answer,
        };
        let what = match answer {
            Answer::Granted if fewer_wait => "granted past others",
            Answer::Granted => "granted",
            Answer::Held(holder) if holder.ahead > 1 => "held behind others",
            Answer::Behind { for_ms: None, .. } => "behind for as long as they wait",
            Answer::Behind { .. } => "behind for a while",
            Answer::TicketOld => "ticket too old",
            Answer::Arrivals(arrivals) if arrivals.parties.len() > 1 => "several arrived",
            Answer::Arrivals(arrivals) if arrivals.since_us.is_none() => "no latch",
            Answer::Ahead => "ahead",
            Answer::Turns(turns) if turns.iter().any(|turn| turn.ahead > 1 && turn.free) => "turns",
            _ => "other",
        };
        *self.tally.entry(what).or_default() += 1;
        if wakes.len() > 1 {
            *self.tally.entry("woke two").or_default() += 1;
        }
        if wakes.iter().any(|wake| wake.slot.is_some()) {
            *self.tally.entry("woke for a slot").or_default() += 1;
        }
    }

    /// How an operation ended that took the short way through a line.
    fn count_short(&mut self, answer: &Answer, wakes: &[ringfence::message::Wake]) {
        let what = match answer {
            Answer::Granted => "shortly granted",
            Answer::Held(_) => "shortly held",
            Answer::Released if wakes.is_empty() => "shortly released to nobody",
            Answer::Released if wakes.len() == 1 => "shortly released to one",
            Answer::Released => "shortly released to two",
            answer => panic!("{answer:?} is said the long way"),
        };
        *self.tally.entry(what).or_default() += 1;
    }

    /// How often scripts have counted who ran out in a line, and how often they have looked who did.
    fn looks_at_lines(&mut self) -> (u64, u64) {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut self.connection)
            .unwrap();
        let calls = |command: &str| {
            let calls = info.split_once(&format!("cmdstat_{command}:calls="));
            let calls = calls.and_then(|(_, rest)| rest.split_once(','));
            calls.map_or(0, |(calls, _)| calls.parse().unwrap())
        };
        (calls("zcount"), calls("zrangebyscore"))
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

/// When something of `entries` expires on the server, in ms. Not tickets: these end by the clock that the
/// reply carries, to the millisecond.
fn ends(entries: &[Entry]) -> impl Iterator<Item = u64> {
    entries.iter().flat_map(|entry| {
        let key = entry.key.as_ref().and_then(|key| key.until_ms);
        let record = entry.record.as_ref().map(|record| record.until_ms);
        let latch = entry.latch.as_ref().map(|latch| latch.until_ms);
        [key, record, latch].into_iter().flatten()
    })
}

/// What a server says of `wakes`, sorted.
fn announced(wakes: &[ringfence::message::Wake]) -> Vec<(String, String)> {
    let wakes = wakes.iter().map(|wake| {
        let (client, _) = wake.ticket.rsplit_once('.').unwrap();
        (format!("ringfence:wake:{client}"), wake.to_string())
    });
    let wakes: BTreeSet<(String, String)> = wakes.collect();
    wakes.into_iter().collect()
}

/// Everything that is said on channels for wakes, by channel and text.
fn overhear(mut connection: redis::Connection) -> Receiver<(String, String)> {
    let (to, said) = std::sync::mpsc::channel();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut channels = connection.as_pubsub();
        channels.psubscribe("ringfence:wake:*").unwrap();
        ready.send(()).unwrap();
        // Until the server is stopped.
        while let Ok(message) = channels.get_message() {
            let channel = message.get_channel_name().to_owned();
            if to.send((channel, message.get_payload().unwrap())).is_err() {
                return;
            }
        }
    });
    is_ready.recv().unwrap();
    said
}

/// Plays random histories on a server of `flavor`, in each of which everything of `seen` must be
/// seen sooner or later.
fn play(
    flavor: Flavor,
    cases: u32,
    histories: &impl Strategy<Value = Vec<Step>>,
    seen: &[&'static str],
) {
    let bench = std::cell::RefCell::new(Bench::new(flavor));
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: Config::default().max_shrink_iters.min(200),
        ..Config::default()
    });
    let outcome = runner.run(histories, |steps| {
        let mut bench = bench.borrow_mut();
        for name in NAMES {
            let keys = [name.to_owned(), record_key(name)];
            let _: () = bench.connection.del(&keys).unwrap();
            let _: () = bench.connection.del(&line_keys(name)).unwrap();
        }
        bench.began_us = bench.clock_us();
        steps.iter().try_for_each(|step| bench.take(step))
    });
    if let Err(error) = outcome {
        panic!("{flavor:?}: {error}");
    }
    let tally = &bench.borrow().tally;
    println!("{tally:?}");
    for what in seen {
        assert!(tally.contains_key(what), "never seen: {what}; {tally:?}");
    }
}

fn lua_does_what_the_ledger_says(flavor: Flavor) {
    let histories = prop_oneof![
        proptest::collection::vec(any_step(), 1..40),
        proptest::collection::vec(any_step_in_line(), 1..40),
        proptest::collection::vec(any_step_of_a_hand_over(), 1..40),
    ];
    let seen = [
        "granted",
        "granted past others",
        "held behind others",
        "behind for as long as they wait",
        "behind for a while",
        "ticket too old",
        "turns",
        "woke two",
        "back in line",
        "shortly granted",
        "shortly held",
        "shortly released to one",
        "shortly released to two",
    ];
    play(flavor, 400, &histories, &seen);
}

#[test]
fn redis_does_what_the_ledger_says() {
    lua_does_what_the_ledger_says(Flavor::Redis);
}

#[test]
fn valkey_does_what_the_ledger_says() {
    lua_does_what_the_ledger_says(Flavor::Valkey);
}

/// A refresh that comes after the grant enters the holder's ticket; the release takes it out, whether
/// others wait or not. Too rare to be met by chance.
#[test]
fn a_release_takes_out_the_ticket_that_a_late_refresh_entered() {
    let mut bench = Bench::new(Flavor::Redis);
    bench.began_us = bench.clock_us();
    let ask = |what, ballot| {
        Step::Ask(Ask {
            holder: 0,
            names: vec![0],
            what,
            ballot,
            ttl_ms: 2_000,
        })
    };
    let done = || What::Release {
        kind: ReleaseKind::Final,
        fate_unknown: false,
        place: Some((0, false)),
        stays: false,
        keep_ms: None,
    };
    let own = (0, false);
    for (refreshed, seen) in [
        (vec![own], "shortly released to nobody"),
        (vec![own, (4, false)], "shortly released to one"),
    ] {
        let history = [
            ask(What::Acquire(None), Pick::Clock(0)),
            ask(What::Refresh(refreshed), Pick::Clock(0)),
            ask(done(), Pick::Seat(0, 0)),
        ];
        for step in &history {
            bench.take(step).unwrap();
        }
        assert!(bench.tally.contains_key(seen), "{:?}", bench.tally);
        let tickets = bench.stored(NAMES[0]).line.tickets;
        assert!(tickets.iter().all(|ticket| ticket.id != TICKETS[0].1));
    }
}
