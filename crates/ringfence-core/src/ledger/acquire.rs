//! Acquire: grants all claims or none. The order of the checks is part of the protocol.

use crate::message::{Acquire, Answer, Ballot, Claim, Holder, Mode, Place, Request};

use super::{Entry, Moment, Rules, Seat};

/// The parameters of an acquire.
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

/// The result of checking one claim.
enum Ruling {
    /// This token holds the claim, or may take it.
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
            // A holder no longer waits. If its ticket stayed, it would block readers after a
            // downgrade, it would count as a waiter, and the next waiter would lose the grace if
            // the holder died.
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

/// The answer that counts if any claim is refused. A holder counts before the queue, the queue
/// before a ballot that is too low, and that before a ballot that is too high. Of several waits in
/// a queue the first claim's counts.
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

/// Enters or refreshes the ticket in the queue of every claim. If another of the names is held, the
/// caller cannot acquire, and the other queues must not let waiters pass it as if it were dead.
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

/// A conflicting holder, or conflicting tickets ahead in the queue.
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
    // While readers hold the name, an exclusive waiter ahead cannot acquire: it is not dead.
    let pass_at = pass_at.filter(|_| ahead == 0 || entry.key.is_none());
    if pass_at.is_some_and(|at| at <= now.lease_ms) {
        return None;
    }
    Some(Ruling::Behind {
        ahead,
        for_ms: pass_at.map(|at| at - now.lease_ms),
    })
}
