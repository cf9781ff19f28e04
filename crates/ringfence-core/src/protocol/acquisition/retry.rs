//! What follows a lost attempt: when to try again, and when to give up.

use std::time::Duration;

use crate::protocol::slots::Asked;
use crate::protocol::{Attempt, Cluster, Loss, Vote, quorum};
use crate::time::Timestamp;

use super::{AcquireFailure, Acquisition, FailureKind, Next};

/// After this many stale rounds in a row, treat the lock as held by another client.
const STALE_ROUNDS_MAX: u32 = 8;
/// The shortest and the longest pause between two attempts while another client holds the lock.
const POLL_MIN: Duration = Duration::from_millis(4);
const POLL_MAX: Duration = Duration::from_millis(200);
/// A waiter in the queue polls at least this often, even if it is not woken.
const QUEUE_POLL_MAX: Duration = Duration::from_secs(30);
/// The shortest and the longest pause between two attempts while no majority answers.
const NO_QUORUM_POLL_MIN: Duration = Duration::from_millis(20);
const NO_QUORUM_POLL_MAX: Duration = Duration::from_secs(1);
/// After wakes that led to no grant, the next wake starts an attempt only after a pause of this
/// length, at first and at most. It is far below the poll interval, so a real hand-over is hardly
/// delayed.
const WAKE_PAUSE_MIN: Duration = Duration::from_millis(2);
const WAKE_PAUSE_MAX: Duration = Duration::from_millis(100);
/// After this time without a fruitless wake, the count starts again.
const WAKES_FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
/// The limit of stale rounds in a row after fruitless wakes.
const STALE_ROUNDS_FRUITLESS: u32 = 2;
/// After this many stale rounds in a row, clocks that look too far apart are reported.
const STALE_ROUNDS_APART: u32 = 3;
/// How often a waiting caller checks a quarantine: an operator may end it with `init`.
const QUARANTINE_POLL_MAX: Duration = Duration::from_secs(1);

impl Acquisition {
    /// Decides what follows `attempt`, which ended in `loss`.
    pub(super) fn after(
        &mut self,
        loss: Loss,
        attempt: &Attempt,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Next {
        if !self.ticket_accepted(attempt) && self.stale_in_a_row < STALE_ROUNDS_MAX {
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
        let other_slot = self.choose_next_slot(attempt);
        match loss {
            Loss::Held if other_slot && self.stale_in_a_row < self.stale_rounds_max() => {
                self.after_stale(attempt, cluster, now)
            }
            Loss::NoQuorum => self.after_no_quorum(attempt, now),
            Loss::Stale | Loss::Skewed if self.tries_higher_ballot(cluster, now) => {
                self.after_stale(attempt, cluster, now)
            }
            Loss::Late => self.after_lost(attempt, cluster, FailureKind::Expired, now),
            Loss::Held | Loss::Stale | Loss::Skewed => {
                self.after_lost(attempt, cluster, FailureKind::Held, now)
            }
        }
    }

    /// Records whether the nodes accepted the ticket. If too few did because it is too old for a
    /// new ticket, our estimate of their clocks was wrong: the next attempt gets a new time, and
    /// this ticket is given up. After several such rounds, a ticket that some node accepted is
    /// kept. From then on it is not new any more, so the other nodes accept it at any age. A new
    /// ticket would be behind the old one, and the undo of the old one would wake it.
    fn ticket_accepted(&mut self, attempt: &Attempt) -> bool {
        let Some(state) = self.ticket.as_mut().filter(|state| state.shown) else {
            return true;
        };
        let count = |wanted: fn(&Vote) -> bool| attempt.votes().filter(|v| wanted(v)).count();
        let refused = count(|vote| *vote == Vote::TicketOld);
        let taken = count(|vote| vote.is_answer() && *vote != Vote::TicketOld);
        let again = self.stale_in_a_row < STALE_ROUNDS_MAX || taken == 0;
        if !state.entered && refused > 0 && taken < quorum(self.terms.nodes) && again {
            state.since_us = None;
            return false;
        }
        state.entered = state.entered || taken > 0;
        true
    }

    /// Chooses the slot for the next attempt. Returns whether a slot can be acquired at once.
    fn choose_next_slot(&mut self, attempt: &Attempt) -> bool {
        let Some(next_slot) = &mut self.next_slot else {
            return false;
        };
        // Without such a slot ask for any: what was free in this attempt is outdated by the next
        // wake.
        let next = attempt.next_slot();
        *next_slot = next.map_or(Asked::Any, Asked::Slot);
        next.is_some()
    }

    /// The caller was woken. `slot` is the slot that a node freed for it. A slot that the last
    /// attempt itself found goes first.
    pub fn woken_for(&mut self, slot: Option<u32>) {
        self.woken = true;
        if let (Some(Asked::Any), Some(slot)) = (self.next_slot, slot) {
            self.next_slot = Some(Asked::Slot(slot));
        }
    }

    /// The lock is free, but the ballot was too low: try again at once with a higher one. From the
    /// second time in a row on add jitter, or two clients outbid each other for ever.
    fn after_stale(&mut self, attempt: &Attempt, cluster: &Cluster, now: Timestamp) -> Next {
        self.stale_in_a_row += 1;
        if self.stale_in_a_row >= STALE_ROUNDS_APART && self.are_clocks_apart(cluster, now) {
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

    /// Whether another ballot is tried at once. If the clocks are apart, fruitless wakes do not
    /// end the rounds before the caller learns it: the end of a hold would not help.
    fn tries_higher_ballot(&self, cluster: &Cluster, now: Timestamp) -> bool {
        self.stale_in_a_row < self.stale_rounds_max()
            || self.stale_in_a_row < STALE_ROUNDS_APART && self.are_clocks_apart(cluster, now)
    }

    /// Compares the clocks only: a floor that is out of reach now comes into reach soon.
    fn are_clocks_apart(&self, cluster: &Cluster, now: Timestamp) -> bool {
        cluster.most_in_reach(now) < quorum(self.terms.nodes)
    }

    /// From when on a wake may start the next attempt, after one that was lost at `now`.
    ///
    /// A wake is only a hint, and any node can send one. While no client gets a majority, every
    /// undo wakes others: without a pause the callers would wake each other as fast as the nodes
    /// answer. The first fruitless wake causes no pause: it may have come before the other nodes
    /// executed the release.
    fn wake_not_before(&mut self, now: Timestamp) -> Timestamp {
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

    /// After fruitless wakes, immediate retries do not help either.
    fn stale_rounds_max(&self) -> u32 {
        match self.fruitless_wakes < 2 {
            true => STALE_ROUNDS_MAX,
            false => STALE_ROUNDS_FRUITLESS,
        }
    }

    /// Another client is in the way. Try again when the lock may be free, when woken, or by poll,
    /// as long as the caller waits.
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
        // A holder or a waiter ahead is the reason that counts.
        let is_free =
            |vote: &Vote| !matches!(vote, Vote::Held(_) | Vote::Behind { .. } | Vote::Granted);
        let fence_ahead = self.fence_ahead.filter(|_| attempt.votes().all(is_free));
        let kind = match fence_ahead {
            Some(left) if kind == FailureKind::Held => FailureKind::FenceAhead { left },
            _ => kind,
        };
        if spent || over {
            return self.give_up(attempt, kind);
        }
        self.held = Some(AcquireFailure {
            kind,
            votes: attempt.votes().cloned().collect(),
        });
        if let Some(state) = &mut self.ticket
            && !state.shown
        {
            // Another client holds the lock, so enter the queue now.
            state.shown = true;
            return Next::Retry {
                at: now,
                wake_at: now,
                stays: true,
            };
        }
        let mut pause = self.backoff(self.lost, POLL_MIN.max(self.round * 2), POLL_MAX);
        if attempt.ticket().is_some() && kind == FailureKind::Held {
            // The nodes wake a waiter in the queue, and the runtime refreshes its ticket. So it
            // polls rarely.
            let turn = attempt.turn_in(cluster.group().grace);
            pause = pause.max(turn.unwrap_or(QUEUE_POLL_MAX));
        } else if let Some(free) = attempt.votes().filter_map(free_in).min() {
            pause = pause.min(free);
        }
        if let FailureKind::FenceAhead { left } = kind {
            // No wake tells when the clocks have caught up.
            pause = left.max(POLL_MAX);
        }
        let at = now + pause;
        Next::Retry {
            at: give_up_at.map_or(at, |end| at.min(end)),
            wake_at: self.wake_not_before(now),
            stays: true,
        }
    }

    /// No majority answers. The `wait` is meant for contention, so this gives up sooner.
    fn after_no_quorum(&mut self, attempt: &Attempt, now: Timestamp) -> Next {
        self.stale_in_a_row = 0;
        let quorum = quorum(self.terms.nodes);
        let misconfigured = attempt.votes().filter(|vote| vote.is_misconfigured());
        if misconfigured.count() >= quorum {
            return self.give_up(attempt, FailureKind::Misconfigured);
        }
        let limit = self.terms.wait.map_or(self.terms.no_quorum_after, |wait| {
            wait.min(self.terms.no_quorum_after)
        });
        if let Some(left) = majority_votes_in(attempt, quorum) {
            // A new cluster is not an outage: waiting helps if the caller waits long enough. A
            // caller without limits does.
            let limited = self.terms.wait.is_some() || self.terms.attempts.is_some();
            let covered = self.terms.wait.unwrap_or(limit).max(limit);
            let end = self.started + covered;
            if now + left > end && limited {
                return self.give_up(attempt, FailureKind::Quarantined { left });
            }
            self.no_quorum_since = None;
            let pause = left + Duration::from_millis(1);
            // A single node keeps the queue during its quarantine.
            let queues = attempt
                .votes()
                .all(|vote| matches!(vote, Vote::Quarantined { .. }));
            let queues = queues && !attempt.inspects_only();
            if let Some(state) = self.ticket.as_mut().filter(|_| queues) {
                state.shown = true;
                state.entered = state.entered || attempt.ticket().is_some();
            }
            return Next::Retry {
                at: now + pause.min(QUARANTINE_POLL_MAX),
                wake_at: self.wake_not_before(now),
                stays: queues,
            };
        }
        let since = *self.no_quorum_since.get_or_insert(attempt.t0());
        let spent = self
            .terms
            .attempts
            .is_some_and(|most| self.no_quorum_in_a_row + 1 >= most);
        // An outage that begins late, or comes and goes, does not prolong the wait.
        let mut end = since + limit;
        if let Some(wait) = self.terms.wait {
            end = end.min(self.started + wait);
        }
        if spent || now >= end {
            return match self.held.take() {
                // The end of the wait may cut the last round short. That alone is not an outage.
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
            wake_at: self.wake_not_before(now),
            // A ticket that stays on the few reachable nodes would block other waiters for nothing.
            stays: self.no_quorum_in_a_row < 2,
        }
    }

    fn give_up(&self, attempt: &Attempt, kind: FailureKind) -> Next {
        Next::GiveUp(AcquireFailure {
            kind,
            votes: attempt.votes().cloned().collect(),
        })
    }

    fn backoff(&mut self, times: u32, least: Duration, most: Duration) -> Duration {
        let grown = least.saturating_mul(1 << times.clamp(1, 16).saturating_sub(1));
        self.jitter.spread(grown.min(most.max(least)))
    }
}

/// The remaining lease of the holder, if `vote` reports one.
fn free_in(vote: &Vote) -> Option<Duration> {
    match vote {
        // Plus one, because a key still exists in its last millisecond.
        Vote::Held(holder) => Some(Duration::from_millis(holder.for_ms?.saturating_add(1))),
        _ => None,
    }
}

/// When a majority may vote, if only quarantines and clock jumps prevent it.
pub fn majority_votes_in(attempt: &Attempt, quorum: usize) -> Option<Duration> {
    let mut left: Vec<Duration> = attempt
        .votes()
        .filter_map(|vote| match vote {
            vote if vote.is_answer() => Some(Duration::ZERO),
            vote => vote.votes_in(),
        })
        .collect();
    left.sort_unstable();
    left.get(quorum - 1).copied()
}
