//! A request as the command that a server understands.

use redis::{RedisWrite, ToRedisArgs};

use crate::group::Group;
use crate::ledger::{Rules, TICKET_MS};
use crate::message::{Mode, Op, Place, ReleaseKind, Request, Slots};

use super::key::{BORN_KEY, write_mark_key, write_record_key};
use super::script::{SCRIPTS, Script};

/// How a script is named to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// By its hash: short, but the server may have dropped it.
    Hash,
    /// By its text, which the server then keeps.
    Text,
}

/// What lock operations tell a node about the group and the handshake.
#[derive(Debug, Clone)]
pub(super) struct Terms {
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

impl Terms {
    /// The terms of `group`, under the birth record `born`.
    pub(super) fn new(born: &str, group: &Group) -> Self {
        Self {
            asking: format!("?{born}"),
            rules: Rules::of_group(group),
            compare: false,
            looks_only: false,
        }
    }

    /// The birth record as scripts take it that write a holder, or others.
    fn born(&self, holder: bool) -> &str {
        match holder && self.compare {
            true => &self.asking,
            false => &self.asking[1..],
        }
    }
}

/// Writes the command that carries out `request`.
pub(super) fn write(request: &Request, terms: &Terms, by: By, out: &mut impl RedisWrite) {
    let scripts = &*SCRIPTS;
    let token = request.token.expose();
    match &request.op {
        Op::Acquire {
            ballot,
            ttl_ms,
            label,
            place,
        } => {
            write_lock(request, terms, &scripts.acquire, by, out);
            say(out, (ballot.get(), ttl(*ttl_ms), &**label));
            if let Some(place) = place {
                say(out, (TICKET_MS, u8::from(place.first), ticket(place)));
            }
        }
        Op::Extend { ballot, ttl_ms } => {
            write_lock(request, terms, &scripts.extend, by, out);
            say(out, (ballot.get(), ttl(*ttl_ms)));
        }
        Op::Downgrade { ballot, ttl_ms } => {
            write_lock(request, terms, &scripts.downgrade, by, out);
            say(out, (ballot.get(), ttl(*ttl_ms)));
        }
        Op::Release {
            ballot,
            kind,
            fate_unknown,
            place,
            stays,
            keep_ms,
        } => {
            let last = u8::from(*kind == ReleaseKind::Final);
            let (unknown, stays) = (u8::from(*fate_unknown), u8::from(*stays));
            write_lock(request, terms, &scripts.release, by, out);
            say(out, (ballot.get(), last, unknown, stays));
            say(out, keep_ms.unwrap_or(0));
            if let Some(place) = place {
                say(out, (ticket(place), TICKET_MS));
            }
        }
        Op::Restore {
            ballot,
            ttl_ms,
            label,
        } => {
            write_lock(request, terms, &scripts.restore, by, out);
            say(out, (ballot.get(), ttl(*ttl_ms), &**label));
        }
        Op::Refresh { places } => {
            write_lock(request, terms, &scripts.refresh, by, out);
            say(out, TICKET_MS);
            places.iter().for_each(|place| say(out, ticket(place)));
        }
        Op::AcquireSlot {
            slot,
            ballot,
            ttl_ms,
            label,
            place,
        } => {
            let slot = slot.map(|slot| slot.to_string()).unwrap_or_default();
            write_lock(request, terms, &scripts.acquire_slot, by, out);
            say(out, (ballot.get(), ttl(*ttl_ms), &**label, slot));
            if let Some(place) = place {
                say(out, (TICKET_MS, u8::from(place.first), ticket(place)));
            }
        }
        Op::ReleaseSlot {
            slots,
            ballot,
            kind,
            fate_unknown,
            place,
            stays,
        } => {
            let last = u8::from(*kind == ReleaseKind::Final);
            let (unknown, stays) = (u8::from(*fate_unknown), u8::from(*stays));
            let which = match slots {
                Slots::Only(slot) => ("only", *slot),
                Slots::AllBut(slot) => ("but", *slot),
                Slots::All => ("all", 0),
            };
            write_lock(request, terms, &scripts.release_slot, by, out);
            say(out, (ballot.get(), last, unknown, stays, which));
            if let Some(place) = place {
                say(out, (TICKET_MS, ticket(place)));
            }
        }
        Op::RefreshSlots { places } => {
            write_lock(request, terms, &scripts.refresh_slots, by, out);
            say(out, TICKET_MS);
            places.iter().for_each(|place| say(out, ticket(place)));
        }
        Op::Arrive {
            parties,
            since_us,
            count,
            ttl_ms,
        } => {
            let since = since_us.map(|us| us.to_string()).unwrap_or_default();
            write_lock(request, terms, &scripts.arrive, by, out);
            say(out, (ttl(*ttl_ms), *count, since));
            parties.iter().for_each(|party| say(out, &**party));
        }
        Op::Attend {
            places,
            list,
            ttl_ms,
        } => {
            write_lock(request, terms, &scripts.attend, by, out);
            say(out, (ttl(*ttl_ms), u8::from(*list), TICKET_MS));
            places.iter().for_each(|place| say(out, ticket(place)));
        }
        Op::Inspect => write_lock(request, terms, &scripts.inspect, by, out),
        Op::PlainAcquire { ttl_ms } => {
            say(out, ("SET", only_name(request), token));
            say(out, ("NX", "PX", ttl(*ttl_ms)));
        }
        Op::PlainExtend { ttl_ms } => {
            write_script(&scripts.plain_extend, by, 1, out);
            say(out, (only_name(request), token, ttl(*ttl_ms)));
        }
        Op::PlainRelease => {
            write_script(&scripts.plain_release, by, 1, out);
            say(out, (only_name(request), token));
        }
    }
}

/// Writes an operation on claims, up to and including the token.
fn write_lock(
    request: &Request,
    terms: &Terms,
    script: &Script,
    by: By,
    out: &mut impl RedisWrite,
) {
    let keys = 1 + 3 * request.claims.len();
    match terms.looks_only {
        false => write_script(script, by, keys, out),
        true => write_script_ro(script, by, keys, out),
    }
    let names = || request.claims.iter().map(|claim| claim.name.as_str());
    names().for_each(|name| say(out, name));
    names().for_each(|name| write_record_key(name, out));
    names().for_each(|name| write_mark_key(name, out));
    write_terms(terms, writes_holder(&request.op), out);
    let shared = request.claims.iter().any(|c| c.mode == Mode::Shared);
    if shared {
        say(out, speaker(request));
    } else {
        say(out, request.token.expose());
    }
}

/// Whether somebody counts on what `op` writes: what a server that lost it must not confirm.
fn writes_holder(op: &Op) -> bool {
    match op {
        Op::Acquire { .. }
        | Op::AcquireSlot { .. }
        | Op::Extend { .. }
        | Op::Downgrade { .. }
        | Op::Restore { .. }
        | Op::Arrive { .. }
        | Op::Attend { .. } => true,
        Op::Release { .. }
        | Op::ReleaseSlot { .. }
        | Op::Refresh { .. }
        | Op::RefreshSlots { .. }
        | Op::Inspect
        | Op::PlainAcquire { .. }
        | Op::PlainExtend { .. }
        | Op::PlainRelease => false,
    }
}

/// Writes the last key and what every script on claims is told first; `holder`: the script may write
/// one.
pub(super) fn write_terms(terms: &Terms, holder: bool, out: &mut impl RedisWrite) {
    say(out, (BORN_KEY, terms.born(holder)));
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
pub(super) fn write_script(script: &Script, by: By, keys: usize, out: &mut impl RedisWrite) {
    match by {
        By::Hash => say(out, ("EVALSHA", &script.hash)),
        By::Text => say(out, ("EVAL", &script.text)),
    }
    say(out, keys);
}

/// [`write_script`] for a user who may run scripts only in a way that cannot write.
fn write_script_ro(script: &Script, by: By, keys: usize, out: &mut impl RedisWrite) {
    match by {
        By::Hash => say(out, ("EVALSHA_RO", &script.hash)),
        By::Text => say(out, ("EVAL_RO", &script.text)),
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
