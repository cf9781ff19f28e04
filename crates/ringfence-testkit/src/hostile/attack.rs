//! The bytes of each attack.

use std::ops::Range;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Attack, Push};
use crate::resp;

/// The size of one write of a long reply.
pub(super) const CHUNK: usize = 64 << 10;
/// The length that a slow attack announces: small enough for a client to wait for it.
const DRIP_BYTES: u64 = 1_000_000;
/// The shortest time between two writes of a flood.
const TICKS_PER_SECOND: u32 = 100;

/// The bytes that replace one reply.
pub(super) struct Assault {
    /// Sent first.
    pub(super) opening: Vec<u8>,
    /// Sent repeatedly, until `repeated` bytes are sent.
    pub(super) pattern: Vec<u8>,
    pub(super) repeated: u64,
    /// Sent last.
    pub(super) ending: &'static [u8],
    /// The pause between two patterns.
    pub(super) pause: Option<Duration>,
    /// Whether the client can read further replies afterwards.
    pub(super) completes: bool,
}

impl Assault {
    /// The bytes that `attack` sends instead of `reply`, as its attack with this `number`. `None` if
    /// it keeps that reply.
    pub(super) fn new(attack: &Attack, reply: &[u8], number: usize) -> Option<Self> {
        let whole = |opening: Vec<u8>| Self {
            opening,
            pattern: Vec::new(),
            repeated: 0,
            ending: b"",
            pause: None,
            completes: true,
        };
        Some(match attack {
            Attack::Reply(bytes) => whole(bytes.clone()),
            Attack::LongText { bytes } => Self {
                pattern: vec![b'x'; CHUNK],
                repeated: *bytes,
                ending: b"\r\n",
                ..whole(format!("${bytes}\r\n").into_bytes())
            },
            Attack::ManyValues { count } => Self {
                pattern: b":1\r\n".repeat(CHUNK / 4),
                repeated: count * 4,
                ..whole(format!("*{count}\r\n").into_bytes())
            },
            Attack::Nested { depth } => Self {
                ending: b":1\r\n",
                ..whole(b"*1\r\n".repeat(*depth))
            },
            Attack::Garbage { bytes } => Self {
                pattern: garbage(),
                repeated: *bytes,
                completes: false,
                ..whole(Vec::new())
            },
            Attack::Drip { every } => Self {
                pattern: b"x".to_vec(),
                repeated: DRIP_BYTES,
                ending: b"\r\n",
                pause: Some(*every),
                ..whole(format!("${DRIP_BYTES}\r\n").into_bytes())
            },
            Attack::Field { name, value } => whole(with_field(reply, name, value)?),
            Attack::EndlessList { name_bytes } => whole(endless_list(reply, *name_bytes, number)?),
            Attack::Pushes { .. } => return None,
        })
    }
}

/// The text `reply` with another value in the line `name:`.
fn with_field(reply: &[u8], name: &str, value: &str) -> Option<Vec<u8>> {
    if !matches!(reply[0], b'$' | b'=') {
        return None;
    }
    let text = String::from_utf8_lossy(resp::text(reply));
    let begin = text.find(&format!("\n{name}:"))? + 1;
    let end = begin + text[begin..].find('\r')?;
    let changed = format!("{}{name}:{value}{}", &text[..begin], &text[end..]);
    Some(resp::bulk(changed.as_bytes()))
}

/// A portion of a list with new names, or what is held of them. `None` if `reply` is neither a list
/// nor an inspection.
fn endless_list(reply: &[u8], name_bytes: usize, number: usize) -> Option<Vec<u8>> {
    /// How many names one portion has.
    const NAMES: usize = 400;
    /// How many values describe a lock that is free.
    const FREE: usize = 14;
    let items = resp::items(reply);
    let &[clock, floor, answer, ..] = items.as_slice() else {
        return None;
    };
    let (values, count) = match resp::text(answer) {
        b"listed" => {
            // There is always another portion, and it took a microsecond.
            let mut values = [resp::bulk(b"17"), b":1\r\n".to_vec()].concat();
            for name in 0..NAMES {
                let name = format!("{number:08}:{name:03}:{:x<name_bytes$}", "");
                values.extend(resp::bulk(&name.as_bytes()[..name_bytes]));
            }
            (values, 2 + NAMES)
        }
        b"views" => {
            let names = (items.len() - 3) / FREE;
            let label = resp::bulk(&[b'l'; 128]);
            let id = resp::bulk(b"0123456789");
            // Ends in a minute; its fence is 7; no waiters, readers, tickets, permits and parties.
            let rest = b":60000\r\n:7\r\n:7\r\n:0\r\n:0\r\n:0\r\n:0\r\n_\r\n_\r\n:0\r\n:0\r\n";
            let view = [b":1\r\n", &*label, &*id, rest].concat();
            (view.repeat(names), FREE * names)
        }
        _ => return None,
    };
    let head = format!("*{}\r\n", 3 + count).into_bytes();
    Some([&head, clock, floor, answer, &values].concat())
}

/// Bytes that begin no RESP value and look random. Always the same, so that a failure can be
/// repeated.
fn garbage() -> Vec<u8> {
    let mut state = 1_u64;
    let noise = (0..CHUNK).map(|_| {
        // Knuth's MMIX generator; its high bits are the good ones.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let mut bytes: Vec<u8> = noise.collect();
    bytes[0] = 0;
    bytes
}

/// A flood of pushes on one connection.
pub(super) struct Flood {
    push: Push,
    per_tick: u64,
    ticks: Interval,
    sent: u64,
}

impl Flood {
    pub(super) fn new(push: Push, per_second: u32) -> Self {
        let per_second = per_second.max(1);
        let per_tick = per_second.div_ceil(TICKS_PER_SECOND);
        let mut ticks = interval(Duration::from_secs(1) * per_tick / per_second);
        // Keeps the rate of the test even if a client reads slowly.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self {
            push,
            per_tick: per_tick.into(),
            ticks,
            sent: 0,
        }
    }

    /// Waits until the next pushes are due; returns their number and their bytes. Safe to cancel.
    pub(super) async fn next(&mut self, channel: &str) -> (u64, Vec<u8>) {
        self.ticks.tick().await;
        let numbers = self.sent..self.sent + self.per_tick;
        self.sent += self.per_tick;
        (self.per_tick, self.push.write(channel, numbers))
    }
}

impl Push {
    fn write(self, channel: &str, numbers: Range<u64>) -> Vec<u8> {
        match self {
            Self::Message(message) => {
                let begin = [b">3\r\n".to_vec(), resp::bulk(b"message")].concat();
                let begin = [begin, resp::bulk(channel.as_bytes())].concat();
                let texts = numbers.map(|number| message(channel, number));
                let pushes = texts.map(|text| [&begin, &*resp::bulk(text.as_bytes())].concat());
                pushes.collect::<Vec<_>>().concat()
            }
            Self::Unknown { bytes } => {
                let push = [b">1\r\n".to_vec(), resp::bulk(&vec![b'x'; bytes])].concat();
                push.repeat(numbers.count())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_a_text_is_replaced() {
        let info = resp::bulk(b"# Server\r\nrun_id:abc\r\nredis_mode:standalone\r\n");
        let changed = with_field(&info, "run_id", "other").unwrap();
        let expected = "# Server\r\nrun_id:other\r\nredis_mode:standalone\r\n";
        assert_eq!(resp::text(&changed), expected.as_bytes());
        assert_eq!(with_field(&info, "id", "other"), None);
        assert_eq!(with_field(b":1\r\n", "run_id", "other"), None);
    }

    #[test]
    fn a_list_without_end_has_new_names_each_time_and_all_are_held() {
        let part = |word: &str, rest: &[u8]| {
            let count = 3 + rest.windows(2).filter(|pair| *pair == b"\r\n").count();
            let head = format!("*{count}\r\n:5\r\n:1\r\n${}\r\n{word}\r\n", word.len());
            [head.as_bytes(), rest].concat()
        };
        let last = part("listed", b"$-1\r\n:9\r\n");
        let lists = [1, 2].map(|number| endless_list(&last, 64, number).unwrap());
        assert_ne!(lists[0], lists[1]);
        assert_eq!(resp::items(&lists[0]).len(), 405);
        assert_eq!(
            resp::items(&lists[0])[5].len(),
            resp::bulk(&[b'x'; 64]).len()
        );
        let free = part("views", &b":0\r\n".repeat(28));
        let held = endless_list(&free, 64, 1).unwrap();
        let held = resp::items(&held);
        assert_eq!(
            (held.len(), held[3], held[17]),
            (31, &b":1\r\n"[..], &b":1\r\n"[..])
        );
        assert_eq!(endless_list(&part("granted", b""), 64, 1), None);
        assert_eq!(endless_list(b":1\r\n", 64, 1), None);
    }

    #[test]
    fn every_push_is_one_value() {
        let message = |channel: &str, number: u64| format!("{number} on {channel}");
        for push in [Push::Message(message), Push::Unknown { bytes: 100 }] {
            let (two, one) = (push.write("news", 7..9), push.write("news", 8..9));
            let end = resp::value_end(&two).unwrap();
            assert_eq!(two[end..], one);
            assert_eq!(resp::value_end(&one), Some(one.len()));
        }
    }
}
