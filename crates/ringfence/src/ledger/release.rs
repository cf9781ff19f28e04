//! Release: a holder is done, or an attempt is withdrawn.

use crate::message::{Answer, Ballot, ReleaseKind};

use super::extend::not_held;
use super::{Entry, Moment, Rules};

pub(super) fn release(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    token: &str,
    ballot: Ballot,
    kind: ReleaseKind,
    fate_unknown: bool,
) -> Answer {
    // A late undo of an earlier attempt must not delete the key of a later one.
    if entries
        .iter()
        .any(|entry| entry.is_held_by(token) && entry.holder_ballot() > ballot)
    {
        return Answer::Newer;
    }
    let answer = not_held(now, entries, token).unwrap_or(Answer::Released);
    for entry in entries {
        release_one(rules, now, entry, token, ballot, kind, fate_unknown);
    }
    answer
}

fn release_one(
    rules: &Rules,
    now: Moment,
    entry: &mut Entry,
    token: &str,
    ballot: Ballot,
    kind: ReleaseKind,
    fate_unknown: bool,
) {
    let held = entry.is_held_by(token);
    let closes = kind == ReleaseKind::Final;
    // Retiring always would let pollers starve everyone else, so an absent key alone changes
    // nothing: the fence rises only against an acquire that may still be on its way.
    if !held && !closes && !fate_unknown {
        return;
    }
    let seat = if held {
        entry.key = None;
        None
    } else {
        entry.seat().cloned()
    };
    let mut closed = entry.closed();
    if closes && ballot <= now.ceiling(rules) {
        closed = closed.max(ballot);
    }
    let raise = if held || fate_unknown {
        ballot
    } else {
        Ballot::default()
    };
    entry.write(rules, now, raise, closed, seat);
}
