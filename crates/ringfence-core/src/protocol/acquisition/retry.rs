//! What comes after an attempt that was lost: when to try again, and when to give up.

use std::time::Duration;

use crate::protocol::slots::Asked;
use crate::protocol::{Attempt, Cluster, Loss, Vote, quorum};
use crate::time::Timestamp;

use super::{Acquisition, Failure, FailureKind, Next};

/// Stale rounds in a row that are no contention yet; beyond, somebody is really in the way.
const STALE_ROUNDS_MAX: u32 = 8;
/// The shortest and the longest pause between two attempts at a held lock.
const POLL_MIN: Duration = Duration::from_millis(4);
const POLL_MAX: Duration = Duration::from_millis(200);
/// How often somebody in line asks of its own accord, at least.
const LINE_POLL_MAX: Duration = Duration::from_secs(30);
/// The same where no majority answers.
const NO_QUORUM_POLL_MIN: Duration = Duration::from_millis(20);
const NO_QUORUM_POLL_MAX: Duration = Duration::from_secs(1);
/// The pause before another wake brings an attempt forward, after wakes that brought nothing: at first
/// and at most. Well below the poll behind every wake, so that a real hand-over is hardly delayed.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(2);
const WAKE_PAUSE_MAX: Duration = Duration::from_millis(100);
/// After this long without a fruitless wake, the next one counts as the first.
const WAKES_FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
/// Stale rounds in a row once wakes have brought nothing.
const STALE_ROUNDS_FRUITLESS: u32 = 2;
/// How often a quarantine is looked at that is waited for: an operator may end it with `init`.
const QUARANTINE_POLL_MAX: Duration = Duration::from_secs(1);

impl Acquisition {
    /// Decides what comes after `attempt`, which ended in `loss`.
    pub(super) fn after(
        &mut self,
        loss: Loss,
        attempt: &Attempt,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Next {
        if !self.was_entered(attempt) && self.stale_in_a_row < STALE_ROUNDS_MAX {
            self.stale_in_a_row += 1;
            return Next::Retry {
                at: now,
                wake_at: now,
                stays: false,
            };
        }
        if loss != Loss::NoQuorum {
            self.no_quorum_since = None;
            self.no_quorum_in_a_row = 0;
        }
        let other_slot = self.asks_next(attempt);
        match loss {
            Loss::Held if other_slot && self.stale_in_a_row < self.stale_rounds_max() => {
                self.after_stale(attempt, cluster, now)
            }
            Loss::NoQuorum => self.after_no_quorum(attempt, now),
            Loss::Stale | Loss::Skewed if self.stale_in_a_row < self.stale_rounds_max() => {
                self.after_stale(attempt, cluster, now)
            }
            Loss::Late => self.after_lost(attempt, cluster, FailureKind::Expired, now),
            Loss::Held | Loss::Stale | Loss::Skewed => {
                self.after_lost(attempt, cluster, FailureKind::Held, now)
            }
        }
    }

    /// Learns whether the nodes took the ticket. If too few did because it looked old, our idea of
    /// their clocks was wrong: the next attempt shows a new one, and this one is given up. After some
    /// of these it is kept where it was taken: from then on its age is patience everywhere. A new one
    /// then would stand behind the old, and be woken by its own undo.
    fn was_entered(&mut self, attempt: &Attempt) -> bool {
        let Some(ticket) = self.ticket.as_mut().filter(|ticket| ticket.shown) else {
            return true;
        };
        let count = |wanted: fn(&Vote) -> bool| attempt.votes().filter(|v| wanted(v)).count();
        let refused = count(|vote| *vote == Vote::TicketOld);
        let taken = count(|vote| vote.is_answer() && *vote != Vote::TicketOld);
        let again = self.stale_in_a_row < STALE_ROUNDS_MAX || taken == 0;
        if !ticket.entered && refused > 0 && taken < quorum(self.terms.nodes) && again {
            ticket.since_us = None;
            return false;
        }
        ticket.entered = ticket.entered || taken > 0;
        true
    }

    /// Decides which slot of a semaphore comes next; whether there is one that may be had at once.
    fn asks_next(&mut self, attempt: &Attempt) -> bool {
        let Some(asks) = &mut self.asks else {
            return false;
        };
        // What was free when somebody was in the way says nothing about when we are woken.
        let next = attempt.next_slot();
        *asks = next.map_or(Asked::Any, Asked::Slot);
        next.is_some()
    }

    /// The caller was woken: a node said that `slot` of the semaphore had been freed for it. What
    /// the last attempt itself has seen goes before that.
    pub fn woken_for(&mut self, slot: Option<u32>) {
        self.woken = true;
        if let (Some(Asked::Any), Some(slot)) = (self.asks, slot) {
            self.asks = Some(Asked::Slot(slot));
        }
    }

    /// Nobody holds it: at once again with a higher ballot. From the second time on with jitter,
    /// or two clients duel for ever.
    fn after_stale(&mut self, attempt: &Attempt, cluster: &Cluster, now: Timestamp) -> Next {
        self.stale_in_a_row += 1;
        // Judged by the clocks alone: a floor that is out of reach now is so for a moment only.
        let apart = cluster.most_in_reach(now) < quorum(self.terms.nodes);
        if apart && self.stale_in_a_row > 2 {
            return self.give_up(attempt, FailureKind::ClocksApart);
        }
        let pause = if self.stale_in_a_row > 1 {
            self.jitter
                .spread(self.round.max(Duration::from_micros(500)))
        } else {
            Duration::ZERO
        };
        Next::Retry {
            at: now + pause,
            wake_at: now,
            stays: true,
        }
    }

    /// From when on a wake may bring the next attempt forward, after one that was lost at `now`.
    ///
    /// A wake is a hint that any node may push, and where no majority can be had every undo wakes
    /// others: without a pause, callers would wake each other as fast as the nodes answer. The first
    /// wake that brings nothing costs nothing: it may have come before the other nodes knew.
    fn wake_after_loss(&mut self, now: Timestamp) -> Timestamp {
        if !std::mem::take(&mut self.woken) {
            return now.max(self.last_fruitless + self.wake_pause());
        }
        if now.since(self.last_fruitless) >= WAKES_FORGOTTEN_AFTER {
            self.fruitless_wakes = 0;
        }
        self.fruitless_wakes = self.fruitless_wakes.saturating_add(1);
        self.last_fruitless = now;
        now + self.wake_pause()
    }

    fn wake_pause(&mut self) -> Duration {
        if self.fruitless_wakes < 2 {
            return Duration::ZERO;
        }
        let least = self.round.clamp(WAKE_PAUSE_MIN, WAKE_PAUSE_MAX);
        self.backoff(self.fruitless_wakes - 1, least, WAKE_PAUSE_MAX)
    }

    /// Where wakes bring nothing, trying again at once does not help either.
    fn stale_rounds_max(&self) -> u32 {
        match self.fruitless_wakes < 2 {
            true => STALE_ROUNDS_MAX,
            false => STALE_ROUNDS_FRUITLESS,
        }
    }

    /// Somebody is in the way: again when it may be free, or by poll, as long as the caller waits.
    fn after_lost(
        &mut self,
        attempt: &Attempt,
        cluster: &Cluster,
        kind: FailureKind,
        now: Timestamp,
    ) -> Next {
        self.stale_in_a_row = 0;
        self.lost += 1;
        let spent = self.terms.attempts.is_some_and(|most| self.lost >= most);
        let give_up_at = self.terms.wait.map(|wait| self.started + wait);
        let over = give_up_at.is_some_and(|at| now >= at);
        if spent || over {
            return self.give_up(attempt, kind);
        }
        self.held = Some(Failure {
            kind,
            votes: attempt.votes().cloned().collect(),
        });
        if let Some(ticket) = &mut self.ticket
            && !ticket.shown
        {
            // Now it is worth standing in line.
            ticket.shown = true;
            return Next::Retry {
                at: now,
                wake_at: now,
                stays: true,
            };
        }
        let mut pause = self.backoff(self.lost, POLL_MIN.max(self.round * 2), POLL_MAX);
        if attempt.place().is_some() && kind == FailureKind::Held {
            // Whoever stands in line is woken, and its place is looked after by others.
            let turn = attempt.turn_in(cluster.group().grace);
            pause = pause.max(turn.unwrap_or(LINE_POLL_MAX));
        } else if let Some(free) = attempt.votes().filter_map(free_in).min() {
            pause = pause.min(free);
        }
        let at = now + pause;
        Next::Retry {
            at: give_up_at.map_or(at, |end| at.min(end)),
            wake_at: self.wake_after_loss(now),
            stays: true,
        }
    }

    /// No majority answers. Waiting is about contention, so this ends sooner.
    fn after_no_quorum(&mut self, attempt: &Attempt, now: Timestamp) -> Next {
        self.stale_in_a_row = 0;
        let quorum = quorum(self.terms.nodes);
        let misconfigured = attempt.votes().filter(|vote| vote.is_misconfigured());
        if misconfigured.count() >= quorum {
            return self.give_up(attempt, FailureKind::Misconfigured);
        }
        let patience = self.terms.wait.map_or(self.terms.no_quorum_after, |wait| {
            wait.min(self.terms.no_quorum_after)
        });
        if let Some(left) = majority_grows_up(attempt, quorum) {
            // A new cluster is no outage: waiting helps if the caller would wait that long. A caller
            // that sets no limit would.
            let limited = self.terms.wait.is_some() || self.terms.attempts.is_some();
            let covered = self.terms.wait.unwrap_or(patience).max(patience);
            let end = self.started + covered;
            if now + left > end && limited {
                return self.give_up(attempt, FailureKind::Quarantined { left });
            }
            self.no_quorum_since = None;
            let pause = left + Duration::from_millis(1);
            return Next::Retry {
                at: now + pause.min(QUARANTINE_POLL_MAX),
                wake_at: self.wake_after_loss(now),
                stays: false,
            };
        }
        let since = *self.no_quorum_since.get_or_insert(attempt.t0());
        let spent = self
            .terms
            .attempts
            .is_some_and(|most| self.no_quorum_in_a_row + 1 >= most);
        // An outage that begins late, or comes and goes, does not prolong the wait.
        let mut end = since + patience;
        if let Some(wait) = self.terms.wait {
            end = end.min(self.started + wait);
        }
        if spent || now >= end {
            return match self.held.take() {
                // The last round of a wait may be cut short: that alone is no outage.
                Some(held) if self.no_quorum_in_a_row == 0 => Next::GiveUp(held),
                _ => self.give_up(attempt, FailureKind::NoQuorum),
            };
        }
        self.no_quorum_in_a_row += 1;
        let pause = self.backoff(
            self.no_quorum_in_a_row,
            NO_QUORUM_POLL_MIN,
            NO_QUORUM_POLL_MAX,
        );
        Next::Retry {
            at: (now + pause).min(end),
            wake_at: self.wake_after_loss(now),
            // On the few nodes that do answer, a place kept for nothing would block others.
            stays: self.no_quorum_in_a_row < 2,
        }
    }

    fn give_up(&self, attempt: &Attempt, kind: FailureKind) -> Next {
        Next::GiveUp(Failure {
            kind,
            votes: attempt.votes().cloned().collect(),
        })
    }

    fn backoff(&mut self, times: u32, least: Duration, most: Duration) -> Duration {
        let grown = least.saturating_mul(1 << times.clamp(1, 16).saturating_sub(1));
        self.jitter.spread(grown.min(most.max(least)))
    }
}

/// When a holder's lease ends, if that is what `vote` tells.
fn free_in(vote: &Vote) -> Option<Duration> {
    match vote {
        // One more: a key still stands in its last millisecond.
        Vote::Held(holder) => Some(Duration::from_millis(holder.for_ms?.saturating_add(1))),
        _ => None,
    }
}

/// When a majority may vote, if only time stands in the way of one.
pub fn majority_grows_up(attempt: &Attempt, quorum: usize) -> Option<Duration> {
    let mut left: Vec<Duration> = attempt
        .votes()
        .filter_map(|vote| match vote {
            vote if vote.is_answer() => Some(Duration::ZERO),
            vote => vote.counts_in(),
        })
        .collect();
    left.sort_unstable();
    left.get(quorum - 1).copied()
}
