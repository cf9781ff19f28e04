//! A server, a node connected to it, and access to the server's data without the library.

use super::stored::{broken_key, parse_breaks, parse_line, parse_record, reader_keys};
use super::*;
use crate::nodes::redis_node::{call, client, group, node};
use crate::nodes::support::join;

/// No operation is sent if something expires this close to it.
const MARGIN_MS: u64 = 5;
/// The grace period of waiters at the head of the queue.
const GRACE_MS: u64 = 25;
/// The message that is published after all wakes of an operation.
const END_OF_WAKES: &str = "end of wakes";

/// A server, a node connected to it, and the rules of their group.
pub(crate) struct Bench {
    pub(super) runtime: tokio::runtime::Runtime,
    pub(crate) connection: redis::Connection,
    pub(super) node: RedisNode,
    pub(super) rules: Rules,
    pub(super) group: Group,
    /// When the current history began.
    pub(crate) began_us: u64,
    /// The messages on all wake channels.
    messages: Receiver<(String, String)>,
    /// What has occurred in the histories, so that a test that covers nothing is noticed.
    pub(crate) tally: BTreeMap<&'static str, u32>,
    _server: Server,
}

impl Bench {
    /// A server that is one of several nodes.
    pub(crate) fn new(flavor: Flavor) -> Self {
        Self::of_group(flavor, group())
    }

    /// A server of `group`, with a short window and a short grace.
    pub(super) fn of_group(flavor: Flavor, group: Group) -> Self {
        let server = Server::start(flavor);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let group = Group {
            window: Duration::from_millis(200),
            grace: Duration::from_millis(GRACE_MS),
            ..group
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
            group,
            began_us: 0,
            messages: subscribe_to_wakes(client(&server)),
            tally: BTreeMap::new(),
            _server: server,
        }
    }

    pub(crate) fn clock_us(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1_000_000 + micros
    }

    /// What is stored under `name`, read without the library. Every key of ours must expire.
    pub(crate) fn stored(&mut self, name: &str) -> Entry {
        let record_key = record_key(name);
        let [mark_key, order_key, lease_key] = line_keys(name);
        let mut pipe = redis::pipe();
        for key in [name, &record_key, &mark_key] {
            // `MGET` reads a key that is not a string, such as that of a latch, as absent.
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
            queue: parse_line(mark, mark_until, sets),
            readers: self.stored_readers(name),
            latch: self.stored_latch(name),
            broken: self.stored_breaks(name),
        }
    }

    /// The readers of `name`, in the order of their tokens.
    fn stored_readers(&mut self, name: &str) -> Vec<Seat> {
        let [leases, labels] = reader_keys(name);
        let mut pipe = redis::pipe();
        pipe.zrange_withscores(leases, 0, -1).hgetall(labels);
        let (leases, labels): (Vec<(String, u64)>, BTreeMap<String, String>) =
            pipe.atomic().query(&mut self.connection).unwrap();
        let readers = leases.into_iter().map(|(token, until_ms)| {
            let (ballot, label) = labels[&token].split_once(':').unwrap();
            Seat {
                ballot: Ballot::new(ballot.parse().unwrap()),
                label: label.to_owned(),
                token,
                until_ms,
            }
        });
        let mut readers: Vec<Seat> = readers.collect();
        readers.sort_by(|a, b| a.token.cmp(&b.token));
        readers
    }

    /// The holds of `name` that operators broke.
    fn stored_breaks(&mut self, name: &str) -> Option<Breaks> {
        let key = broken_key(name);
        let mut pipe = redis::pipe();
        pipe.get(&key).cmd("PEXPIRETIME").arg(&key);
        let (text, until): (Option<String>, i64) =
            pipe.atomic().query(&mut self.connection).unwrap();
        text.map(|text| parse_breaks(&text, u64::try_from(until).expect("it expires")))
    }

    /// The parties that have arrived, if `name` is that of a latch.
    fn stored_latch(&mut self, name: &str) -> Option<LatchRecord> {
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
        Some(LatchRecord {
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
        loop {
            let left_us = clock_us.saturating_sub(self.clock_us());
            if left_us == 0 {
                return;
            }
            std::thread::sleep(Duration::from_micros(left_us));
        }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Reply {
        let reply = self.runtime.block_on(call(&self.node, request.clone()));
        reply.unwrap_or_else(|error| panic!("{request:?}: {error}"))
    }

    /// The ticket with this index.
    pub(crate) fn ticket(&self, (ticket, first): Shown) -> Ticket {
        let (by_us, id) = TICKETS[ticket];
        Ticket {
            since_us: self.began_us.saturating_add_signed(by_us),
            id: id.into(),
            first,
            label: format!("label of {id}: with blanks\nand lines").into(),
        }
    }

    /// All messages since the last call, sorted.
    pub(super) fn published_wakes(&mut self) -> Vec<(String, String)> {
        let _: u32 = self
            .connection
            .publish("ringfence:wake:", END_OF_WAKES)
            .unwrap();
        let messages = std::iter::from_fn(|| self.messages.recv().ok());
        let mut messages: Vec<_> = messages
            .take_while(|(_, text)| text != END_OF_WAKES)
            .collect();
        messages.sort();
        messages
    }
}

/// When something of `entries` expires on the server, in ms. Tickets are left out: they end by the
/// clock in the reply, to the millisecond.
pub(super) fn ends(entries: &[Entry]) -> impl Iterator<Item = u64> {
    entries.iter().flat_map(|entry| {
        let key = entry.key.as_ref().and_then(|key| key.until_ms);
        let record = entry.record.as_ref().map(|record| record.until_ms);
        let latch = entry.latch.as_ref().map(|latch| latch.until_ms);
        let broken = entry.broken.as_ref().map(|breaks| breaks.until_us / 1000);
        let readers = entry.readers.iter().map(|reader| reader.until_ms);
        let ends = [key, record, latch, broken].into_iter().flatten();
        ends.chain(readers)
    })
}

/// All messages on the wake channels, as channel and text.
fn subscribe_to_wakes(mut connection: redis::Connection) -> Receiver<(String, String)> {
    let (to, messages) = std::sync::mpsc::channel();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut channels = connection.as_pubsub();
        channels.psubscribe("ringfence:wake:*").unwrap();
        ready.send(()).unwrap();
        // Ends when the server is stopped.
        while let Ok(message) = channels.get_message() {
            let channel = message.get_channel_name().to_owned();
            if to.send((channel, message.get_payload().unwrap())).is_err() {
                return;
            }
        }
    });
    is_ready.recv().unwrap();
    messages
}
