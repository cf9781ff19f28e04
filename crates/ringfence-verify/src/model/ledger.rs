//! What a node does in the model: the product's own ledger, asked once for every question that comes
//! up and remembered, so that millions of states cost a few thousand calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_core::ledger::{Entry, Moment, PlainKey, Record, Rules, Seat, apply};
use ringfence_core::message::{
    Acquire, Answer, Ballot, Claim, Extend, Mode, Op, Release, ReleaseKind, Request, Restore,
};
use ringfence_core::name::Name;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};

use super::world::{CLIENTS, Mail, Number};
use super::{Scope, Time, Variant};

/// What a node keeps of the one name: an [`Entry`] without what never differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slip {
    /// Who holds, and the last tick of its lease.
    pub holder: Option<(u8, Number)>,
    /// The side record.
    pub record: Option<Memo>,
}

/// The side record of a [`Slip`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Memo {
    /// The highest ballot accepted or retired.
    pub fence: Number,
    /// The highest ballot given back.
    pub closed: Number,
    /// The holder's ballot; zero without a holder.
    pub seated: Number,
    /// The last tick of the record.
    pub until: Number,
}

/// A question to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// A client's request.
    Mail(u8, Mail, Number),
    /// What is left, now that time has passed?
    Settle,
    /// What is left, now that the holder's lease is over?
    Lapse,
}

/// What a node answers, as far as the model cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    /// Granted, extended, released or restored.
    Done,
    /// Somebody else holds.
    Held,
    /// The ballot is too low.
    Stale,
    /// The ballot is too high.
    Ahead,
    /// Nobody holds; or the ballot is closed.
    Gone,
    /// The token holds under a later ballot.
    Newer,
}

/// The time of a node on which time does not matter, and its window: every ballot is near enough, and
/// nothing is ever forgotten.
const STILL: Number = 16;
/// How long a lease lasts there, until it is said to be over.
const LEASE_MS: u64 = 5;
/// How long records are kept there.
const RECORD_MS: u64 = 100;

/// What a node was asked: what it kept, its time, and the question.
type Asked = (Slip, Option<Number>, Question);

/// The ledger, with a memory of what it answered.
#[derive(Debug)]
pub struct Ledger {
    time: Option<Time>,
    variant: Variant,
    claims: Arc<[Claim]>,
    tokens: [Token; CLIENTS],
    known: Mutex<HashMap<Asked, (Slip, Word)>>,
}

impl Slip {
    /// Gives the holder another number.
    pub fn rename(&mut self, number: impl Fn(u8) -> u8) {
        if let Some((holder, _)) = &mut self.holder {
            *holder = number(*holder);
        }
    }
}

impl Ledger {
    /// The ledger under the rules of `scope`.
    pub fn new(scope: &Scope) -> Self {
        let name = Name::new("", "model").expect("a good name");
        Self {
            time: scope.time,
            variant: scope.variant,
            claims: Arc::from([Claim {
                name,
                mode: Mode::Exclusive,
            }]),
            tokens: [1, 2, 3].map(|byte| Token::from_entropy([byte; TOKEN_ENTROPY_BYTES])),
            known: Mutex::default(),
        }
    }

    /// Asks a node that keeps `slip`, at `clock`.
    pub fn ask(&self, slip: Slip, clock: Option<Number>, question: Question) -> (Slip, Word) {
        let key = (slip, clock, question);
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return *known;
        }
        let answer = self.carry_out(slip, clock, question);
        lock().insert(key, answer);
        answer
    }

    fn carry_out(&self, slip: Slip, clock: Option<Number>, question: Question) -> (Slip, Word) {
        let (client, op) = match question {
            Question::Settle | Question::Lapse => (0, Op::Inspect),
            Question::Mail(client, mail, ballot) => {
                let ttl_ms = if clock.is_some() { 0 } else { LEASE_MS };
                (client, self.op(&slip, client, mail, ballot, ttl_ms))
            }
        };
        let now = self.moment(clock, &slip, question);
        let mut rules = self.rules(clock);
        if self.variant == Variant::PinnedFloor && slip.record.is_some() {
            // Out of reach, the ground asks nothing of a ballot: the record alone does. The ceiling
            // stays where it is.
            if let Op::Acquire(Acquire { ballot, .. }) | Op::Release(Release { ballot, .. }) = &op
                && ballot.get() > now.clock_us + rules.window_us
            {
                return (slip, Word::Ahead);
            }
            rules.window_us = u64::from(Number::MAX);
        }
        let request = Request {
            claims: Arc::clone(&self.claims),
            token: self.tokens[usize::from(client)].clone(),
            op,
        };
        let mut entries = [self.entry(&slip)];
        let outcome = apply(&rules, now, &mut entries, &request);
        let word = match outcome.answer {
            Answer::Held(_) => Word::Held,
            Answer::Stale => Word::Stale,
            Answer::Ahead => Word::Ahead,
            Answer::Gone => Word::Gone,
            Answer::Newer => Word::Newer,
            _ => Word::Done,
        };
        let [entry] = entries;
        (self.slip(&entry), word)
    }

    fn rules(&self, clock: Option<Number>) -> Rules {
        let (window_us, retention_ms) = match (self.time, clock) {
            (Some(time), Some(_)) => (time.window.into(), time.retention_ms.into()),
            _ => (STILL.into(), RECORD_MS),
        };
        Rules {
            window_us,
            retention_ms,
            grace_ms: 0,
        }
    }

    fn moment(&self, clock: Option<Number>, slip: &Slip, question: Question) -> Moment {
        let ticks_per_ms = self.time.map_or(1, |time| time.ticks_per_ms);
        let clock_us = u64::from(clock.unwrap_or(STILL));
        let lease_ms = match (question, slip.holder) {
            (Question::Lapse, Some((_, until))) => u64::from(until) + 1,
            _ if clock.is_none() => clock_us,
            _ => clock_us / u64::from(ticks_per_ms),
        };
        Moment { clock_us, lease_ms }
    }

    fn op(&self, slip: &Slip, client: u8, mail: Mail, ballot: Number, ttl_ms: u64) -> Op {
        let release = |kind, fate_unknown| {
            let seated = slip.record.map_or(0, |memo| memo.seated);
            let ours = slip.holder.is_some_and(|(holder, _)| holder == client);
            let ballot = match self.variant {
                Variant::CarelessRelease if ours => ballot.max(seated),
                _ => ballot,
            };
            Op::Release(Release {
                ballot: Ballot::new(ballot.into()),
                kind,
                fate_unknown,
                ticket: None,
                stays: false,
                keep_ms: None,
            })
        };
        let label = || Arc::from("");
        let number = Ballot::new(ballot.into());
        match mail {
            Mail::Acquire => Op::Acquire(Acquire {
                ballot: number,
                ttl_ms,
                label: label(),
                ticket: None,
            }),
            Mail::Undo => release(ReleaseKind::Undo, false),
            Mail::Retire => release(ReleaseKind::Undo, true),
            Mail::Release => release(ReleaseKind::Final, false),
            Mail::ReleaseUnknown => release(ReleaseKind::Final, true),
            Mail::Extend => Op::Extend(Extend {
                ballot: number,
                ttl_ms,
            }),
            Mail::Restore => Op::Restore(Restore {
                ballot: number,
                ttl_ms,
                label: label(),
            }),
            Mail::Granted | Mail::Doubted | Mail::Extended => Op::Inspect,
        }
    }

    fn entry(&self, slip: &Slip) -> Entry {
        let key = slip.holder.map(|(holder, until)| PlainKey {
            value: self.tokens[usize::from(holder)].expose().to_owned(),
            until_ms: Some(until.into()),
        });
        let seat = |memo: Memo| {
            key.as_ref().map(|key| Seat {
                token: key.value.clone(),
                ballot: Ballot::new(memo.seated.into()),
                label: String::new(),
                until_ms: key.until_ms.unwrap_or_default(),
            })
        };
        let record = slip.record.map(|memo| Record {
            fence: Ballot::new(memo.fence.into()),
            read_fence: Ballot::default(),
            closed: Ballot::new(memo.closed.into()),
            seat: seat(memo),
            stranger: false,
            free_since_ms: 0,
            until_ms: memo.until.into(),
        });
        Entry {
            key,
            record,
            ..Entry::default()
        }
    }

    fn slip(&self, entry: &Entry) -> Slip {
        let number = |n: u64| Number::try_from(n).unwrap_or(Number::MAX);
        let by_value = |value: &str| self.tokens.iter().position(|t| t.expose() == value);
        let holder = entry.key.as_ref().and_then(|key| {
            let who = by_value(&key.value)?;
            Some((who as u8, number(key.until_ms?)))
        });
        let seated = |record: &Record| {
            let held = |seat: &&Seat| entry.key.as_ref().is_some_and(|k| k.value == seat.token);
            record
                .seat
                .as_ref()
                .filter(held)
                .map_or(0, |s| s.ballot.get())
        };
        let record = entry.record.as_ref().map(|record| Memo {
            fence: number(record.fence.max(record.read_fence).get()),
            closed: number(record.closed.get()),
            seated: number(seated(record)),
            until: number(record.until_ms),
        });
        Slip { holder, record }
    }
}
