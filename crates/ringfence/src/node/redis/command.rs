//! Writes a request as a Redis command.

use std::io::Write;

use redis::{RedisWrite, ToRedisArgs};

use crate::ledger::TICKET_MS;
use crate::message::{
    Acquire, BREAKS_SHOWN, Break, Downgrade, List, Mode, Op, PARTIES_SHOWN, READERS_SHOWN, Release,
    ReleaseKind, ReleaseSlot, Request, Slots, TICKETS_SHOWN, Ticket,
};

use crate::name::side_key_tag;
use crate::node::Call;

use super::bundle::{self, BatchKind};
use super::key::{QUEUE, RECORD, side_key_parts};
use super::scripts::{SCRIPTS, Script};
use super::terms::ScriptTerms;

/// No further arguments.
const NOTHING: Option<u8> = None;

/// How many readers, tickets and parties an inspection lists.
const SHOWN: (usize, usize, usize) = (READERS_SHOWN, TICKETS_SHOWN, PARTIES_SHOWN);

/// How a command names its script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptForm {
    /// By its hash: short, but the server may have dropped the script.
    Hash,
    /// By its text. The server then keeps the script.
    Text,
}

/// The calls that one command carries out.
#[derive(Debug)]
pub(super) enum Command {
    /// A call of any kind.
    Single(Call),
    /// Calls on different names, each with one claim.
    Bundle(BatchKind, Vec<Call>),
}

impl Command {
    /// Writes the command.
    pub(super) fn write(&self, terms: &ScriptTerms, by: ScriptForm, out: &mut impl RedisWrite) {
        match self {
            Self::Single(call) => write(&call.request, terms, by, out),
            Self::Bundle(kind, calls) => bundle::write(*kind, calls, terms, by, out),
        }
    }

    /// The calls of the command.
    pub(super) fn calls(&self) -> &[Call] {
        match self {
            Self::Single(call) => std::slice::from_ref(call),
            Self::Bundle(_, calls) => calls,
        }
    }

    /// As [`Command::calls`], by value.
    pub(super) fn into_calls(self) -> Vec<Call> {
        match self {
            Self::Single(call) => vec![call],
            Self::Bundle(_, calls) => calls,
        }
    }
}

/// Writes the command that carries out `request`.
pub(super) fn write(
    request: &Request,
    terms: &ScriptTerms,
    by: ScriptForm,
    out: &mut impl RedisWrite,
) {
    let (scripts, token) = (&*SCRIPTS, request.token.expose());
    let call = LockCall { request, terms, by };
    match &request.op {
        Op::Acquire(op) => {
            let script = match terms.quarantine_over {
                true => &scripts.acquire,
                false => &scripts.acquire_quarantined,
            };
            call.write(script, (grant(op), ticket_args(op)), out);
        }
        Op::AcquireSlot(op) => {
            let slot = op.slot.map(|slot| slot.to_string()).unwrap_or_default();
            let words = (grant(&op.acquire), slot, ticket_args(&op.acquire));
            call.write(&scripts.acquire_slot, words, out);
        }
        Op::Extend(op) => {
            let delay = (op.delay_ms > 0).then_some(op.delay_ms);
            let words = (op.ballot.get(), ttl(op.ttl_ms), delay);
            call.write(&scripts.extend, words, out);
        }
        Op::Downgrade(Downgrade { ballot, ttl_ms }) => {
            call.write(&scripts.downgrade, (ballot.get(), ttl(*ttl_ms)), out);
        }
        Op::Release(op) => call.write_release(op, out),
        Op::ReleaseSlot(op) => call.write_release_slot(op, out),
        Op::Restore(op) => {
            let words = (op.ballot.get(), ttl(op.ttl_ms), &*op.label);
            call.write(&scripts.restore, words, out);
        }
        Op::Refresh(op) => call.write_tickets(&scripts.refresh, NOTHING, &op.tickets, out),
        Op::RefreshSlots(op) => {
            call.write_tickets(&scripts.refresh_slots, NOTHING, &op.tickets, out)
        }
        Op::Arrive(op) => {
            let since = op.since_us.map(|us| us.to_string()).unwrap_or_default();
            call.write(&scripts.arrive, (ttl(op.ttl_ms), op.count, since), out);
            op.parties
                .iter()
                .for_each(|party| write_args(out, &**party));
        }
        Op::Attend(op) => {
            let words = (ttl(op.ttl_ms), u8::from(op.list));
            call.write_tickets(&scripts.attend, words, &op.tickets, out);
        }
        Op::Break(op) => call.write(&scripts.break_hold, break_args(op), out),
        Op::Inspect => call.write(&scripts.inspect, SHOWN, out),
        Op::List(op) => call.write(&scripts.list, list_args(op), out),
        Op::PlainAcquire(op) => {
            write_args(out, ("SET", only_name(request), token));
            write_args(out, ("NX", "PX", ttl(op.ttl_ms)));
        }
        Op::PlainExtend(op) => {
            write_script(&scripts.plain_extend, by, 1, out);
            write_args(out, (only_name(request), token, ttl(op.ttl_ms)));
        }
        Op::PlainRelease => {
            write_script(&scripts.plain_release, by, 1, out);
            write_args(out, (only_name(request), token));
        }
    }
}

/// A call of a script that works on claims.
struct LockCall<'a> {
    request: &'a Request,
    terms: &'a ScriptTerms,
    by: ScriptForm,
}

impl LockCall<'_> {
    /// Writes the call of `script`, with `words` behind the token.
    fn write(&self, script: &Script, words: impl ToRedisArgs, out: &mut impl RedisWrite) {
        let (request, terms, by) = (self.request, self.terms, self.by);
        let keys = 1 + 3 * request.claims.len();
        match terms.looks_only {
            false => write_script(script, by, keys, out),
            true => write_script_ro(script, by, keys, out),
        }
        let names = || request.claims.iter().map(|claim| claim.name.as_str());
        names().for_each(|name| write_args(out, name));
        names().for_each(|name| write_record_key(name, out));
        names().for_each(|name| write_mark_key(name, out));
        terms.write(terms.checks(&request.op), out);
        let shared = request.claims.iter().any(|c| c.mode == Mode::Shared);
        if shared {
            write_args(out, token_and_modes(request));
        } else {
            write_args(out, request.token.expose());
        }
        write_args(out, words);
    }

    fn write_release(&self, op: &Release, out: &mut impl RedisWrite) {
        let ticket = op
            .ticket
            .as_ref()
            .map(|ticket| (ticket_text(ticket), TICKET_MS));
        let words = (release(op), op.keep_ms.unwrap_or(0), op.delay_ms, ticket);
        self.write(&SCRIPTS.release, words, out);
    }

    fn write_release_slot(&self, op: &ReleaseSlot, out: &mut impl RedisWrite) {
        let ticket = op.release.ticket.as_ref();
        let ticket = ticket.map(|ticket| (TICKET_MS, ticket_text(ticket)));
        let delay = op.release.delay_ms;
        let words = (release(&op.release), which(op.slots), delay, ticket);
        self.write(&SCRIPTS.release_slot, words, out);
    }

    /// Writes the call of `script` with the tickets of waiters.
    fn write_tickets(
        &self,
        script: &Script,
        words: impl ToRedisArgs,
        tickets: &[Ticket],
        out: &mut impl RedisWrite,
    ) {
        self.write(script, (words, TICKET_MS), out);
        tickets
            .iter()
            .for_each(|ticket| write_args(out, ticket_text(ticket)));
    }
}

/// Ballot, TTL and label of an acquire.
fn grant(op: &Acquire) -> impl ToRedisArgs {
    (op.ballot.get(), ttl(op.ttl_ms), &*op.label)
}

/// The ticket of a waiter, and whether it is new.
fn ticket_args(op: &Acquire) -> impl ToRedisArgs {
    let ticket = op.ticket.as_ref();
    ticket.map(|ticket| (TICKET_MS, u8::from(ticket.first), ticket_text(ticket)))
}

/// The arguments of a release.
fn release(op: &Release) -> impl ToRedisArgs {
    let last = u8::from(op.kind == ReleaseKind::Final);
    let (unknown, stays) = (u8::from(op.fate_unknown), u8::from(op.stays));
    (op.ballot.get(), last, unknown, stays)
}

/// The arguments of a break.
fn break_args(op: &Break) -> impl ToRedisArgs {
    let slot = op.slot.map(|slot| slot.to_string()).unwrap_or_default();
    let (foreign, only) = (u8::from(op.foreign), op.only.as_deref().unwrap_or_default());
    let which = (op.ballot.get(), op.up_to.get(), foreign, only, slot);
    (which, op.keep_ms, &*op.by, &*op.reason)
}

/// The arguments of a list.
fn list_args(op: &List) -> impl ToRedisArgs {
    (&*op.cursor, op.pages, u8::from(op.breaks), BREAKS_SHOWN)
}

/// Which slots are released.
fn which(slots: Slots) -> impl ToRedisArgs {
    match slots {
        Slots::Only(slot) => ("only", slot),
        Slots::AllBut(slot) => ("but", slot),
        Slots::All => ("all", 0),
    }
}

/// The token, a blank, and the mode of each claim: s for shared, x for exclusive.
fn token_and_modes(request: &Request) -> String {
    let modes = request.claims.iter().map(|claim| match claim.mode {
        Mode::Exclusive => 'x',
        Mode::Shared => 's',
    });
    let token = request.token.expose();
    format!("{token} {}", modes.collect::<String>())
}

/// Writes the beginning of every call of `script`, up to the number of its keys.
pub(super) fn write_script(
    script: &Script,
    by: ScriptForm,
    keys: usize,
    out: &mut impl RedisWrite,
) {
    match by {
        ScriptForm::Hash => write_args(out, ("EVALSHA", &script.hash)),
        ScriptForm::Text => write_args(out, ("EVAL", &script.text)),
    }
    write_args(out, keys);
}

/// [`write_script`] for a user who may only run `EVAL_RO`.
fn write_script_ro(script: &Script, by: ScriptForm, keys: usize, out: &mut impl RedisWrite) {
    match by {
        ScriptForm::Hash => write_args(out, ("EVALSHA_RO", &script.hash)),
        ScriptForm::Text => write_args(out, ("EVAL_RO", &script.text)),
    }
    write_args(out, keys);
}

/// Writes further arguments.
pub(super) fn write_args(out: &mut impl RedisWrite, words: impl ToRedisArgs) {
    words.write_redis_args(out);
}

/// The name of an operation that has one claim.
pub(super) fn only_name(request: &Request) -> &str {
    request
        .claims
        .first()
        .map_or("", |claim| claim.name.as_str())
}

/// A ticket as a text that sorts like the ticket itself. No id contains a newline.
fn ticket_text(ticket: &Ticket) -> String {
    format!("{:020}{}\n{}", ticket.since_us, ticket.id, ticket.label)
}

/// A server refuses an expiry of zero. In the ledger such a key lasts for its last millisecond.
pub(super) fn ttl(ms: u64) -> u64 {
    ms.max(1)
}

/// Writes the key of the record of the lock at `key`.
pub(super) fn write_record_key(key: &str, out: &mut impl RedisWrite) {
    write_side_key(key, RECORD, out);
}

/// Writes the key of the mark of the wait queue of the lock at `key`.
pub(super) fn write_mark_key(key: &str, out: &mut impl RedisWrite) {
    write_side_key(key, QUEUE, out);
}

/// Writes the key piece by piece: a `String` for each key would cost every call an allocation.
fn write_side_key(key: &str, purpose: &str, out: &mut impl RedisWrite) {
    let tag = side_key_tag(key);
    let mut arg = out.writer_for_next_arg();
    for part in side_key_parts(&tag, purpose, key) {
        // Writing to memory does not fail.
        let _ = arg.write_all(part.as_bytes());
    }
}
