//! A request as the command that a server understands.

use redis::{Cmd, ToRedisArgs};

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
    /// The birth record as this connection saw it. A node where another stands does nothing.
    pub(super) born: String,
    /// The constants that the ledger needs.
    pub(super) rules: Rules,
}

impl Terms {
    /// The terms of `group`, under the birth record `born`.
    pub(super) fn new(born: String, group: &Group) -> Self {
        Self {
            born,
            rules: Rules::of_group(group),
        }
    }
}

/// The command that carries out `request`.
pub(super) fn command(request: &Request, terms: &Terms, by: By) -> Cmd {
    let scripts = &*SCRIPTS;
    let token = request.token.expose();
    let lock = |script| lock_command(request, terms, script, by);
    match &request.op {
        Op::Acquire {
            ballot,
            ttl_ms,
            label,
            place,
        } => {
            let mut cmd = with(
                lock(&scripts.acquire),
                (ballot.get(), ttl(*ttl_ms), &**label),
            );
            if let Some(place) = place {
                cmd.arg((TICKET_MS, u8::from(place.first), ticket(place)));
            }
            cmd
        }
        Op::Extend { ballot, ttl_ms } => with(lock(&scripts.extend), (ballot.get(), ttl(*ttl_ms))),
        Op::Downgrade { ballot, ttl_ms } => {
            with(lock(&scripts.downgrade), (ballot.get(), ttl(*ttl_ms)))
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
            let ticket = place.as_ref().map(ticket);
            with(
                lock(&scripts.release),
                (
                    ballot.get(),
                    last,
                    unknown,
                    stays,
                    keep_ms.unwrap_or(0),
                    ticket,
                ),
            )
        }
        Op::Restore {
            ballot,
            ttl_ms,
            label,
        } => with(
            lock(&scripts.restore),
            (ballot.get(), ttl(*ttl_ms), &**label),
        ),
        Op::Refresh { places } => {
            let tickets: Vec<String> = places.iter().map(ticket).collect();
            with(lock(&scripts.refresh), (TICKET_MS, tickets))
        }
        Op::AcquireSlot {
            slot,
            ballot,
            ttl_ms,
            label,
            place,
        } => {
            let slot = slot.map(|slot| slot.to_string()).unwrap_or_default();
            let mut cmd = with(
                lock(&scripts.acquire_slot),
                (ballot.get(), ttl(*ttl_ms), &**label, slot),
            );
            if let Some(place) = place {
                cmd.arg((TICKET_MS, u8::from(place.first), ticket(place)));
            }
            cmd
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
            let mut cmd = with(
                lock(&scripts.release_slot),
                (ballot.get(), last, unknown, stays, which),
            );
            if let Some(place) = place {
                cmd.arg((TICKET_MS, ticket(place)));
            }
            cmd
        }
        Op::RefreshSlots { places } => {
            let tickets: Vec<String> = places.iter().map(ticket).collect();
            with(lock(&scripts.refresh_slots), (TICKET_MS, tickets))
        }
        Op::Arrive {
            parties,
            since_us,
            count,
            ttl_ms,
        } => {
            let since = since_us.map(|us| us.to_string()).unwrap_or_default();
            let parties: Vec<&str> = parties.iter().map(|party| &**party).collect();
            with(
                lock(&scripts.arrive),
                (ttl(*ttl_ms), *count, since, parties),
            )
        }
        Op::Attend {
            places,
            list,
            ttl_ms,
        } => {
            let tickets: Vec<String> = places.iter().map(ticket).collect();
            with(
                lock(&scripts.attend),
                (ttl(*ttl_ms), u8::from(*list), TICKET_MS, tickets),
            )
        }
        Op::Inspect => lock(&scripts.inspect),
        Op::PlainAcquire { ttl_ms } => {
            let name = only_name(request);
            let mut cmd = Cmd::with_capacity(6, name.len() + token.len() + 32);
            cmd.arg("SET")
                .arg(name)
                .arg(token)
                .arg("NX")
                .arg("PX")
                .arg(ttl(*ttl_ms));
            cmd
        }
        Op::PlainExtend { ttl_ms } => with(
            call(&scripts.plain_extend, by, 1),
            (only_name(request), token, ttl(*ttl_ms)),
        ),
        Op::PlainRelease => with(
            call(&scripts.plain_release, by, 1),
            (only_name(request), token),
        ),
    }
}

/// An operation on claims, up to and including the token.
fn lock_command(request: &Request, terms: &Terms, script: &Script, by: By) -> Cmd {
    let mut cmd = call(script, by, 1 + 3 * request.claims.len());
    for claim in request.claims.iter() {
        cmd.arg(claim.name.as_str());
    }
    for claim in request.claims.iter() {
        write_record_key(claim.name.as_str(), &mut cmd);
    }
    for claim in request.claims.iter() {
        write_mark_key(claim.name.as_str(), &mut cmd);
    }
    cmd.arg(BORN_KEY)
        .arg(&terms.born)
        .arg(terms.rules.window_us)
        .arg(terms.rules.retention_ms);
    let shared = request.claims.iter().any(|c| c.mode == Mode::Shared);
    if shared {
        cmd.arg(speaker(request));
    } else {
        cmd.arg(request.token.expose());
    }
    cmd
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

fn call(script: &Script, by: By, keys: usize) -> Cmd {
    // With room for what most calls say, or it would be moved again and again while it grows.
    let mut cmd = Cmd::with_capacity(keys + 12, 640);
    name_script(&mut cmd, script, by);
    cmd.arg(keys);
    cmd
}

/// The beginning of every call of `script`.
pub(super) fn name_script(cmd: &mut Cmd, script: &Script, by: By) {
    match by {
        By::Hash => cmd.arg("EVALSHA").arg(&script.hash),
        By::Text => cmd.arg("EVAL").arg(script.text),
    };
}

fn with(mut cmd: Cmd, args: impl ToRedisArgs) -> Cmd {
    cmd.arg(args);
    cmd
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
