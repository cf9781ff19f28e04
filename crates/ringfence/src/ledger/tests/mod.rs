//! The ledger's rules, one test each, and what must hold whatever happens.
//!
//! `Desk` is a node made of nothing but the ledger, a map and a clock that the test steps.

mod acquire;
mod extend;
mod fence;
mod invariants;
mod plain;
mod release;
mod restore;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Entry, Moment, PlainKey, Rules, apply};
use crate::message::{Answer, Ballot, Claim, Holder, Mode, Op, ReleaseKind, Request, Stamp};
use crate::name::Name;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

const WINDOW_US: u64 = 5_000_000;
const RETENTION_MS: u64 = 60_000;
const TTL_MS: u64 = 10_000;
const START_US: u64 = 1_000_000_000_000;

const ALICE: u8 = 0xaa;
const BOB: u8 = 0xbb;

struct Desk {
    rules: Rules,
    clock_us: u64,
    entries: BTreeMap<Name, Entry>,
}

impl Desk {
    fn new() -> Self {
        Self {
            rules: Rules {
                window_us: WINDOW_US,
                retention_ms: RETENTION_MS,
            },
            clock_us: START_US,
            entries: BTreeMap::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment::of_clock(self.clock_us)
    }

    fn pass_ms(&mut self, ms: u64) {
        self.clock_us += ms * 1000;
    }

    /// The ballot `offset_us` away from the node's clock.
    fn ballot(&self, offset_us: i64) -> Ballot {
        Ballot::new(self.clock_us.saturating_add_signed(offset_us))
    }

    fn floor(&mut self, name: &str) -> Ballot {
        self.ask_for(&[name], ALICE, Op::Inspect).1.floor
    }

    fn entry(&self, name: &str) -> Entry {
        self.entries.get(&key(name)).cloned().unwrap_or_default()
    }

    fn until_ms(&self, name: &str) -> Option<u64> {
        self.entry(name).key.and_then(|key| key.until_ms)
    }

    fn holder(&mut self, name: &str) -> Option<Holder> {
        match self.ask_for(&[name], ALICE, Op::Inspect).0 {
            Answer::Views(mut views) => views.remove(0).holder,
            other => panic!("inspect answered {other:?}"),
        }
    }

    /// What another library's client does with `SET`.
    fn set_foreign(&mut self, name: &str, value: &str, until_ms: Option<u64>) {
        self.entries.entry(key(name)).or_default().key = Some(PlainKey {
            value: value.to_owned(),
            until_ms,
        });
    }

    /// What an operator does with `DEL`.
    fn delete_key(&mut self, name: &str) {
        self.entries.entry(key(name)).or_default().key = None;
    }

    /// Restarted empty.
    fn forget(&mut self) {
        self.entries.clear();
    }

    fn ask(&mut self, who: u8, op: Op) -> Answer {
        self.ask_for(&["x"], who, op).0
    }

    fn ask_for(&mut self, names: &[&str], who: u8, op: Op) -> (Answer, Stamp) {
        let now = self.now();
        self.ask_at(now, names, who, op)
    }

    fn ask_at(&mut self, now: Moment, names: &[&str], who: u8, op: Op) -> (Answer, Stamp) {
        let claims = names.iter().map(|name| Claim {
            name: key(name),
            mode: Mode::Exclusive,
        });
        let request = Request {
            claims: claims.collect(),
            token: token(who),
            op,
        };
        let mut entries: Vec<Entry> = names.iter().map(|name| self.entry(name)).collect();
        let answered = apply(&self.rules, now, &mut entries, &request);
        for (name, entry) in names.iter().zip(entries) {
            self.entries.insert(key(name), entry);
        }
        answered
    }
}

fn key(name: &str) -> Name {
    Name::new("", name).unwrap()
}

fn token(who: u8) -> Token {
    Token::from_entropy([who; TOKEN_ENTROPY_BYTES])
}

fn acquire(ballot: Ballot) -> Op {
    acquire_for(ballot, TTL_MS)
}

fn acquire_for(ballot: Ballot, ttl_ms: u64) -> Op {
    Op::Acquire {
        ballot,
        ttl_ms,
        label: Arc::from("job"),
    }
}

fn extend(ballot: Ballot, ttl_ms: u64) -> Op {
    Op::Extend { ballot, ttl_ms }
}

fn restore(ballot: Ballot) -> Op {
    Op::Restore {
        ballot,
        ttl_ms: TTL_MS,
        label: Arc::from("job"),
    }
}

fn release(ballot: Ballot) -> Op {
    Op::Release {
        ballot,
        kind: ReleaseKind::Final,
        fate_unknown: false,
    }
}

fn undo(ballot: Ballot) -> Op {
    Op::Release {
        ballot,
        kind: ReleaseKind::Undo,
        fate_unknown: false,
    }
}

fn undo_blindly(ballot: Ballot) -> Op {
    Op::Release {
        ballot,
        kind: ReleaseKind::Undo,
        fate_unknown: true,
    }
}

fn is_held_by(answer: &Answer, who: u8) -> bool {
    matches!(answer, Answer::Held(holder) if holder.id.as_deref() == Some(token(who).id()))
}
