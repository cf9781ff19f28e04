//! A semaphore: slots that are locks of their own, and one admission record (`gate`) with the
//! wait queue for all of them.
//!
//! All rules of an exclusive name apply to each slot: ballots, fence, ceiling, retirement, closing.
//! Only the admission rule is new: a caller may have a slot if fewer waiters are ahead of it than
//! slots are free. Permits are never counted per node: with two permits on each of five nodes,
//! three clients could each get a majority.

mod turns;

use crate::message::{Answer, Ballot, Holder, Mode, Permit, Slots, Ticket, Turn, Wake};

use super::acquire::AcquireParams;
use super::release::{ReleaseParams, release_one};
use super::{Entry, Moment, PlainKey, Rules, Seat};
use turns::{count_ahead, new_wakes, served_ids};

pub(super) fn acquire(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    params: &AcquireParams<'_>,
    asked: Option<u32>,
) -> Answer {
    if params.is_late(now) {
        return Answer::Late;
    }
    let (gate, slots) = split(entries);
    let old = |ticket: &Ticket| gate.queue.is_too_old(ticket, now);
    let too_old = params.ticket.is_some_and(old);
    if !too_old {
        record_permits(rules, now, gate, slots.len());
        if let Some(ticket) = params.ticket {
            gate.queue.enter_for_slot(ticket, permits(slots), now);
            note_holder_change(rules, now, slots);
        }
    }
    let ahead = match too_old {
        false => count_ahead(&gate.queue, params.ticket, permits(slots), &free(slots)),
        true => 0,
    };
    let free: Vec<u32> = numbered(slots)
        .filter(|(_, slot)| slot.key.is_none() || slot.is_held_by(params.token))
        .map(|(number, _)| number)
        .collect();
    let most = recorded_permits(gate).unwrap_or(0);
    let most = most.max(slots.len() as u64);
    let (slot, answer) = if too_old {
        (None, Answer::TicketOld)
    } else if let Some(left_ms) = rules.quarantine_left_ms(now) {
        (None, Answer::Quarantined { left_ms })
    } else {
        decide(rules, now, gate, slots, params, asked)
    };
    if let (Answer::Granted, Some(slot)) = (&answer, slot) {
        grant_slot(rules, now, gate, &mut slots[slot as usize], params);
    }
    Answer::Permit(Permit {
        answer: Box::new(answer),
        slot,
        free,
        ahead,
        most,
    })
}

/// The slot that the answer is about, and the answer.
fn decide(
    rules: &Rules,
    now: Moment,
    gate: &mut Entry,
    slots: &[Entry],
    params: &AcquireParams<'_>,
    asked: Option<u32>,
) -> (Option<u32>, Answer) {
    let ours = numbered(slots).find(|(number, slot)| {
        slot.is_held_by(params.token) && asked.is_none_or(|asked| asked == *number)
    });
    if let Some((number, slot)) = ours {
        return (Some(number), check_ballot(rules, now, slot, params.ballot));
    }
    let free = free(slots);
    let ahead = count_ahead(&gate.queue, params.ticket, permits(slots), &free) as usize;
    let waiters_before_turn = waiters_before_turn(ahead, free.len());
    // Never replace a slot that the caller asked for: votes for different slots do not add up.
    let held = asked.or(free.is_empty().then_some(0));
    if let Some(number) = held.filter(|number| !free.contains(number)) {
        let holder = slots.get(number as usize);
        let holder = holder.and_then(|slot| slot.holder(number as usize + 1, now));
        let holder = Holder {
            ahead: waiters_before_turn,
            ..holder.unwrap_or_default()
        };
        return (asked, Answer::Held(holder));
    }
    if ahead >= free.len() {
        let pass_at = may_pass_at(rules, now, slots, params.ticket, waiters_before_turn);
        if pass_at.is_none_or(|at| at > now.lease_ms) {
            let for_ms = pass_at.map(|at| at - now.lease_ms);
            let behind = Answer::Behind {
                ahead: waiters_before_turn,
                for_ms,
            };
            return (asked, behind);
        }
    }
    let last = free.len() - 1;
    let number = asked.unwrap_or(free[ahead.min(last)]);
    let answer = check_ballot(rules, now, &slots[number as usize], params.ballot);
    if let (Answer::Granted, Some(ticket)) = (&answer, params.ticket)
        && ahead >= free.len()
    {
        gate.queue
            .pass(ticket, Mode::Exclusive, free_since_ms(now, slots));
    }
    (Some(number), answer)
}

/// Compares a ballot with a slot that is free or that the caller holds.
fn check_ballot(rules: &Rules, now: Moment, slot: &Entry, ballot: Ballot) -> Answer {
    let seated = slot.holder_ballot();
    if slot.key.is_some() && ballot == seated {
        Answer::Granted
    } else if ballot < seated || ballot <= slot.effective_fence(rules, now, Mode::Exclusive) {
        Answer::Stale
    } else if ballot > now.ceiling(rules) {
        Answer::Ahead
    } else {
        Answer::Granted
    }
}

/// Grants the slot. The caller no longer waits: its ticket would block the waiters behind it.
fn grant_slot(
    rules: &Rules,
    now: Moment,
    gate: &mut Entry,
    slot: &mut Entry,
    params: &AcquireParams<'_>,
) {
    if let Some(ticket) = params.ticket {
        gate.queue.leave(ticket, Mode::Exclusive);
    }
    let seat = Seat {
        token: params.token.to_owned(),
        ballot: params.ballot,
        label: params.label.to_owned(),
        until_ms: 0,
    };
    slot.grant(rules, now, Mode::Exclusive, seat, params.ttl_ms);
}

pub(super) fn release(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    params: &ReleaseParams<'_>,
    which: Slots,
    wakes: &mut Vec<Wake>,
) -> Answer {
    let (gate, slots) = split(entries);
    let served_before = served_ids(&gate.queue, &free(slots));
    let awaited = !gate.queue.entries.is_empty();
    let (mut freed, mut newer, mut other_holder) = (Vec::new(), false, None);
    for (number, slot) in (0u32..).zip(slots.iter_mut()) {
        if !which.include(number) {
            continue;
        }
        if slot.is_in_delay(now, params.token, params.delay_ms) {
            continue;
        }
        let held = slot.is_held_by(params.token);
        // A late undo of attempt 1 must not release the slot that attempt 2 was granted.
        if held && slot.holder_ballot() > params.ballot {
            newer = true;
            continue;
        }
        if !held && which == Slots::Only(number) {
            other_holder = slot.holder(number as usize + 1, now);
        }
        if held {
            freed.push(number);
        }
        // Slots have no wait queue of their own: the waiters are in that of the semaphore.
        release_one(rules, now, slot, Mode::Exclusive, params, awaited);
    }
    let released = !freed.is_empty();
    match params.ticket {
        // The grant removed the ticket from the queue. The undo of the grant enters it again.
        Some(ticket) if params.stays && released => {
            gate.queue.enter_for_slot(ticket, permits(slots), now)
        }
        Some(ticket) if !params.stays => {
            gate.queue.leave(ticket, Mode::Exclusive);
        }
        _ => {}
    }
    let sender = params.ticket.filter(|_| params.stays);
    wakes.extend(new_wakes(
        rules,
        &gate.queue,
        &free(slots),
        &served_before,
        freed,
        sender,
    ));
    match other_holder {
        _ if released => Answer::Released,
        _ if newer => Answer::Newer,
        Some(holder) => Answer::Held(holder),
        None => Answer::Gone,
    }
}

/// Lets `change` change one slot, and wakes the waiters that it serves if it is free then and was not
/// before.
pub(super) fn free_one(
    rules: &Rules,
    entries: &mut [Entry],
    slot: u32,
    wakes: &mut Vec<Wake>,
    change: impl FnOnce(&mut Entry) -> Answer,
) -> Answer {
    let (gate, slots) = split(entries);
    let served_before = served_ids(&gate.queue, &free(slots));
    let answer = change(&mut slots[slot as usize]);
    wakes.extend(new_wakes(
        rules,
        &gate.queue,
        &free(slots),
        &served_before,
        vec![slot],
        None,
    ));
    answer
}

pub(super) fn refresh(
    rules: &Rules,
    now: Moment,
    entries: &mut [Entry],
    tickets: &[Ticket],
) -> Answer {
    let (gate, slots) = split(entries);
    for ticket in tickets {
        gate.queue.enter_for_slot(ticket, permits(slots), now);
    }
    if !tickets.is_empty() {
        note_holder_change(rules, now, slots);
    }
    let free = free(slots);
    let turns = tickets.iter().map(|ticket| Turn {
        ahead: waiters_before_turn(
            count_ahead(&gate.queue, Some(ticket), permits(slots), &free) as usize,
            free.len(),
        ),
        free: !free.is_empty(),
    });
    Answer::Turns(turns.collect())
}

/// The floor for the stamp: that of the slot that the answer is about.
pub(super) fn floor(rules: &Rules, now: Moment, entries: &[Entry], permit: &Permit) -> Ballot {
    let slot = permit.slot.and_then(|slot| entries.get(slot as usize + 1));
    slot.map_or(now.ground(rules), |slot| {
        slot.effective_fence(rules, now, Mode::Exclusive)
    })
}

/// The admission record and the slots.
fn split(entries: &mut [Entry]) -> (&mut Entry, &mut [Entry]) {
    match entries {
        [gate, slots @ ..] => (gate, slots),
        [] => panic!("a semaphore has an admission record"),
    }
}

fn numbered(slots: &[Entry]) -> impl Iterator<Item = (u32, &Entry)> {
    (0u32..).zip(slots)
}

fn free(slots: &[Entry]) -> Vec<u32> {
    let free = numbered(slots).filter(|(_, slot)| slot.key.is_none());
    free.map(|(number, _)| number).collect()
}

/// How many waiters must leave the queue before it is the caller's turn, beyond those that the free
/// slots serve.
fn waiters_before_turn(ahead: usize, free: usize) -> u64 {
    (ahead as u64).saturating_sub(free.max(1) as u64 - 1)
}

/// The number of permits of a semaphore with these slots.
fn permits(slots: &[Entry]) -> u32 {
    slots.len() as u32
}

/// When the caller may pass the tickets ahead of it; `None` for a caller without a ticket.
fn may_pass_at(
    rules: &Rules,
    now: Moment,
    slots: &[Entry],
    ticket: Option<&Ticket>,
    waiters_before_turn: u64,
) -> Option<u64> {
    ticket?;
    let wait_ms = rules.grace_ms.saturating_mul(waiters_before_turn);
    Some(free_since_ms(now, slots).saturating_add(wait_ms))
}

/// Since when as many slots are free as now.
fn free_since_ms(now: Moment, slots: &[Entry]) -> u64 {
    let free = slots.iter().filter(|slot| slot.key.is_none());
    free.map(|slot| slot.free_since_ms(now)).max().unwrap_or(0)
}

/// Records holders that are gone, as for a lock, so that the grace starts.
fn note_holder_change(rules: &Rules, now: Moment, slots: &mut [Entry]) {
    for slot in slots {
        slot.note_holder_change(rules, now);
    }
}

/// The largest number of permits in the admission record.
pub(super) fn recorded_permits(gate: &Entry) -> Option<u64> {
    gate.key.as_ref()?.value.parse().ok()
}

/// Records how many permits the caller uses, unless a larger number is recorded. So clients that
/// use different numbers learn about it. The record is written again after half of its lifetime.
fn record_permits(rules: &Rules, now: Moment, gate: &mut Entry, count: usize) {
    let most = recorded_permits(gate).unwrap_or(0);
    let half = now.lease_ms.saturating_add(rules.retention_ms / 2);
    let until_ms = gate.key.as_ref().and_then(|key| key.until_ms);
    let lasts = until_ms.is_some_and(|until| until >= half);
    if most < count as u64 || (most == count as u64 && !lasts) {
        gate.key = Some(PlainKey {
            value: count.to_string(),
            until_ms: Some(now.lease_ms.saturating_add(rules.retention_ms)),
        });
    }
}
