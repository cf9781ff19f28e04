//! Calls that one script carries out together. A server takes about as long to begin a script as to
//! carry out what the usual acquire or release wants, so a batch makes as few scripts of them as it can.

use std::collections::HashMap;

use redis::{Cmd, RedisWrite, Value};

use crate::message::{Answer, Ballot, Mode, Op, ReleaseKind, Request, Stamp};
use crate::node::Call;

use super::command::{self, By, Terms};
use super::key::{BORN_KEY, write_mark_key, write_record_key};
use super::reply::{Fields, Misshapen};
use super::script::{SCRIPTS, Script};

/// The most calls in one bundle, so that one script does not occupy a server for long.
const BUNDLE_MAX: usize = 32;
/// What an acquire's letter is counted from. That of a release stands there.
const LETTER: u8 = b'0';

/// What one command carries out.
#[derive(Debug)]
pub(super) enum Parcel {
    /// A call of any sort.
    Alone(Call),
    /// Calls on different names, each with one claim.
    Bundle(Sort, Vec<Call>),
}

/// What a bundle is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Acquires of callers who do not stand in line, and final releases of such.
    Swift,
    /// Extends.
    Extend,
    /// Plain releases. (A plain acquire is a native command, which no script can beat.)
    PlainRelease,
}

/// What a bundle came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BundleSaid {
    /// An answer to each call, or `None` where it was not the usual one and nothing has been done.
    Answers(Vec<Option<(Answer, Option<Stamp>)>>),
    /// See [`super::reply::Said::Newborn`].
    Newborn,
}

/// Packs a batch. Two calls that share a name keep their order; calls that share none may change
/// places, which nobody can see: neither touches what the other does.
pub(super) fn pack(calls: Vec<Call>) -> Vec<Parcel> {
    let places = places(&calls);
    let mut parcels: Vec<Parcel> = Vec::with_capacity(calls.len());
    for (call, (place, sort)) in calls.into_iter().zip(places) {
        match (parcels.get_mut(place), sort) {
            (Some(Parcel::Bundle(_, others)), _) => others.push(call),
            (_, Some(sort)) => parcels.push(Parcel::Bundle(sort, vec![call])),
            (_, None) => parcels.push(Parcel::Alone(call)),
        }
    }
    for parcel in &mut parcels {
        // By itself a call is cheaper in a script that can do whatever it may turn out to need.
        if let Parcel::Bundle(_, calls) = parcel
            && calls.len() == 1
            && let Some(call) = calls.pop()
        {
            *parcel = Parcel::Alone(call);
        }
    }
    parcels
}

/// In which parcel each of `calls` goes, and of which sort it is: the first bundle with room behind
/// everything that was said of its name, else a new parcel at the end.
fn places(calls: &[Call]) -> Vec<(usize, Option<Sort>)> {
    let mut parcels = 0;
    // Where each name was last spoken of.
    let mut last: HashMap<&str, usize> = HashMap::with_capacity(calls.len());
    // The bundles with room, and how many calls they have.
    let mut open: Vec<(Sort, usize, usize)> = Vec::new();
    let place = |call| {
        let Call { request, .. }: &Call = call;
        let names = || request.claims.iter().map(|claim| claim.name.as_str());
        let after = names().filter_map(|name| last.get(name)).max().copied();
        let sort = sort(request);
        let bundle = open.iter().position(|(of, place, _)| {
            Some(*of) == sort && after.is_none_or(|after| after < *place)
        });
        let place = match bundle {
            Some(bundle) => {
                let (_, place, size) = &mut open[bundle];
                let place = *place;
                *size += 1;
                if *size == BUNDLE_MAX {
                    open.remove(bundle);
                }
                place
            }
            None => {
                open.extend(sort.map(|sort| (sort, parcels, 1)));
                parcels += 1;
                parcels - 1
            }
        };
        last.extend(names().map(|name| (name, place)));
        (place, sort)
    };
    calls.iter().map(place).collect()
}

/// In which bundles `request` may be, if it may be in any.
fn sort(request: &Request) -> Option<Sort> {
    let [claim] = &*request.claims else {
        return None;
    };
    match &request.op {
        Op::Acquire { place: None, .. } if claim.mode == Mode::Exclusive => Some(Sort::Swift),
        Op::Release {
            kind: ReleaseKind::Final,
            place: None,
            keep_ms: None | Some(0),
            ..
        } if claim.mode == Mode::Exclusive => Some(Sort::Swift),
        Op::Extend { .. } if claim.mode == Mode::Exclusive => Some(Sort::Extend),
        Op::PlainRelease => Some(Sort::PlainRelease),
        _ => None,
    }
}

impl Parcel {
    /// The command that carries it out.
    pub(super) fn command(&self, terms: &Terms, by: By) -> Cmd {
        match self {
            Self::Alone(call) => command::command(&call.request, terms, by),
            Self::Bundle(Sort::Swift, calls) => swift_command(calls, terms, by),
            Self::Bundle(Sort::Extend, calls) => extend_command(calls, terms, by),
            Self::Bundle(Sort::PlainRelease, calls) => plain_command(calls, by),
        }
    }

    /// The calls that it carries out.
    pub(super) fn calls(&self) -> &[Call] {
        match self {
            Self::Alone(call) => std::slice::from_ref(call),
            Self::Bundle(_, calls) => calls,
        }
    }

    /// The same, for whoever takes them.
    pub(super) fn into_calls(self) -> Vec<Call> {
        match self {
            Self::Alone(call) => vec![call],
            Self::Bundle(_, calls) => calls,
        }
    }
}

fn swift_command(calls: &[Call], terms: &Terms, by: By) -> Cmd {
    let names = || calls.iter().map(|call| command::only_name(&call.request));
    let script = &SCRIPTS.swift_bundle;
    // The name and twice in each of its side keys, the token and the ballot, and all around them.
    let bytes = names().map(|name| 5 * name.len() + 100).sum::<usize>() + 256;
    let mut cmd = begin(script, by, 3 * calls.len() + 1, 5 * calls.len() + 10, bytes);
    names().for_each(|name| cmd.write_arg(name.as_bytes()));
    names().for_each(|name| write_record_key(name, &mut cmd));
    names().for_each(|name| write_mark_key(name, &mut cmd));
    write_terms(&mut cmd, terms);
    // Most callers of one process want the same, so the terms are said once.
    let mut wanted = Vec::new();
    let letters: Vec<u8> = calls
        .iter()
        .map(|call| match &call.request.op {
            Op::Acquire { ttl_ms, label, .. } => {
                let terms = (command::ttl(*ttl_ms), &**label);
                let known = wanted.iter().position(|other| *other == terms);
                let which = known.unwrap_or_else(|| {
                    wanted.push(terms);
                    wanted.len() - 1
                });
                // As many terms as calls at most.
                LETTER + 1 + which as u8
            }
            _ => LETTER,
        })
        .collect();
    cmd.write_arg(&letters);
    for call in calls {
        cmd.write_arg(call.request.token.expose().as_bytes());
    }
    for call in calls {
        cmd.write_arg_fmt(ballot(&call.request));
    }
    for (ttl_ms, label) in wanted {
        cmd.write_arg_fmt(ttl_ms);
        cmd.write_arg(label.as_bytes());
    }
    cmd
}

fn extend_command(calls: &[Call], terms: &Terms, by: By) -> Cmd {
    let names = || calls.iter().map(|call| command::only_name(&call.request));
    let script = &SCRIPTS.extend_bundle;
    let bytes = names().map(|name| 3 * name.len() + 90).sum::<usize>() + 256;
    let mut cmd = begin(script, by, 2 * calls.len() + 1, 5 * calls.len() + 4, bytes);
    names().for_each(|name| cmd.write_arg(name.as_bytes()));
    names().for_each(|name| write_record_key(name, &mut cmd));
    write_terms(&mut cmd, terms);
    for call in calls {
        cmd.write_arg(call.request.token.expose().as_bytes());
    }
    for call in calls {
        cmd.write_arg_fmt(ballot(&call.request));
    }
    for call in calls {
        if let Op::Extend { ttl_ms, .. } = call.request.op {
            cmd.write_arg_fmt(command::ttl(ttl_ms));
        }
    }
    cmd
}

/// The last key and what every script on claims is told first.
fn write_terms(cmd: &mut Cmd, terms: &Terms) {
    cmd.write_arg(BORN_KEY.as_bytes());
    cmd.write_arg(terms.born.as_bytes());
    cmd.write_arg_fmt(terms.rules.window_us);
    cmd.write_arg_fmt(terms.rules.retention_ms);
}

fn plain_command(calls: &[Call], by: By) -> Cmd {
    let script = &SCRIPTS.plain_release_bundle;
    let names = || calls.iter().map(|call| command::only_name(&call.request));
    let bytes = names().map(|name| name.len() + 43).sum::<usize>() + 64;
    let mut cmd = begin(script, by, calls.len(), 2 * calls.len(), bytes);
    names().for_each(|name| cmd.write_arg(name.as_bytes()));
    for call in calls {
        cmd.write_arg(call.request.token.expose().as_bytes());
    }
    cmd
}

/// The beginning of a script's call, with room for `args` more of so many `bytes`.
fn begin(script: &Script, by: By, keys: usize, args: usize, bytes: usize) -> Cmd {
    let mut cmd = Cmd::with_capacity(args + 3, bytes);
    command::name_script(&mut cmd, script, by);
    cmd.write_arg_fmt(keys);
    cmd
}

fn ballot(request: &Request) -> Ballot {
    match &request.op {
        Op::Acquire { ballot, .. } | Op::Extend { ballot, .. } | Op::Release { ballot, .. } => {
            *ballot
        }
        _ => Ballot::default(),
    }
}

/// Reads the reply to a bundle of `sort`.
pub(super) fn read<'a>(
    sort: Sort,
    requests: impl Iterator<Item = &'a Request>,
    value: Value,
) -> Result<BundleSaid, Misshapen> {
    let Value::Array(items) = value else {
        return Err(Misshapen);
    };
    let mut fields = Fields(items.into_iter());
    let answers = match sort {
        Sort::Swift | Sort::Extend => {
            if fields.are_newborn() {
                return Ok(BundleSaid::Newborn);
            }
            let clock_us = fields.number()?;
            let answers = requests.map(|request| {
                let answer = match &request.op {
                    Op::Acquire { .. } => Answer::Granted,
                    Op::Extend { .. } => Answer::Extended,
                    _ => Answer::Released,
                };
                let stamp = |floor| Stamp {
                    clock_us,
                    floor: Ballot::new(floor),
                };
                let floor = fields.maybe_number()?;
                Ok(floor.map(|floor| (answer, Some(stamp(floor)))))
            });
            answers.collect::<Result<_, _>>()?
        }
        Sort::PlainRelease => {
            let answers = requests.map(|_| match fields.maybe_number()? {
                None => Ok(None),
                Some(1) => Ok(Some((Answer::Released, None))),
                Some(_) => Err(Misshapen),
            });
            answers.collect::<Result<_, _>>()?
        }
    };
    fields.end()?;
    Ok(BundleSaid::Answers(answers))
}

#[cfg(test)]
mod tests;
