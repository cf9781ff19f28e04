//! An operation as the words of a Redis command, and the reply as an answer (`reply.rs`). Several
//! calls can be one command (`bundle.rs`).
//!
//! # Keys
//! Every side key is `ringfence:{tag}:purpose:NAME`. The tag is the hash tag of the name, or the
//! whole name, so that all keys of a name have one hash tag. It contains no `}`, the purpose
//! contains no `:`, and the name comes last: no two names or purposes share a key.

pub(super) mod bundle;
pub(super) mod reply;

use std::io::Write;

use redis::{RedisWrite, ToRedisArgs};

use crate::ledger::{Rules, TICKET_MS};
use crate::message::{
    Acquire, AcquireSlot, BREAKS_SHOWN, Break, Downgrade, List, Mode, Op, PARTIES_SHOWN,
    READERS_SHOWN, Release, ReleaseKind, ReleaseSlot, Request, Slots, TICKETS_SHOWN, Ticket,
};
use crate::name::{Name, side_key_tag};
use crate::node::Call;

use self::bundle::BatchKind;
use super::scripts::{BORN_KEY, PURPOSES, QUEUE, RECORD, SCRIPTS, Script};
use super::wire::Words;

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

/// A command under the terms of a session, ready to be written.
pub(super) struct CommandWords<'a> {
    pub(super) command: &'a Command,
    pub(super) terms: &'a ScriptTerms,
    pub(super) by: ScriptForm,
}

impl Words for CommandWords<'_> {
    fn write(&self, out: &mut impl RedisWrite) {
        match self.command {
            Command::Single(call) => write(&call.request, self.terms, self.by, out),
            Command::Bundle(kind, calls) => bundle::write(*kind, calls, self.terms, self.by, out),
        }
    }

    fn calls(&self) -> usize {
        self.command.calls().len()
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
fn write_script(script: &Script, by: ScriptForm, keys: usize, out: &mut impl RedisWrite) {
    match by {
        ScriptForm::Hash => write_args(out, ("EVALSHA", &script.hash)),
        ScriptForm::Text => write_args(out, ("EVAL", &script.text)),
    }
    write_args(out, keys);
}

/// [`write_script`] for a user who may run only scripts that read.
fn write_script_ro(script: &Script, by: ScriptForm, keys: usize, out: &mut impl RedisWrite) {
    match by {
        ScriptForm::Hash => write_args(out, ("EVALSHA_RO", &script.hash)),
        ScriptForm::Text => write_args(out, ("EVAL_RO", &script.text)),
    }
    write_args(out, keys);
}

/// Writes further arguments.
fn write_args(out: &mut impl RedisWrite, words: impl ToRedisArgs) {
    words.write_redis_args(out);
}

/// The name of an operation that has one claim.
fn only_name(request: &Request) -> &str {
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
fn ttl(ms: u64) -> u64 {
    ms.max(1)
}

/// Writes the key of the record of the lock at `key`.
fn write_record_key(key: &str, out: &mut impl RedisWrite) {
    write_side_key(key, RECORD, out);
}

/// Writes the key of the mark of the wait queue of the lock at `key`.
fn write_mark_key(key: &str, out: &mut impl RedisWrite) {
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

/// What every script on claims is told of the group and the handshake.
#[derive(Debug, Clone)]
pub(super) struct ScriptTerms {
    /// The birth record as this connection saw it. A node with another birth record does nothing.
    born: String,
    /// The constants of the ledger.
    pub(super) rules: Rules,
    /// Whether scripts that write a holder compare the replication id, too.
    pub(super) compare: bool,
    /// Whether the quarantine of the only node of the group is over, on the node's clock.
    pub(super) quarantine_over: bool,
    /// Whether our user may only read: then scripts are run with `EVALSHA_RO`.
    pub(super) looks_only: bool,
    /// Whether our user may run only scripts that are loaded.
    pub(super) by_hash_only: bool,
    /// Whether our user may not run `INFO`: then no script does.
    pub(super) unseen: bool,
}

impl ScriptTerms {
    /// The terms under the birth record `born`, whose incarnation has these `rules`.
    pub(super) fn new(born: &str, rules: Rules) -> Self {
        Self {
            born: born.to_owned(),
            rules,
            compare: false,
            quarantine_over: rules.grants_from_us == 0,
            looks_only: false,
            by_hash_only: false,
            unseen: false,
        }
    }

    /// What a script checks beside the birth record, for an operation `op`.
    fn checks(&self, op: &Op) -> Checks {
        let may_refuse = matches!(op, Op::Acquire(_) | Op::AcquireSlot(_) | Op::Restore(_));
        let grants_from_us = self.rules.grants_from_us;
        Checks {
            unseen: self.unseen,
            compares: self.compare && op.writes_holder(),
            grants_from_us: (may_refuse && !self.quarantine_over).then_some(grants_from_us),
            not_after_us: match op {
                Op::Acquire(op) | Op::AcquireSlot(AcquireSlot { acquire: op, .. }) => {
                    op.not_after_us
                }
                _ => None,
            },
        }
    }

    /// Writes the last key and the first arguments of every script on claims.
    fn write(&self, checks: Checks, out: &mut impl RedisWrite) {
        write_args(out, BORN_KEY);
        checks.write(&self.born, out);
        write_args(out, (self.rules.window_us, self.rules.retention_ms));
    }
}

/// What a script checks beside the birth record. Most servers have no failover behind them, and
/// check nothing.
#[derive(Debug, Clone, Copy, Default)]
struct Checks {
    /// Our user may not run `INFO`.
    unseen: bool,
    /// Compare the replication id.
    compares: bool,
    /// The node grants nothing before this time.
    grants_from_us: Option<u64>,
    /// The latest time at which an acquire may be executed.
    not_after_us: Option<u64>,
}

impl Checks {
    /// All checks of both.
    fn and(self, other: Self) -> Self {
        let earlier = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            unseen: self.unseen || other.unseen,
            compares: self.compares || other.compares,
            grants_from_us: self.grants_from_us.or(other.grants_from_us),
            not_after_us: earlier(self.not_after_us, other.not_after_us),
        }
    }

    fn write(self, born: &str, out: &mut impl RedisWrite) {
        if !self.compares && self.grants_from_us.is_none() && self.not_after_us.is_none() {
            return write_args(out, born);
        }
        let text = |time: Option<u64>| time.map(|us| us.to_string()).unwrap_or_default();
        let (from, latest) = (text(self.grants_from_us), text(self.not_after_us));
        let sign = if self.unseen { '!' } else { '?' };
        write_args(out, format!("{sign}{from}:{latest} {born}"));
    }
}

/// The pieces of the key for `purpose` of the lock at `key`. `tag` is the key's [`side_key_tag`].
fn side_key_parts<'a>(tag: &'a str, purpose: &'a str, key: &'a str) -> [&'a str; 6] {
    [SIDE_KEYS, tag, "}:", purpose, ":", key]
}

/// The key of the record of the lock at `key`.
pub(super) fn record_key(key: &str) -> String {
    side_key(key, RECORD)
}

/// Every side key of the lock at `key`: record, wait queue and readers.
pub(super) fn side_keys(key: &str) -> impl Iterator<Item = String> {
    PURPOSES
        .into_iter()
        .map(move |purpose| side_key(key, purpose))
}

fn side_key(key: &str, purpose: &str) -> String {
    side_key_parts(&side_key_tag(key), purpose, key).concat()
}

/// The beginning of every side key.
pub(super) const SIDE_KEYS: &str = "ringfence:{";

/// The name of the lock, slot or latch that is held or queued for by a write of `key`. `None` if it
/// says nothing of that, or another program uses the key.
pub(super) fn changed_name(key: &str) -> Option<Name> {
    let (_, rest) = key.strip_prefix(SIDE_KEYS)?.split_once("}:")?;
    let (purpose, name) = rest.split_once(':')?;
    match purpose {
        RECORD | QUEUE => Name::of_key(name),
        "slot" | "latch" => Name::of_key(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Cmd;

    use super::*;
    use crate::name::hash_tag;
    use crate::node::redis::scripts::{BROKEN, QUEUE_LEASES, QUEUE_ORDER, READER_LEASES};

    /// Keys with every kind of brace, and with our own words and separators.
    const ODD_KEYS: &str = "([{}:ab]|}:record:|}:queue:|slot:1:|ringfence:){1,8}";

    fn mark_key(key: &str) -> String {
        side_key(key, QUEUE)
    }

    #[test]
    fn an_operator_can_read_the_keys() {
        assert_eq!(record_key("x"), "ringfence:{x}:record:x");
        assert_eq!(record_key("{x}"), "ringfence:{x}:record:{x}");
        assert_eq!(record_key("a{b}c"), "ringfence:{b}:record:a{b}c");
        assert_eq!(record_key("{}"), "ringfence:{{}:record:{}");
        assert_eq!(record_key("{"), "ringfence:{{}:record:{");
        assert_eq!(record_key("a}b"), "ringfence:{ab}:record:a}b");
        assert_eq!(record_key("}"), "ringfence:{-}:record:}");
        assert_eq!(mark_key("a{b}c"), "ringfence:{b}:queue:a{b}c");
        assert_eq!(side_key("x", QUEUE_ORDER), "ringfence:{x}:queue-order:x");
        assert_eq!(side_key("x", READER_LEASES), "ringfence:{x}:readers:x");
    }

    #[test]
    fn a_key_is_written_to_a_command_unchanged() {
        for key in ["x", "{x}", "a{b}c", "{}", "{", "}", "a}b"] {
            let mut cmd = Cmd::new();
            write_record_key(key, &mut cmd);
            write_mark_key(key, &mut cmd);
            let mut expected = Cmd::new();
            expected.arg(record_key(key)).arg(mark_key(key));
            assert_eq!(cmd.get_packed_command(), expected.get_packed_command());
        }
    }

    #[test]
    fn a_write_tells_which_name_has_changed() {
        let name = Name::new("", "a{b}c").unwrap();
        for part in [name.clone(), name.slot(3), name.admission(), name.latch()] {
            for purpose in [RECORD, QUEUE] {
                let key = side_key(part.as_str(), purpose);
                assert_eq!(changed_name(&key).as_ref(), Some(&part), "{key}");
            }
            for purpose in [QUEUE_ORDER, QUEUE_LEASES, READER_LEASES, BROKEN] {
                assert_eq!(changed_name(&side_key(part.as_str(), purpose)), None);
            }
        }
        for part in [name.slot(3), name.latch()] {
            assert_eq!(changed_name(part.as_str()).as_ref(), Some(&part));
        }
        for other in [
            "",
            "ringfence:born",
            "ringfence:{x",
            "ringfence:{x}",
            "ringfence:{x}:y",
        ] {
            assert_eq!(changed_name(other), None, "{other}");
        }
    }

    proptest! {
        /// The server names any key that begins as ours do.
        #[test]
        fn a_key_of_another_program_is_no_problem(key in "ringfence:\\{[{}:a]{0,6}|\\PC{0,20}") {
            changed_name(&key);
        }

        /// A server hashes only the tag. A name with a tag, or without `}`, hashes to the same
        /// slot.
        #[test]
        fn all_side_keys_of_a_name_have_its_hash_tag(key in "[{}:ab]{1,12}|\\PC{1,20}") {
            for side_key in side_keys(&key) {
                prop_assert_eq!(hash_tag(&side_key), Some(&*side_key_tag(&key)));
            }
            if let Some(tag) = hash_tag(&key) {
                prop_assert_eq!(side_key_tag(&key), tag);
            } else if !key.contains('}') {
                prop_assert_eq!(side_key_tag(&key), key.as_str());
            }
        }

        /// As `line.lua` and `fast_line.lua` do it.
        #[test]
        fn the_scripts_find_the_purpose_behind_the_first_brace(key in ODD_KEYS) {
            for purpose in PURPOSES {
                let from_mark = mark_key(&key).replacen("}:queue", &format!("}}:{purpose}"), 1);
                prop_assert_eq!(from_mark, side_key(&key, purpose));
            }
        }

        #[test]
        fn no_two_names_or_purposes_share_a_key(a in ODD_KEYS, b in ODD_KEYS) {
            for (i, one) in all_keys(&a).into_iter().enumerate() {
                for (j, other) in all_keys(&b).iter().enumerate() {
                    prop_assert_eq!(one == *other, i == j && a == b, "{} {}", one, other);
                }
            }
        }
    }

    /// The keys of the lock, the semaphore and the latch of one name.
    fn all_keys(name: &str) -> Vec<String> {
        let mut keys = vec![name.to_owned()];
        keys.extend(side_keys(name));
        if let Ok(name) = Name::new("", name) {
            for part in [name.admission(), name.slot(0), name.slot(1), name.latch()] {
                keys.push(part.as_str().to_owned());
                keys.extend(side_keys(part.as_str()));
            }
        }
        keys
    }
}
