//! What a server has stored, parsed as the documentation describes it.

use super::*;

impl Bench {
    /// What is stored under `name`, read without the library, without expired data.
    pub(super) fn stored(&mut self, name: &str) -> Entry {
        let record = record_key(name);
        let beside = |word: &str| record.replacen("record", word, 1);
        type Raw = (
            Option<String>,
            i64,
            Option<String>,
            i64,
            Vec<(String, u64)>,
            BTreeMap<String, String>,
            Vec<String>,
            BTreeMap<String, u64>,
        );
        let mut pipe = redis::pipe();
        for key in [name, &record] {
            pipe.get(key).cmd("PEXPIRETIME").arg(key);
        }
        pipe.zrange_withscores(beside("readers"), 0, -1)
            .hgetall(beside("reader-labels"))
            .zrange(beside("queue-order"), 0, -1)
            .zrange_withscores(beside("queue-leases"), 0, -1);
        let (value, until, text, text_until, leases, who, order, tickets): Raw =
            pipe.atomic().query(&mut self.connection).unwrap();
        let readers = seats(leases, &who);
        let twice = |mark: &str, ticket: &str| order.contains(&format!("{mark}{ticket}"));
        let own = order
            .iter()
            .filter(|t| t.starts_with(|c: char| c.is_ascii_digit()));
        let tickets = own.map(|text| {
            let (id, label) = text[20..].split_once('\n').unwrap();
            QueueEntry {
                since_us: text[..20].parse().unwrap(),
                id: id.to_owned(),
                until_ms: tickets[text],
                refreshed_ms: tickets[text] - ledger::TICKET_MS,
                elsewhere: twice("e", text),
                shared: twice("s", text),
                permits: 0,
                label: label.to_owned(),
            }
        });
        Entry {
            key: value.map(|value| PlainKey {
                value,
                until_ms: u64::try_from(until).ok(),
            }),
            record: text.map(|text| parse_record(&text, u64::try_from(text_until).unwrap())),
            readers,
            queue: WaitQueue {
                entries: tickets.collect(),
            },
            latch: None,
            broken: self.stored_breaks(&beside("broken")),
        }
    }
}

/// The readers, in the order of their tokens.
fn seats(leases: Vec<(String, u64)>, who: &BTreeMap<String, String>) -> Vec<Seat> {
    let readers = leases.into_iter().map(|(token, until_ms)| {
        let (ballot, label) = who[&token].split_once(':').unwrap();
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

impl Bench {
    fn stored_breaks(&mut self, key: &str) -> Option<Breaks> {
        let mut pipe = redis::pipe();
        pipe.get(key).cmd("PEXPIRETIME").arg(key);
        let (text, until): (Option<String>, i64) =
            pipe.atomic().query(&mut self.connection).unwrap();
        let text = text?;
        let notes = text.split('\n').map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| fields[at].parse::<u64>().unwrap();
            BreakNote {
                at_us: number(0),
                fence: Ballot::new(number(1)),
                ballot: Ballot::new(number(2)),
                id: fields[3].trim_start_matches('-').to_owned(),
                by: fields[4].to_owned(),
                label: fields[5].to_owned(),
                reason: fields[6].to_owned(),
            }
        });
        Some(Breaks {
            notes: notes.collect(),
            until_us: u64::try_from(until).unwrap() * 1000,
        })
    }
}

pub(super) fn record_key(name: &str) -> String {
    match name {
        "b}{" => "ringfence:{b{}:record:b}{".to_owned(),
        plain => format!("ringfence:{{{plain}}}:record:{plain}"),
    }
}

fn parse_record(text: &str, until_ms: u64) -> Record {
    let (version, rest) = text.split_once(':').unwrap();
    let mut fields = rest.splitn(if version == "3" { 9 } else { 8 }, ':');
    let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
    let fence = Ballot::new(number());
    let read_fence = Ballot::new(if version == "3" { number() } else { 0 });
    let (closed, free_since_ms, stranger) = (Ballot::new(number()), number(), number() == 1);
    let seat = fields.next().map(|ballot| Seat {
        ballot: Ballot::new(ballot.parse().unwrap()),
        until_ms: fields.next().unwrap().parse().unwrap(),
        token: fields.next().unwrap().to_owned(),
        label: fields.next().unwrap().to_owned(),
    });
    Record {
        fence,
        read_fence,
        closed,
        seat,
        stranger,
        free_since_ms,
        until_ms,
    }
}
