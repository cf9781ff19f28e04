//! Releases and undos in progress. They do not depend on a caller: once begun, a release is retried
//! until every node that may store the lock has confirmed, or the lease has ended. Which node gets
//! which request is decided by `protocol::PendingRelease`.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::message::{ReleaseKind, Reply};
use crate::name::Name;
use crate::node::{CallError, Deliver};
use crate::protocol::{
    Attempt, FinalRelease, GrantId, PendingRelease, ReleaseRequests, ReleaseVerdict, RoundMachine,
    Target, TicketFate,
};
use crate::time::Timestamp;

use super::schedule::{Due, ScheduleKey};
use super::sender::PendingRound;
use super::waiter::Waiter;
use super::{ClientRuntime, lock};

/// What became of the caller whose attempt or ticket is undone.
pub(crate) enum UndoOf {
    /// It will retry. Its ticket is kept in the queue as long as it waits.
    Waiting(Arc<Waiter>),
    /// It has given up its ticket.
    GoneTicket,
    /// It has given up the attempt of this round. If a node has not sent the attempt, its undo is
    /// not sent either, unless the node had the ticket from before.
    Abandoned {
        /// The attempt.
        round: Arc<PendingRound<Attempt>>,
        /// For each node: whether it may have the ticket from before the attempt.
        had_ticket: Vec<bool>,
    },
    /// It goes on without the ticket: it will retry, or it got the lock.
    Live,
}

/// A release or undo in progress.
pub(crate) struct Releasing {
    this: Weak<Self>,
    round: PendingRound<PendingRelease>,
    requests: Mutex<ReleaseRequests>,
    /// When the last lease of what is released has ended.
    until: Timestamp,
    call_timeout: Duration,
    /// What became of its caller, for an undo.
    undo_of: Option<UndoOf>,
    /// Counted among the releases that `Locks::close` waits for.
    counted: AtomicBool,
    /// Counted among the releases that no majority has confirmed.
    unconfirmed: AtomicBool,
    /// Its entry on the schedule: at most one, however often it has failed.
    scheduled: Mutex<Option<ScheduleKey>>,
}

impl Releasing {
    /// Undoes `id` on `targets`. Ends after `lease`, when no node can still store it.
    pub(crate) fn undo(
        runtime: &Arc<ClientRuntime>,
        id: &GrantId,
        targets: Vec<Target>,
        lease: Duration,
        call_timeout: Duration,
        of: UndoOf,
    ) -> Arc<Self> {
        let undo = FinalRelease {
            targets,
            lease_left: lease,
            call_timeout,
            keep_until: None,
            keeps_on: false,
        };
        Self::begin(runtime, id, ReleaseKind::Undo, undo, Some(of))
    }

    /// The final release of a holder.
    pub(crate) fn finish(
        runtime: &Arc<ClientRuntime>,
        id: &GrantId,
        release: FinalRelease,
    ) -> Arc<Self> {
        Self::begin(runtime, id, ReleaseKind::Final, release, None)
    }

    /// Never blocks and needs no tokio runtime.
    fn begin(
        runtime: &Arc<ClientRuntime>,
        id: &GrantId,
        kind: ReleaseKind,
        release: FinalRelease,
        undo_of: Option<UndoOf>,
    ) -> Arc<Self> {
        let (call_timeout, keep_until) = (release.call_timeout, release.keep_until);
        let now = runtime.sender.clock.now();
        let until = now + release.lease_left;
        let stays = matches!(undo_of, Some(UndoOf::Waiting(_)));
        let requests = ReleaseRequests::new(id, kind, stays, until, keep_until);
        let machine = PendingRelease::new(kind, release.targets, now, until, call_timeout)
            .keeping(keep_until.filter(|_| release.keeps_on));
        let (settled, confirmed) = (machine.is_settled(), machine.is_confirmed());
        let this = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            round: PendingRound::new(runtime, machine, now),
            requests: Mutex::new(requests),
            until,
            call_timeout,
            undo_of,
            counted: AtomicBool::new(!settled),
            unconfirmed: AtomicBool::new(!confirmed),
            scheduled: Mutex::new(None),
        });
        if !settled {
            let closing = &runtime.closing;
            closing.releasing.fetch_add(1, Ordering::SeqCst);
            if !confirmed {
                closing.unconfirmed.fetch_add(1, Ordering::SeqCst);
                if let Some(name) = this.given_up() {
                    runtime.contention.undo_sent(&name);
                }
            }
            this.send_due();
        }
        this
    }

    /// Waits for the verdict of a final release. The release is on the schedule until no retry is
    /// left, so the caller needs no timer.
    pub(crate) async fn verdict(&self) -> ReleaseVerdict {
        let runtime = &self.round.runtime;
        let timeout = runtime.sender.clock.now() + self.call_timeout;
        tokio::select! {
            biased;
            verdict = poll_fn(|cx| self.round.poll_verdict(cx)) => verdict,
            // Without the keeper there is no retry.
            () = runtime.closing.after_runtime_end(timeout, &runtime.sender.clock) => {
                ReleaseVerdict::Unconfirmed
            }
        }
    }

    /// Handles a timeout: resends to the nodes that have not confirmed.
    pub(crate) fn time_out(self: &Arc<Self>) {
        self.round.time_out();
        if self.until <= self.round.runtime.sender.clock.now() {
            // All that is left is to refuse other clients for a while: `Locks::close` does not wait
            // for that.
            self.uncount();
        }
        self.send_due();
    }

    /// Sends what is due now and schedules the rest.
    fn send_due(self: &Arc<Self>) {
        let sender = &self.round.runtime.sender;
        let now = sender.clock.now();
        // One node at a time: it may answer during the send.
        while let Some((node, fate_unknown)) = self.round.with(|machine| machine.poll_send(now)) {
            let leaves = self.waiter().is_some_and(|waiter| waiter.is_over());
            let (request, expires) = lock(&self.requests).at(fate_unknown, leaves, now);
            let to = Arc::clone(self) as Arc<dyn Deliver<Reply>>;
            sender.send(node, &request, expires, to);
        }
        let (timeout, settled) = self
            .round
            .with(|machine| (machine.poll_timeout(), machine.is_settled()));
        if settled {
            self.settle();
        } else if let Some(at) = timeout {
            self.reschedule(at);
        }
    }

    fn reschedule(&self, at: Timestamp) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let schedule = &self.round.runtime.schedule;
        let mut scheduled = lock(&self.scheduled);
        if let Some(key) = scheduled.take() {
            schedule.remove(key);
        }
        *scheduled = Some(schedule.insert(at, Due::Release(this)));
    }

    /// The waiter whose ticket stays in the queue.
    fn waiter(&self) -> Option<&Arc<Waiter>> {
        match &self.undo_of {
            Some(UndoOf::Waiting(waiter)) => Some(waiter),
            _ => None,
        }
    }

    /// The name that the caller wanted, if it has given up.
    fn given_up(&self) -> Option<Name> {
        let gone = matches!(
            self.undo_of,
            Some(UndoOf::GoneTicket | UndoOf::Abandoned { .. })
        );
        gone.then(|| lock(&self.requests).first_name()).flatten()
    }

    /// No majority can still miss it: `answered` by a majority, or its lease has ended.
    fn confirm(&self, answered: bool) {
        if self.unconfirmed.swap(false, Ordering::SeqCst) {
            let runtime = &self.round.runtime;
            runtime.closing.count_down(&runtime.closing.unconfirmed);
            if let Some(name) = self.given_up() {
                let at = answered.then(|| runtime.sender.clock.now());
                runtime.contention.undo_ended(&name, at);
            }
        }
    }

    fn settle(&self) {
        if let Some(key) = lock(&self.scheduled).take() {
            self.round.runtime.schedule.remove(key);
        }
        self.uncount();
    }

    /// Removes it from the releases that `Locks::close` waits for.
    fn uncount(&self) {
        self.confirm(false);
        if self.counted.swap(false, Ordering::SeqCst) {
            let closing = &self.round.runtime.closing;
            closing.count_down(&closing.releasing);
        }
    }
}

impl Deliver<Reply> for Releasing {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, failed) = (tag as usize, outcome.is_err());
        if let Some(waiter) = self.waiter() {
            waiter.note(&self.round.runtime, node, TicketFate::after_undo(&outcome));
        }
        let (settled, confirmed, again) = self.round.handle_reply(node, outcome, |machine, now| {
            let again = machine.poll_timeout().filter(|_| failed);
            let again = again.map(|at| at.max(now));
            (machine.is_settled(), machine.is_confirmed(), again)
        });
        if confirmed {
            self.confirm(!failed);
        }
        if settled {
            self.settle();
        } else if let Some(at) = again {
            // The call failed: retry sooner than at its timeout.
            self.reschedule(at);
        }
    }

    fn is_wanted(&self, tag: u64) -> bool {
        let Some(UndoOf::Abandoned { round, had_ticket }) = &self.undo_of else {
            return true;
        };
        let node = tag as usize;
        let had_ticket = had_ticket.get(node).is_some_and(|had_ticket| *had_ticket);
        had_ticket || !round.with(|attempt| attempt.was_withdrawn(node))
    }

    fn withdrawn(&self, tag: u64) {
        let (settled, confirmed) = self.round.with(|machine| {
            machine.withdraw(tag as usize);
            (machine.is_settled(), machine.is_confirmed())
        });
        if confirmed {
            self.confirm(false);
        }
        if settled {
            self.settle();
        }
    }
}

impl fmt::Debug for Releasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Releasing({})", lock(&self.requests).token())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::message::{Ballot, Claim, Kind, Mode};
    use crate::name::Name;
    use crate::node::memory::MemoryNode;
    use crate::node::{NodeClock, Trouble, TroubleKind};
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    #[test]
    fn a_release_that_fails_for_long_is_on_the_schedule_once() {
        let time = SteppedClock::starting_at(Duration::from_secs(1));
        let clock = Clock::Stepped(time.clone());
        let node = MemoryNode::with_clock("m", NodeClock::following(clock.clone(), 1 << 50));
        let down = Trouble::new(TroubleKind::Unreachable, "down");
        node.fail_with(Some(CallError::NotSent(down)));
        let runtime = ClientRuntime::of_group(vec![Arc::new(node)], clock);
        let claims: Arc<[Claim]> = Arc::from([Claim {
            name: Name::new("", "x").unwrap(),
            mode: Mode::Exclusive,
        }]);
        let token = Token::from_entropy([1; TOKEN_ENTROPY_BYTES]);
        let id = GrantId::of_receipt(
            claims,
            token,
            Ballot::new(1),
            Kind::Exclusive,
            Duration::ZERO,
        );
        let hour = Duration::from_secs(3600);
        let timeout = Duration::from_secs(1);
        let release = FinalRelease {
            targets: vec![Target::Holds],
            lease_left: hour,
            call_timeout: timeout,
            keep_until: None,
            keeps_on: false,
        };
        Releasing::finish(&runtime, &id, release);
        for _ in 0..3599 {
            time.step(Duration::from_secs(1));
            let due = std::iter::from_fn(|| runtime.schedule.pop(time.now()));
            let due: Vec<Due> = due.take(10).collect();
            assert!(due.len() <= 1, "{} at once", due.len());
            for entry in due {
                let Due::Release(releasing) = entry else {
                    panic!("no lock is held");
                };
                releasing.time_out();
            }
        }
        time.step(timeout);
        while let Some(Due::Release(releasing)) = runtime.schedule.pop(time.now()) {
            releasing.time_out();
        }
        assert_eq!(
            runtime.schedule.next(),
            None,
            "it leaves the schedule once the TTL is over"
        );
    }
}
