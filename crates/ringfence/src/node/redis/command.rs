//! A request as the command that a server understands.

use std::io::Write;

use redis::{RedisWrite, ToRedisArgs};

use crate::group::Group;
use crate::ledger::{Rules, TICKET_MS};
use crate::message::{
    Acquire, Downgrade, Extend, Mode, Op, Place, Release, ReleaseKind, Request, Slots,
};

use crate::name::side_key_tag;
use crate::node::Call;

use super::bundle::{self, BatchKind};
use super::key::{BORN_KEY, QUEUE, RECORD, side_key_parts};
use super::scripts::{SCRIPTS, Script};

/// No further words.
const NOTHING: Option<u8> = None;

/// How a script is named to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptBy {
    /// By its hash: short, but the server may have dropped it.
    Hash,
    /// By its text, which the server then keeps.
    Text,
}

/// What lock operations tell a node about the group and the handshake.
#[derive(Debug, Clone)]
pub(super) struct ScriptTerms {
    /// The birth record as this connection saw it, behind a `?`. A node where another stands does
    /// nothing.
    asking: String,
    /// The constants that the ledger needs.
    pub(super) rules: Rules,
    /// Whether scripts that write a holder compare the replication id, too.
    pub(super) compare: bool,
    /// Whether our user may only look: then scripts are run in a way that cannot write.
    pub(super) looks_only: bool,
}

impl ScriptTerms {
    /// The terms of `group`, under the birth record `born`.
    pub(super) fn new(born: &str, group: &Group) -> Self {
        Self {
            asking: format!("?{born}"),
            rules: Rules::of_group(group),
            compare: false,
            looks_only: false,
        }
    }

    /// The birth record as scripts take it that compare the replication id, too, or do not.
    fn born(&self, compares: bool) -> &str {
        match compares {
            true => &self.asking,
            false => &self.asking[1..],
        }
    }
}

/// What one command carries out.
#[derive(Debug)]
pub(super) enum Command {
    /// A call of any kind.
    Alone(Call),
    /// Calls on different names, each with one claim.
    Bundle(BatchKind, Vec<Call>),
}

impl Command {
    /// Writes it.
    pub(super) fn write(&self, terms: &ScriptTerms, by: ScriptBy, out: &mut impl RedisWrite) {
        match self {
            Self::Alone(call) => write(&call.request, terms, by, out),
            Self::Bundle(kind, calls) => bundle::write(*kind, calls, terms, by, out),
        }
    }

    /// The calls that it carries out.
    pub(super) fn calls(&self) -> &[Call] {
        match self {
            Self::Alone(call) => std::slice::from_ref(call),
            Self::Bundle(_, calls) => calls,
        }
    }

    /// The same, for a caller that takes them.
    pub(super) fn into_calls(self) -> Vec<Call> {
        match self {
            Self::Alone(call) => vec![call],
            Self::Bundle(_, calls) => calls,
        }
    }
}

/// Writes the command that carries out `request`.
pub(super) fn write(
    request: &Request,
    terms: &ScriptTerms,
    by: ScriptBy,
    out: &mut impl RedisWrite,
) {
    let (scripts, token) = (&*SCRIPTS, request.token.expose());
    let call = LockCall { request, terms, by };
    match &request.op {
        Op::Acquire(op) => call.write(&scripts.acquire, (grant(op), newcomer(op)), out),
        Op::AcquireSlot(op) => {
            let slot = op.slot.map(|slot| slot.to_string()).unwrap_or_default();
            let words = (grant(&op.acquire), slot, newcomer(&op.acquire));
            call.write(&scripts.acquire_slot, words, out);
        }
        Op::Extend(Extend { ballot, ttl_ms }) => {
            call.write(&scripts.extend, (ballot.get(), ttl(*ttl_ms)), out);
        }
        Op::Downgrade(Downgrade { ballot, ttl_ms }) => {
            call.write(&scripts.downgrade, (ballot.get(), ttl(*ttl_ms)), out);
        }
        Op::Release(op) => {
            let place = op.place.as_ref().map(|place| (ticket(place), TICKET_MS));
            let words = (release(op), op.keep_ms.unwrap_or(0), place);
            call.write(&scripts.release, words, out);
        }
        Op::ReleaseSlot(op) => {
            let place = op.release.place.as_ref();
            let place = place.map(|place| (TICKET_MS, ticket(place)));
            let words = (release(&op.release), which(op.slots), place);
            call.write(&scripts.release_slot, words, out);
        }
        Op::Restore(op) => {
            let words = (op.ballot.get(), ttl(op.ttl_ms), &*op.label);
            call.write(&scripts.restore, words, out);
        }
        Op::Refresh(op) => call.write_tickets(&scripts.refresh, NOTHING, &op.places, out),
        Op::RefreshSlots(op) => {
            call.write_tickets(&scripts.refresh_slots, NOTHING, &op.places, out)
        }
        Op::Arrive(op) => {
            let since = op.since_us.map(|us| us.to_string()).unwrap_or_default();
            call.write(&scripts.arrive, (ttl(op.ttl_ms), op.count, since), out);
            op.parties.iter().for_each(|party| say(out, &**party));
        }
        Op::Attend(op) => {
            let words = (ttl(op.ttl_ms), u8::from(op.list));
            call.write_tickets(&scripts.attend, words, &op.places, out);
        }
        Op::Inspect => call.write(&scripts.inspect, NOTHING, out),
        Op::PlainAcquire(op) => {
            say(out, ("SET", only_name(request), token));
            say(out, ("NX", "PX", ttl(op.ttl_ms)));
        }
        Op::PlainExtend(op) => {
            write_script(&scripts.plain_extend, by, 1, out);
            say(out, (only_name(request), token, ttl(op.ttl_ms)));
        }
        Op::PlainRelease => {
            write_script(&scripts.plain_release, by, 1, out);
            say(out, (only_name(request), token));
        }
    }
}

/// A call of a script that works on claims.
struct LockCall<'a> {
    request: &'a Request,
    terms: &'a ScriptTerms,
    by: ScriptBy,
}

impl LockCall<'_> {
    /// Writes the call of `script`, with what is said after the token.
    fn write(&self, script: &Script, words: impl ToRedisArgs, out: &mut impl RedisWrite) {
        let (request, terms, by) = (self.request, self.terms, self.by);
        let keys = 1 + 3 * request.claims.len();
        match terms.looks_only {
            false => write_script(script, by, keys, out),
            true => write_script_ro(script, by, keys, out),
        }
        let names = || request.claims.iter().map(|claim| claim.name.as_str());
        names().for_each(|name| say(out, name));
        names().for_each(|name| write_record_key(name, out));
        names().for_each(|name| write_mark_key(name, out));
        // Nothing is compared on most servers.
        let compares = terms.compare && request.op.writes_holder();
        write_terms(terms, compares, out);
        let shared = request.claims.iter().any(|c| c.mode == Mode::Shared);
        if shared {
            say(out, speaker(request));
        } else {
            say(out, request.token.expose());
        }
        say(out, words);
    }

    /// Writes the call of `script` for callers that wait.
    fn write_tickets(
        &self,
        script: &Script,
        words: impl ToRedisArgs,
        places: &[Place],
        out: &mut impl RedisWrite,
    ) {
        self.write(script, (words, TICKET_MS), out);
        places.iter().for_each(|place| say(out, ticket(place)));
    }
}

/// What a holder is given.
fn grant(op: &Acquire) -> impl ToRedisArgs {
    (op.ballot.get(), ttl(op.ttl_ms), &*op.label)
}

/// The place in line of a caller that waits.
fn newcomer(op: &Acquire) -> impl ToRedisArgs {
    let place = op.place.as_ref();
    place.map(|place| (TICKET_MS, u8::from(place.first), ticket(place)))
}

/// How something is given back.
fn release(op: &Release) -> impl ToRedisArgs {
    let last = u8::from(op.kind == ReleaseKind::Final);
    let (unknown, stays) = (u8::from(op.fate_unknown), u8::from(op.stays));
    (op.ballot.get(), last, unknown, stays)
}

/// Which slots are given back.
fn which(slots: Slots) -> impl ToRedisArgs {
    match slots {
        Slots::Only(slot) => ("only", slot),
        Slots::AllBut(slot) => ("but", slot),
        Slots::All => ("all", 0),
    }
}

/// Writes the last key and what every script on claims is told first; whether it `compares` the
/// replication id is one of these.
pub(super) fn write_terms(terms: &ScriptTerms, compares: bool, out: &mut impl RedisWrite) {
    say(out, (BORN_KEY, terms.born(compares)));
    say(out, (terms.rules.window_us, terms.rules.retention_ms));
}

/// The token, and behind a blank how each claim is made: s for shared.
fn speaker(request: &Request) -> String {
    let modes = request.claims.iter().map(|claim| match claim.mode {
        Mode::Exclusive => 'x',
        Mode::Shared => 's',
    });
    let token = request.token.expose();
    format!("{token} {}", modes.collect::<String>())
}

/// Writes the beginning of every call of `script`, up to the number of its keys.
pub(super) fn write_script(script: &Script, by: ScriptBy, keys: usize, out: &mut impl RedisWrite) {
    match by {
        ScriptBy::Hash => say(out, ("EVALSHA", &script.hash)),
        ScriptBy::Text => say(out, ("EVAL", &script.text)),
    }
    say(out, keys);
}

/// [`write_script`] for a user who may run scripts only in a way that cannot write.
fn write_script_ro(script: &Script, by: ScriptBy, keys: usize, out: &mut impl RedisWrite) {
    match by {
        ScriptBy::Hash => say(out, ("EVALSHA_RO", &script.hash)),
        ScriptBy::Text => say(out, ("EVAL_RO", &script.text)),
    }
    say(out, keys);
}

/// Writes further words.
pub(super) fn say(out: &mut impl RedisWrite, words: impl ToRedisArgs) {
    words.write_redis_args(out);
}

/// The name of an operation that has one claim.
pub(super) fn only_name(request: &Request) -> &str {
    request
        .claims
        .first()
        .map_or("", |claim| claim.name.as_str())
}

/// A place in line as a text that sorts like the place itself.
fn ticket(place: &Place) -> String {
    format!("{:020}{}", place.since_us, place.id)
}

/// A server refuses an expiry of zero; the ledger lets such a key stand for its last millisecond.
pub(super) fn ttl(ms: u64) -> u64 {
    ms.max(1)
}

/// Writes the key of the record of the lock at `key`.
pub(super) fn write_record_key(key: &str, out: &mut impl RedisWrite) {
    write_side_key(key, RECORD, out);
}

/// Writes the key of the mark that says that there may be a wait queue for the lock at `key`.
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
