//! Break: an operator ends a hold. The holder is dead, or `hold_at_least` keeps the name too long.
//!
//! A break removes what is held under the ballot that the operator has seen, or an earlier one; a
//! later holder stays. It closes that ballot, so that a late restore cannot bring the holder back,
//! and raises the fence, so that a late acquire cannot either. The node remembers each holder that
//! was removed: it answers the holder's next extend with the reason, and operators can list it.

use crate::message::{Answer, Ballot, Break, BreakNote, Mode, Request, Wake};
use crate::token::public_half;

use super::release::dedup_wakes;
use super::slots;
use super::{Entry, Moment, Rules, Seat};

/// How many broken holds of a name are remembered: the latest ones.
pub const BREAKS_MAX: usize = 64;

/// The broken holds of one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Breaks {
    /// The holds, in the order in which they were broken.
    pub notes: Vec<BreakNote>,
    /// The last microsecond in which they are remembered, on the clock that ballots are compared
    /// with: an operator may ask for them after a boot.
    pub until_us: u64,
}

/// Executes the break of a name, or of one slot of a semaphore.
pub(super) fn break_holders(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    op: &Break,
    wakes: &mut Vec<Wake>,
) -> Answer {
    let Some(slot) = op.slot else {
        let answer = break_one(rules, now, &mut entries[0], 0, op);
        let freed = matches!(answer, Answer::Removed { holders } if holders > 0);
        if freed && entries[0].key.is_none() {
            wakes.extend(entries[0].queue.wakes(rules, None, Mode::Exclusive));
            dedup_wakes(wakes);
        }
        return answer;
    };
    let claim = slot as usize + 1;
    if claim >= request.claims.len() {
        return Answer::Removed { holders: 0 };
    }
    slots::free_one(rules, entries, slot, wakes, |entry| {
        break_one(rules, now, entry, claim, op)
    })
}

fn break_one(rules: &Rules, now: Moment, entry: &mut Entry, claim: usize, op: &Break) -> Answer {
    let broken = match holders_to_break(entry, op) {
        Ok(broken) => broken,
        Err(Later) => return Answer::Held(entry.holder(claim, now).unwrap_or_default()),
    };
    if op.ballot <= entry.effective_fence(rules, now, Mode::Exclusive) {
        return Answer::Stale;
    }
    if op.ballot > now.ceiling(rules) {
        return Answer::Ahead;
    }
    // No ballot above the new fence is closed: later holders must stay restorable.
    let closed = entry.closed().max(op.up_to.min(op.ballot));
    let raise = (Mode::Exclusive, op.ballot);
    let removed = |seat: &Seat| broken.iter().any(|one| one.token == seat.token);
    entry.readers.retain(|reader| !removed(reader));
    if entry.has_marker() && !entry.readers.is_empty() {
        entry.mark_shared(rules, now, raise, closed, Ballot::default());
    } else {
        entry.key = None;
        entry.write(rules, now, raise, closed, None);
        if let Some(record) = &mut entry.record
            && !broken.is_empty()
        {
            record.free_since_ms = now.lease_ms;
        }
    }
    entry.note_breaks(now, &broken, op);
    Answer::Removed {
        holders: broken.len() as u64,
    }
}

/// The name has a holder that the operator did not mean.
struct Later;

/// The holders that the break removes. The foreign value of a holder without a seat is its token.
fn holders_to_break(entry: &Entry, op: &Break) -> Result<Vec<Seat>, Later> {
    let is_meant = |seat: &&Seat| {
        let id = public_half(&seat.token);
        seat.ballot <= op.up_to && op.only.as_deref().is_none_or(|only| id == Some(only))
    };
    let Some(key) = &entry.key else {
        return Ok(Vec::new());
    };
    if entry.is_shared() {
        return Ok(entry.readers.iter().filter(is_meant).cloned().collect());
    }
    match entry.seat() {
        Some(seat) if is_meant(&seat) => Ok(vec![seat.clone()]),
        None if op.foreign && op.only.is_none() => Ok(vec![Seat {
            token: key.value.clone(),
            ballot: Ballot::default(),
            label: String::new(),
            until_ms: 0,
        }]),
        _ => Err(Later),
    }
}

impl Entry {
    /// Remembers the holders that a break has removed.
    fn note_breaks(&mut self, now: Moment, broken: &[Seat], op: &Break) {
        if broken.is_empty() {
            return;
        }
        let until_us = now.clock_us.saturating_add(op.keep_ms.saturating_mul(1000));
        let breaks = self.broken.get_or_insert(Breaks {
            notes: Vec::new(),
            until_us,
        });
        breaks.until_us = breaks.until_us.max(until_us);
        breaks.notes.extend(broken.iter().map(|seat| BreakNote {
            at_us: now.clock_us,
            fence: op.ballot,
            ballot: seat.ballot,
            id: public_half(&seat.token).unwrap_or_default().to_owned(),
            label: printable(&seat.label),
            by: printable(&op.by),
            reason: printable(&op.reason),
        }));
        let surplus = breaks.notes.len().saturating_sub(BREAKS_MAX);
        breaks.notes.drain(..surplus);
    }

    /// The latest break of a hold of `token`.
    fn break_of(&self, token: &str) -> Option<&BreakNote> {
        let id = public_half(token)?;
        let breaks = self.broken.as_ref()?;
        breaks.notes.iter().rev().find(|note| note.id == id)
    }
}

/// The answer for a token that has lost its claims, if an operator broke one of them. Otherwise
/// `refusal`. A broken hold is reported even if the name has a new holder: mostly a waiter has
/// taken it at once.
pub(super) fn or_broken(entries: &[Entry], token: &str, refusal: Answer) -> Answer {
    let is_lost = |entry: &&Entry| entry.ballot_of(Mode::Shared, token).is_none();
    let mut lost = entries.iter().filter(is_lost);
    match lost.find_map(|entry| entry.break_of(token)) {
        Some(note) => Answer::Broken(Box::new(note.clone())),
        None => refusal,
    }
}

/// The text in one line: a server stores the notes as lines of fields.
fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_control(), " ")
}
