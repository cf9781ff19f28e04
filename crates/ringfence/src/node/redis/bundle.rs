//! Calls that one script carries out together. A server takes about as long to begin a script as to
//! carry out what the usual acquire or release wants, so a batch makes as few scripts of them as it can.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use redis::{RedisWrite, Value};

use crate::message::{
    Acquire, Answer, Ballot, Extend, Mode, Op, Release, ReleaseKind, Request, Stamp,
};
use crate::node::Call;

use super::command::{self, By, Terms, say};
use super::key::{write_mark_key, write_record_key};
use super::reply::{Fields, Misshapen};
use super::script::SCRIPTS;

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
    let mut last: HashMap<&str, usize, BuildHasherDefault<Quick>> = HashMap::default();
    last.reserve(calls.len());
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

/// Tells the names of one batch apart. Whoever makes names that collide here has a few hundred of them
/// compared, which is why it may be simple.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u64(&mut self, word: u64) {
        // The fraction of the golden ratio, which is odd and has no pattern.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // A map takes the lowest bits for the place, where a product is weakest.
        self.0.rotate_left(26)
    }
}

/// In which bundles `request` may be, if it may be in any.
fn sort(request: &Request) -> Option<Sort> {
    let [claim] = &*request.claims else {
        return None;
    };
    match &request.op {
        Op::Acquire(Acquire { place: None, .. }) if claim.mode == Mode::Exclusive => {
            Some(Sort::Swift)
        }
        Op::Release(Release {
            kind: ReleaseKind::Final,
            place: None,
            keep_ms: None | Some(0),
            ..
        }) if claim.mode == Mode::Exclusive => Some(Sort::Swift),
        Op::Extend { .. } if claim.mode == Mode::Exclusive => Some(Sort::Extend),
        Op::PlainRelease => Some(Sort::PlainRelease),
        _ => None,
    }
}

impl Parcel {
    /// Writes the command that carries it out.
    pub(super) fn write(&self, terms: &Terms, by: By, out: &mut impl RedisWrite) {
        match self {
            Self::Alone(call) => command::write(&call.request, terms, by, out),
            Self::Bundle(Sort::Swift, calls) => write_swift(calls, terms, by, out),
            Self::Bundle(Sort::Extend, calls) => write_extend(calls, terms, by, out),
            Self::Bundle(Sort::PlainRelease, calls) => write_plain(calls, by, out),
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

fn write_swift(calls: &[Call], terms: &Terms, by: By, out: &mut impl RedisWrite) {
    command::write_script(&SCRIPTS.swift_bundle, by, 3 * calls.len() + 1, out);
    names(calls).for_each(|name| say(out, name));
    names(calls).for_each(|name| write_record_key(name, out));
    names(calls).for_each(|name| write_mark_key(name, out));
    let acquires = |call: &Call| matches!(call.request.op, Op::Acquire { .. });
    command::write_terms(terms, calls.iter().any(acquires), out);
    // Most callers of one process want the same, so the terms are said once.
    let mut wanted = Vec::new();
    let letters: Vec<u8> = calls
        .iter()
        .map(|call| match &call.request.op {
            Op::Acquire(Acquire { ttl_ms, label, .. }) => {
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
    out.write_arg(&letters);
    tokens(calls).for_each(|token| say(out, token));
    ballots(calls).for_each(|ballot| say(out, ballot));
    wanted.into_iter().for_each(|terms| say(out, terms));
}

fn write_extend(calls: &[Call], terms: &Terms, by: By, out: &mut impl RedisWrite) {
    command::write_script(&SCRIPTS.extend_bundle, by, 2 * calls.len() + 1, out);
    names(calls).for_each(|name| say(out, name));
    names(calls).for_each(|name| write_record_key(name, out));
    command::write_terms(terms, true, out);
    tokens(calls).for_each(|token| say(out, token));
    ballots(calls).for_each(|ballot| say(out, ballot));
    for call in calls {
        if let Op::Extend(Extend { ttl_ms, .. }) = call.request.op {
            say(out, command::ttl(ttl_ms));
        }
    }
}

fn write_plain(calls: &[Call], by: By, out: &mut impl RedisWrite) {
    command::write_script(&SCRIPTS.plain_release_bundle, by, calls.len(), out);
    names(calls).for_each(|name| say(out, name));
    tokens(calls).for_each(|token| say(out, token));
}

fn names(calls: &[Call]) -> impl Iterator<Item = &str> {
    calls.iter().map(|call| command::only_name(&call.request))
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
