//! Acquire: grants all claims or none. The order of the checks is part of the protocol. And refresh,
//! for the tickets of callers that wait.

use crate::message::{Acquire, Answer, Ballot, Claim, Holder, Mode, Request, Ticket, Turn};

use super::{Entry, Moment, Rules, Seat};

/// The parameters of an acquire.
pub(super) struct AcquireParams<'a> {
    pub(super) claims: &'a [Claim],
    pub(super) token: &'a str,
    pub(super) ballot: Ballot,
    pub(super) ttl_ms: u64,
    pub(super) label: &'a str,
    pub(super) ticket: Option<&'a Ticket>,
    not_after_us: Option<u64>,
}

impl<'a> AcquireParams<'a> {
    pub(super) fn new(request: &'a Request, op: &'a Acquire) -> Self {
        Self {
            claims: &request.claims,
            token: request.token.expose(),
            ballot: op.ballot,
            ttl_ms: op.ttl_ms,
            label: &op.label,
            ticket: op.ticket.as_ref(),
            not_after_us: op.not_after_us,
        }
    }

    /// Whether the request arrived later than its caller allowed. A grant that is executed so late
    /// may be on a former master, after the lease of the holder that a new master has carried on.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        self.not_after_us.is_some_and(|at| now.clock_us > at)
    }
}

/// The result of checking one claim.
enum ClaimCheck {
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
    params: &AcquireParams<'_>,
) -> Answer {
    if params.is_late(now) {
        return Answer::Late;
    }
    if let Some(ticket) = params.ticket {
        if entries
            .iter()
            .any(|entry| entry.queue.is_too_old(ticket, now))
        {
            return Answer::TicketOld;
        }
        enter(rules, now, entries, params.claims, params.token, ticket);
    }
    if let Some(left_ms) = rules.quarantine_left_ms(now) {
        return Answer::Quarantined { left_ms };
    }
    let checks = entries.iter().zip(params.claims).enumerate();
    let checks =
        checks.map(|(at, (entry, claim))| check_claim(rules, now, entry, at, claim.mode, params));
    if let Some(refusal) = refusal(checks) {
        return refusal;
    }
    for (entry, claim) in entries.iter_mut().zip(params.claims) {
        if let Some(ticket) = params.ticket {
            let free_since_ms = entry.free_since_ms(now);
            entry.queue.pass(ticket, claim.mode, free_since_ms);
            // A holder no longer waits. If its ticket stayed, it would block readers after a
            // downgrade, it would count as a waiter, and the next waiter would lose the grace if
            // the holder died.
            entry.queue.leave(ticket, claim.mode);
        }
        let seat = Seat {
            token: params.token.to_owned(),
            ballot: params.ballot,
            label: params.label.to_owned(),
            until_ms: 0,
        };
        // Without a ticket it was granted because the name is free and has no waiters. The grace of
        // later waiters does not count from before.
        let found_free =
            params.ticket.is_none() && claim.mode == Mode::Exclusive && entry.key.is_none();
        entry.grant(rules, now, claim.mode, seat, params.ttl_ms);
        if let Some(record) = entry.record.as_mut().filter(|_| found_free) {
            record.free_since_ms = now.lease_ms;
        }
    }
    Answer::Granted
}

/// The answer that counts if any claim is refused. A holder counts before the queue, the queue
/// before a ballot that is too low, and that before a ballot that is too high. Of several waits in
/// a queue the first claim's counts.
fn refusal(checks: impl Iterator<Item = ClaimCheck>) -> Option<Answer> {
    let (mut behind, mut stale, mut ahead_of_clock) = (None, None, None);
    for check in checks {
        match check {
            ClaimCheck::Held(holder) => return Some(Answer::Held(holder)),
            ClaimCheck::Behind { ahead, for_ms } => {
                behind.get_or_insert(Answer::Behind { ahead, for_ms });
            }
            ClaimCheck::Stale => stale = Some(Answer::Stale),
            ClaimCheck::Ahead => ahead_of_clock = Some(Answer::Ahead),
            ClaimCheck::Free => {}
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
    ticket: &Ticket,
) {
    let held_by_others: Vec<bool> = entries
        .iter()
        .zip(claims)
        .map(|(entry, claim)| entry.conflicts_with(claim.mode) && !entry.is_held_by(token))
        .collect();
    let held = held_by_others.iter().filter(|held| **held).count();
    for ((entry, claim), &held_here) in entries.iter_mut().zip(claims).zip(&held_by_others) {
        let elsewhere = held > usize::from(held_here);
        entry.queue.enter(ticket, claim.mode, elsewhere, now);
        entry.note_holder_change(rules, now);
    }
}

fn check_claim(
    rules: &Rules,
    now: Moment,
    entry: &Entry,
    claim: usize,
    mode: Mode,
    params: &AcquireParams<'_>,
) -> ClaimCheck {
    let ballot = params.ballot;
    if let Some(seated) = entry.ballot_of(mode, params.token) {
        if ballot == seated {
            return ClaimCheck::Free;
        }
        if ballot < seated {
            return ClaimCheck::Stale;
        }
    } else if let Some(check) = find_conflict(rules, now, entry, claim, mode, params.ticket) {
        return check;
    }
    if ballot <= entry.effective_fence(rules, now, mode) {
        ClaimCheck::Stale
    } else if ballot > now.ceiling(rules) {
        ClaimCheck::Ahead
    } else {
        ClaimCheck::Free
    }
}

/// A conflicting holder, or conflicting tickets ahead in the queue.
fn find_conflict(
    rules: &Rules,
    now: Moment,
    entry: &Entry,
    claim: usize,
    mode: Mode,
    ticket: Option<&Ticket>,
) -> Option<ClaimCheck> {
    let ahead = entry.queue.count_ahead(ticket, mode);
    let holder = entry.holder(claim, now);
    if let Some(holder) = holder.filter(|_| entry.conflicts_with(mode)) {
        return Some(ClaimCheck::Held(Holder { ahead, ..holder }));
    }
    let free_since_ms = entry.free_since_ms(now);
    let pass_at = entry.queue.may_pass_at(rules, ticket, mode, free_since_ms);
    // While readers hold the name, an exclusive waiter ahead cannot acquire: it is not dead.
    let pass_at = pass_at.filter(|_| ahead == 0 || entry.key.is_none());
    if pass_at.is_some_and(|at| at <= now.lease_ms) {
        return None;
    }
    Some(ClaimCheck::Behind {
        ahead,
        for_ms: pass_at.map(|at| at - now.lease_ms),
    })
}

/// Refresh: keeps the tickets of waiting callers alive, and reports their positions.
pub(super) fn refresh(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    request: &Request,
    tickets: &[Ticket],
) -> Answer {
    let claims = &request.claims[..];
    for ticket in tickets {
        // An empty token equals no holder: a caller that waits holds nothing.
        enter(rules, now, entries, claims, "", ticket);
    }
    let turns = tickets.iter().map(|ticket| Turn {
        ahead: entries
            .iter()
            .zip(claims)
            .map(|(entry, claim)| entry.queue.count_ahead(Some(ticket), claim.mode))
            .max()
            .unwrap_or_default(),
        free: entries
            .iter()
            .zip(claims)
            .all(|(entry, claim)| !entry.conflicts_with(claim.mode)),
    });
    Answer::Turns(turns.collect())
}
