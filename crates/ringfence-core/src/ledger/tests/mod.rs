//! The ledger's rules, one test each, and the invariants for any sequence of operations.
//!
//! `TestNode` is a node that consists of the ledger, a map, and a clock that the test steps.

mod acquire;
mod breaking;
mod delay;
mod extend;
mod fence;
mod invariants;
mod keep;
mod latch;
mod list;
mod order;
mod passing;
mod permits;
mod plain;
mod quarantine;
mod queue;
mod release;
mod restore;
mod several;
mod shared;
mod slots;
mod wakes;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Entry, Moment, PlainKey, Rules, apply};
use crate::message::{
    Acquire, Answer, Arrive, Attend, Ballot, Claim, Downgrade, Extend, Holder, Mode, Op,
    PlainAcquire, PlainExtend, Refresh, Release, ReleaseKind, ReplyStamp, Request, Restore, Ticket,
    Turn, Wake,
};
use crate::name::Name;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

const WINDOW_US: u64 = 5_000_000;
const RETENTION_MS: u64 = 60_000;
const GRACE_MS: u64 = 1_500;
const TTL_MS: u64 = 10_000;
const START_US: u64 = 1_000_000_000_000;

const ALICE: u8 = 0xaa;
const BOB: u8 = 0xbb;
const CAROL: u8 = 0xcc;
const DAVE: u8 = 0xdd;

struct TestNode {
    rules: Rules,
    clock_us: u64,
    entries: BTreeMap<Name, Entry>,
    /// The wakes of the last request.
    wakes: Vec<Wake>,
}

impl TestNode {
    fn new() -> Self {
        Self {
            rules: Rules {
                window_us: WINDOW_US,
                retention_ms: RETENTION_MS,
                grace_ms: GRACE_MS,
                grants_from_us: 0,
            },
            clock_us: START_US,
            entries: BTreeMap::new(),
            wakes: Vec::new(),
        }
    }

    fn now(&self) -> Moment {
        Moment::of_clock(self.clock_us)
    }

    fn pass_ms(&mut self, ms: u64) {
        self.clock_us += ms * 1000;
    }

    /// The ballot at `offset_us` from the node's clock.
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

    /// The node restarts without its data.
    fn lose_data(&mut self) {
        self.entries.clear();
    }

    fn ask(&mut self, who: u8, op: Op) -> Answer {
        self.ask_for(&["x"], who, op).0
    }

    fn ask_for(&mut self, names: &[&str], who: u8, op: Op) -> (Answer, ReplyStamp) {
        let now = self.now();
        self.ask_at(now, names, who, op)
    }

    fn ask_at(&mut self, now: Moment, names: &[&str], who: u8, op: Op) -> (Answer, ReplyStamp) {
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
        let outcome = apply(&self.rules, now, &mut entries, &request);
        for (name, entry) in names.iter().zip(entries) {
            self.entries.insert(key(name), entry);
        }
        self.wakes = outcome.wakes;
        (outcome.answer, outcome.stamp)
    }

    /// `who` tries to acquire `x` with its ticket, under a ballot that is high enough.
    fn acquire_queued(&mut self, who: u8, ticket: &Ticket) -> Answer {
        self.acquire_queued_for(&["x"], who, ticket)
    }

    fn acquire_queued_for(&mut self, names: &[&str], who: u8, ticket: &Ticket) -> Answer {
        let ballot = self.next_ballot(names);
        self.ask_for(names, who, acquire_with_ticket(ballot, ticket))
            .0
    }

    /// A ballot that is high enough for `names`.
    fn next_ballot(&mut self, names: &[&str]) -> Ballot {
        let floor = self.ask_for(names, ALICE, Op::Inspect).1.floor;
        Ballot::new(self.clock_us.max(floor.get() + 1))
    }

    /// The highest ballot of a holder of `names`.
    fn seated(&self, names: &[&str]) -> Ballot {
        let seated = names.iter().map(|name| self.entry(name).holder_ballot());
        seated.max().unwrap_or_default()
    }

    /// The holder of `names` is done.
    fn release_final(&mut self, names: &[&str], who: u8, ticket: Option<&Ticket>) -> Answer {
        let ballot = self.seated(names);
        self.ask_for(
            names,
            who,
            release_op(ballot, ReleaseKind::Final, ticket, false),
        )
        .0
    }

    /// `who` undoes an attempt and will try again.
    fn undo_attempt(&mut self, names: &[&str], who: u8, ticket: &Ticket) -> Answer {
        let ballot = self.seated(names);
        self.ask_for(
            names,
            who,
            release_op(ballot, ReleaseKind::Undo, Some(ticket), true),
        )
        .0
    }

    /// `who` stops waiting.
    fn cancel(&mut self, names: &[&str], who: u8, ticket: &Ticket) -> Answer {
        let ballot = self.ballot(0);
        self.ask_for(
            names,
            who,
            release_op(ballot, ReleaseKind::Undo, Some(ticket), false),
        )
        .0
    }

    fn refresh(&mut self, names: &[&str], tickets: &[&Ticket]) -> Vec<Turn> {
        let tickets = tickets.iter().map(|ticket| (*ticket).clone()).collect();
        match self.ask_for(names, 0, Op::Refresh(Refresh { tickets })).0 {
            Answer::Turns(turns) => turns,
            other => panic!("refresh answered {other:?}"),
        }
    }

    /// The ids of the tickets in the wait queue of `name`, in order.
    fn queue_ids(&mut self, name: &str) -> Vec<String> {
        self.ask_for(&[name], ALICE, Op::Inspect);
        let tickets = self.entry(name).queue.entries;
        tickets.into_iter().map(|ticket| ticket.id).collect()
    }

    /// A new ticket with the node's time.
    fn ticket(&self, id: &str) -> Ticket {
        Ticket {
            since_us: self.clock_us,
            id: Arc::from(id),
            first: true,
            label: Arc::from("waiter"),
        }
    }
}

/// The same ticket, in a later request.
fn reentered(ticket: &Ticket) -> Ticket {
    Ticket {
        first: false,
        ..ticket.clone()
    }
}

fn is_behind(answer: &Answer, ahead: u64) -> bool {
    matches!(answer, Answer::Behind { ahead: found, .. } if *found == ahead)
}

fn wake(ticket: &str, after_ms: u64) -> Wake {
    Wake {
        ticket: ticket.to_owned(),
        after_ms,
        slot: None,
    }
}

fn acquire_with_ticket(ballot: Ballot, ticket: &Ticket) -> Op {
    Op::Acquire(Acquire {
        ballot,
        ttl_ms: TTL_MS,
        label: Arc::from("job"),
        ticket: Some(ticket.clone()),
        not_after_us: None,
    })
}

fn release_op(ballot: Ballot, kind: ReleaseKind, ticket: Option<&Ticket>, stays: bool) -> Op {
    Op::Release(Release {
        ballot,
        kind,
        fate_unknown: false,
        ticket: ticket.cloned(),
        stays,
        keep_ms: None,
        delay_ms: 0,
    })
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
    Op::Acquire(Acquire {
        ballot,
        ttl_ms,
        label: Arc::from("job"),
        ticket: None,
        not_after_us: None,
    })
}

fn extend(ballot: Ballot, ttl_ms: u64) -> Op {
    Op::Extend(Extend {
        ballot,
        ttl_ms,
        delay_ms: 0,
    })
}

fn restore(ballot: Ballot) -> Op {
    Op::Restore(Restore {
        ballot,
        ttl_ms: TTL_MS,
        label: Arc::from("job"),
    })
}

fn release(ballot: Ballot) -> Op {
    release_op(ballot, ReleaseKind::Final, None, false)
}

/// A final release while something of the hold may still be under way.
fn release_of_unknown_fate(ballot: Ballot) -> Op {
    let mut op = release(ballot);
    if let Op::Release(Release { fate_unknown, .. }) = &mut op {
        *fate_unknown = true;
    }
    op
}

/// A release that keeps the lock from others for `keep_ms`.
fn keep(ballot: Ballot, keep_ms: u64) -> Op {
    let mut op = release(ballot);
    if let Op::Release(Release { keep_ms: kept, .. }) = &mut op {
        *kept = Some(keep_ms);
    }
    op
}

fn undo(ballot: Ballot) -> Op {
    release_op(ballot, ReleaseKind::Undo, None, true)
}

fn undo_of_unknown_fate(ballot: Ballot) -> Op {
    Op::Release(Release {
        ballot,
        kind: ReleaseKind::Undo,
        fate_unknown: true,
        ticket: None,
        stays: true,
        keep_ms: None,
        delay_ms: 0,
    })
}

fn is_held_by(answer: &Answer, who: u8) -> bool {
    matches!(answer, Answer::Held(holder) if holder.id.as_deref() == Some(token(who).id()))
}
