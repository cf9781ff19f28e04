//! Bundles: calls that one script carries out together. A server takes about as long to start a
//! script as to carry out a usual acquire or release, so a batch uses as few scripts as it can.

use redis::{RedisWrite, Value};
use rustc_hash::FxHashMap;

use crate::ledger::{Moment, Rules};
use crate::message::{
    Acquire, Answer, Ballot, Extend, Mode, Op, Release, ReleaseKind, ReplyStamp, Request,
};
use crate::node::Call;

use super::reply::{Fields, MalformedReply};
use super::{Checks, Command, ScriptForm, ScriptTerms};
use super::{only_name, ttl, write_args, write_mark_key, write_record_key, write_script};
use crate::node::redis::scripts::SCRIPTS;

/// The most calls in one bundle, so that one script does not occupy a server for long.
pub(crate) const BUNDLE_MAX: usize = 32;
/// The letter of a release. Those of acquires count up from it.
const LETTER: u8 = b'0';
/// The letter of a release that closes its ballot.
const CLOSING: u8 = LETTER - 1;

/// The kind of the calls in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Acquires without a ticket, and final releases without one.
    Fast,
    /// Extends.
    Extend,
    /// Plain releases. (A plain acquire is a native command, which is faster than any script.)
    PlainRelease,
}

/// The reply to a bundle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BundleReply {
    /// The answer to each call, or `None` if the script skipped it.
    Answers(Vec<Option<(Answer, Option<ReplyStamp>)>>),
    /// See [`super::reply::ScriptReply::Newborn`].
    Newborn,
}

/// Packs a batch. Two calls that share a name keep their order. Calls that share no name may be
/// reordered: neither affects the other.
pub(crate) fn pack(calls: Vec<Call>) -> Vec<Command> {
    let tickets = assign_commands(&calls);
    let mut commands: Vec<Command> = Vec::with_capacity(calls.len());
    for (call, (ticket, kind)) in calls.into_iter().zip(tickets) {
        match (commands.get_mut(ticket), kind) {
            (Some(Command::Bundle(_, others)), _) => others.push(call),
            (_, Some(kind)) => commands.push(Command::Bundle(kind, vec![call])),
            (_, None) => commands.push(Command::Single(call)),
        }
    }
    for command in &mut commands {
        // A single call is cheaper in its own script, which also handles the unusual cases.
        if let Command::Bundle(_, calls) = command
            && calls.len() == 1
            && let Some(call) = calls.pop()
        {
            *command = Command::Single(call);
        }
    }
    commands
}

/// The number of the command for each of `calls`, and its kind: the first bundle with room that is
/// not before an earlier call on the same name, else a new command at the end.
fn assign_commands(calls: &[Call]) -> Vec<(usize, Option<BatchKind>)> {
    let mut commands = 0;
    // The command of the last call on each name.
    let mut last: FxHashMap<&str, usize> = FxHashMap::default();
    last.reserve(calls.len());
    // The bundles with room, and how many calls they have.
    let mut open: Vec<(BatchKind, usize, usize)> = Vec::new();
    let ticket = |call| {
        let Call { request, .. }: &Call = call;
        let names = || request.claims.iter().map(|claim| claim.name.as_str());
        let after = names().filter_map(|name| last.get(name)).max().copied();
        let kind = kind(request);
        let bundle = open.iter().position(|(of, ticket, _)| {
            Some(*of) == kind && after.is_none_or(|after| after < *ticket)
        });
        let ticket = match bundle {
            Some(bundle) => {
                let (_, ticket, size) = &mut open[bundle];
                let ticket = *ticket;
                *size += 1;
                if *size == BUNDLE_MAX {
                    open.remove(bundle);
                }
                ticket
            }
            None => {
                open.extend(kind.map(|kind| (kind, commands, 1)));
                commands += 1;
                commands - 1
            }
        };
        last.extend(names().map(|name| (name, ticket)));
        (ticket, kind)
    };
    calls.iter().map(ticket).collect()
}

/// The kind of bundle that `request` may be in, if any.
fn kind(request: &Request) -> Option<BatchKind> {
    let [claim] = &*request.claims else {
        return None;
    };
    match &request.op {
        Op::Acquire(Acquire { ticket: None, .. }) if claim.mode == Mode::Exclusive => {
            Some(BatchKind::Fast)
        }
        Op::Release(Release {
            kind: ReleaseKind::Final,
            ticket: None,
            keep_ms: None | Some(0),
            delay_ms: 0,
            ..
        }) if claim.mode == Mode::Exclusive => Some(BatchKind::Fast),
        Op::Extend(Extend { delay_ms: 0, .. }) if claim.mode == Mode::Exclusive => {
            Some(BatchKind::Extend)
        }
        Op::PlainRelease => Some(BatchKind::PlainRelease),
        _ => None,
    }
}

/// Writes the script call that carries out a bundle of `kind`.
pub(crate) fn write(
    kind: BatchKind,
    calls: &[Call],
    terms: &ScriptTerms,
    by: ScriptForm,
    out: &mut impl RedisWrite,
) {
    match kind {
        BatchKind::Fast => write_fast(calls, terms, by, out),
        BatchKind::Extend => write_extend(calls, terms, by, out),
        BatchKind::PlainRelease => write_plain(calls, by, out),
    }
}

fn write_fast(calls: &[Call], terms: &ScriptTerms, by: ScriptForm, out: &mut impl RedisWrite) {
    write_script(&SCRIPTS.fast_bundle, by, 3 * calls.len() + 1, out);
    names(calls).for_each(|name| write_args(out, name));
    names(calls).for_each(|name| write_record_key(name, out));
    names(calls).for_each(|name| write_mark_key(name, out));
    let checks = calls.iter().map(|call| terms.checks(&call.request.op));
    let checks = checks.fold(Checks::default(), Checks::and);
    terms.write(checks, out);
    // Most callers of one process have the same terms, so these are sent once.
    let mut wanted = Vec::new();
    let letters: Vec<u8> = calls
        .iter()
        .map(|call| match &call.request.op {
            Op::Acquire(Acquire { ttl_ms, label, .. }) => {
                let terms = (ttl(*ttl_ms), &**label);
                let known = wanted.iter().position(|other| *other == terms);
                let which = known.unwrap_or_else(|| {
                    wanted.push(terms);
                    wanted.len() - 1
                });
                // There are at most as many terms as calls.
                LETTER + 1 + which as u8
            }
            Op::Release(Release {
                fate_unknown: true, ..
            }) => CLOSING,
            _ => LETTER,
        })
        .collect();
    out.write_arg(&letters);
    tokens(calls).for_each(|token| write_args(out, token));
    ballots(calls).for_each(|ballot| write_args(out, ballot));
    wanted.into_iter().for_each(|terms| write_args(out, terms));
}

fn write_extend(calls: &[Call], terms: &ScriptTerms, by: ScriptForm, out: &mut impl RedisWrite) {
    write_script(&SCRIPTS.extend_bundle, by, 2 * calls.len() + 1, out);
    names(calls).for_each(|name| write_args(out, name));
    names(calls).for_each(|name| write_record_key(name, out));
    let checks = calls.first().map(|call| terms.checks(&call.request.op));
    terms.write(checks.unwrap_or_default(), out);
    tokens(calls).for_each(|token| write_args(out, token));
    ballots(calls).for_each(|ballot| write_args(out, ballot));
    for call in calls {
        if let Op::Extend(Extend { ttl_ms, .. }) = call.request.op {
            write_args(out, ttl(ttl_ms));
        }
    }
}

fn write_plain(calls: &[Call], by: ScriptForm, out: &mut impl RedisWrite) {
    write_script(&SCRIPTS.plain_release_bundle, by, calls.len(), out);
    names(calls).for_each(|name| write_args(out, name));
    tokens(calls).for_each(|token| write_args(out, token));
}

fn names(calls: &[Call]) -> impl Iterator<Item = &str> {
    calls.iter().map(|call| only_name(&call.request))
}

fn tokens(calls: &[Call]) -> impl Iterator<Item = &str> {
    calls.iter().map(|call| call.request.token.expose())
}

fn ballots(calls: &[Call]) -> impl Iterator<Item = u64> {
    calls.iter().map(|call| ballot(&call.request).get())
}

fn ballot(request: &Request) -> Ballot {
    match &request.op {
        Op::Acquire(Acquire { ballot, .. })
        | Op::Extend(Extend { ballot, .. })
        | Op::Release(Release { ballot, .. }) => *ballot,
        _ => Ballot::default(),
    }
}

/// Reads the reply to a bundle of `kind`. The nodes use the window of `rules`.
pub(crate) fn read<'a>(
    kind: BatchKind,
    requests: impl Iterator<Item = &'a Request>,
    value: Value,
    rules: &Rules,
) -> Result<BundleReply, MalformedReply> {
    let Value::Array(items) = value else {
        return Err(MalformedReply);
    };
    let mut fields = Fields(items.into_iter());
    if kind != BatchKind::PlainRelease && fields.are_newborn() {
        return Ok(BundleReply::Newborn);
    }
    let answers: Vec<Option<(Answer, Option<ReplyStamp>)>> = match kind {
        BatchKind::Fast => {
            let clock_us = fields.number()?;
            let mut skipped = fields.maybe_last_number()?;
            let answers = (1..).zip(requests).map(|(position, request)| {
                if skipped == Some(position) {
                    skipped = fields.maybe_last_number()?;
                    return Ok(None);
                }
                Ok(Some(usual(request, clock_us, rules)))
            });
            let answers = answers.collect::<Result<_, _>>()?;
            if skipped.is_some() {
                return Err(MalformedReply);
            }
            answers
        }
        BatchKind::Extend => {
            let clock_us = fields.number()?;
            let answers = requests.map(|_| {
                let floor = fields.maybe_number()?.map(Ballot::new);
                let stamp = floor.map(|floor| ReplyStamp { clock_us, floor });
                Ok(stamp.map(|stamp| (Answer::Extended, Some(stamp))))
            });
            answers.collect::<Result<_, _>>()?
        }
        BatchKind::PlainRelease => {
            let answers = requests.map(|_| match fields.maybe_number()? {
                None => Ok(None),
                Some(1) => Ok(Some((Answer::Released, None))),
                Some(_) => Err(MalformedReply),
            });
            answers.collect::<Result<_, _>>()?
        }
    };
    fields.end()?;
    Ok(BundleReply::Answers(answers))
}

/// The answer to a usual acquire or release. Its ballot is the highest that the node has accepted.
fn usual(request: &Request, clock_us: u64, rules: &Rules) -> (Answer, Option<ReplyStamp>) {
    let answer = match &request.op {
        Op::Acquire { .. } => Answer::Granted,
        _ => Answer::Released,
    };
    let floor = ballot(request).max(Moment::of_clock(clock_us).ground(rules));
    (answer, Some(ReplyStamp { clock_us, floor }))
}

#[cfg(test)]
mod tests;
