//! Acquire: all claims, or none.

use crate::message::{Acquire, Answer, Ballot, Claim, Holder, Mode, Place, Request};

use super::{Entry, Moment, Rules, Seat};

/// What the caller wants, and as whom.
pub(super) struct Wanted<'a> {
    pub(super) claims: &'a [Claim],
    pub(super) token: &'a str,
    pub(super) ballot: Ballot,
    pub(super) ttl_ms: u64,
    pub(super) label: &'a str,
    pub(super) place: Option<&'a Place>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(request: &'a Request, op: &'a Acquire) -> Self {
        Self {
            claims: &request.claims,
            token: request.token.expose(),
            ballot: op.ballot,
            ttl_ms: op.ttl_ms,
            label: &op.label,
            place: op.place.as_ref(),
        }
    }
}

/// What one claim says to an acquire, in the order in which a refusal counts.
enum Ruling {
    /// The claim is, or may be, this token's.
    Free,
    Ahead,
    Stale,
    Behind {
        ahead: u64,
        for_ms: Option<u64>,
    },
    Held(Holder),
}

pub(super) fn acquire(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    wanted: &Wanted<'_>,
) -> Answer {
    if let Some(place) = wanted.place {
        if entries
            .iter()
            .any(|entry| entry.line.is_too_old(place, now))
        {
            return Answer::TicketOld;
        }
        enter(rules, now, entries, wanted.claims, wanted.token, place);
    }
    let rulings = entries.iter().zip(wanted.claims).enumerate();
    let rulings =
        rulings.map(|(at, (entry, claim))| rule(rules, now, entry, at, claim.mode, wanted));
    if let Some(refusal) = refusal(rulings) {
        return refusal;
    }
    for (entry, claim) in entries.iter_mut().zip(wanted.claims) {
        if let Some(place) = wanted.place {
            let free_since_ms = entry.free_since_ms(now);
            entry.line.pass(place, claim.mode, free_since_ms);
            // A holder waits no longer. Its ticket would keep readers out after a downgrade, count as
            // a waiter, and cost the next its grace if the holder vanishes.
            entry.line.leave(place, claim.mode);
        }
        let seat = Seat {
            token: wanted.token.to_owned(),
            ballot: wanted.ballot,
            label: wanted.label.to_owned(),
            until_ms: 0,
        };
        entry.take_for(rules, now, claim.mode, seat, wanted.ttl_ms);
    }
    Answer::Granted
}

/// What counts among the claims' rulings: a holder before a line, a line before a ballot that is
/// too low, and that before one that is too high; of equal ones the first.
fn refusal(rulings: impl Iterator<Item = Ruling>) -> Option<Answer> {
    let (mut behind, mut stale, mut ahead_of_clock) = (None, None, None);
    for ruling in rulings {
        match ruling {
            Ruling::Held(holder) => return Some(Answer::Held(holder)),
            Ruling::Behind { ahead, for_ms } => {
                behind.get_or_insert(Answer::Behind { ahead, for_ms });
            }
            Ruling::Stale => stale = Some(Answer::Stale),
            Ruling::Ahead => ahead_of_clock = Some(Answer::Ahead),
            Ruling::Free => {}
        }
    }
    behind.or(stale).or(ahead_of_clock)
}

/// Enters or refreshes `place` in every line. One that also waits for a name that is held cannot
/// come to the others, and must not be passed there as if it were dead.
pub(super) fn enter(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    claims: &[Claim],
    token: &str,
    place: &Place,
) {
    let held_by_others: Vec<bool> = entries
        .iter()
        .zip(claims)
        .map(|(entry, claim)| entry.is_closed_to(claim.mode) && !entry.is_held_by(token))
        .collect();
    let held = held_by_others.iter().filter(|held| **held).count();
    for ((entry, claim), &held_here) in entries.iter_mut().zip(claims).zip(&held_by_others) {
        let elsewhere = held > usize::from(held_here);
        entry.line.enter(place, claim.mode, elsewhere, now);
        entry.take_notice(rules, now);
    }
}

fn rule(
    rules: &Rules,
    now: Moment,
    entry: &Entry,
    claim: usize,
    mode: Mode,
    wanted: &Wanted<'_>,
) -> Ruling {
    let ballot = wanted.ballot;
    if let Some(seated) = entry.held_as(mode, wanted.token) {
        if ballot == seated {
            return Ruling::Free;
        }
        if ballot < seated {
            return Ruling::Stale;
        }
    } else if let Some(ruling) = in_the_way(rules, now, entry, claim, mode, wanted.place) {
        return ruling;
    }
    if ballot <= entry.effective_fence(rules, now, mode) {
        Ruling::Stale
    } else if ballot > now.ceiling(rules) {
        Ruling::Ahead
    } else {
        Ruling::Free
    }
}

/// Another holder, or those who are ahead in line.
fn in_the_way(
    rules: &Rules,
    now: Moment,
    entry: &Entry,
    claim: usize,
    mode: Mode,
    place: Option<&Place>,
) -> Option<Ruling> {
    let ahead = entry.line.count_ahead(place, mode);
    let holder = entry.holder(claim, now);
    if let Some(holder) = holder.filter(|_| entry.is_closed_to(mode)) {
        return Some(Ruling::Held(Holder { ahead, ..holder }));
    }
    let free_since_ms = entry.free_since_ms(now);
    let pass_at = entry.line.may_pass_at(rules, place, mode, free_since_ms);
    // While others share the name, whoever is ahead cannot come: it is not dead.
    let pass_at = pass_at.filter(|_| ahead == 0 || entry.key.is_none());
    if pass_at.is_some_and(|at| at <= now.lease_ms) {
        return None;
    }
    Some(Ruling::Behind {
        ahead,
        for_ms: pass_at.map(|at| at - now.lease_ms),
    })
}
